"""The old path of `flow.hub.load_state_dict_from_url`."""

from ..hub import load_state_dict_from_url as load_url, tqdm

__all__ = ["load_url", "tqdm"]
