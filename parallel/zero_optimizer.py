"""torch.distributed.optim: ZeroRedundancyOptimizer, an optimizer with its state in shards."""

from __future__ import annotations

from typing import Any

from ..checkpoint.model_states import whole
from ..errors import OnefoldTypeError, OnefoldValueError
from ..optim.optimizer import Optimizer

__all__ = ["ZeroRedundancyOptimizer"]

__path__: list[str] = []  # compat/import_paths.py leads to what is below it


class _Consolidated(Optimizer):
    """What an optimizer gets besides its own methods."""

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Make the state whole for the next `state_dict()`, on every rank. Collective."""
        found = super().state_dict()
        state = {
            key: {name: whole(value) for name, value in entry.items()}
            for key, entry in found["state"].items()
        }
        self.__dict__["_whole_state"] = {**found, "state": state}

    def state_dict(self) -> dict[str, Any]:
        """What `consolidate_state_dict` made whole, once; else the state with global tensors."""
        found: dict[str, Any] | None = self.__dict__.pop("_whole_state", None)
        return super().state_dict() if found is None else found


_classes: dict[type[Optimizer], type[Optimizer]] = {}


class _IsConsolidated(type):
    def __instancecheck__(cls, x: object) -> bool:
        return isinstance(x, _Consolidated)


class ZeroRedundancyOptimizer(metaclass=_IsConsolidated):
    """An optimizer of a class whose state is split over the ranks that have a parameter whole.

    The parameters are those of a DistributedDataParallel module, or others that are broadcast;
    `optimizer_class(params, **defaults)` is made, with `enable_zero(stage=1)`. `state_dict()` has
    global tensors, or whole ones after `consolidate_state_dict()`, which every rank calls. Raises
    OnefoldTypeError for what is no class of optimizers, OnefoldValueError for `overlap_with_ddp`.

    >>> import onefold as flow
    >>> model = flow.nn.parallel.DistributedDataParallel(flow.nn.Linear(2, 2))
    >>> optimizer = ZeroRedundancyOptimizer(model.parameters(), flow.optim.Adam, lr=0.1)
    >>> isinstance(optimizer, flow.optim.Adam), isinstance(optimizer, ZeroRedundancyOptimizer)
    (True, True)
    """

    def __new__(  # type: ignore[misc]
        cls,
        params: Any,
        optimizer_class: type[Optimizer],
        process_group: object = None,
        parameters_as_bucket_view: bool = False,
        overlap_with_ddp: bool = False,
        **defaults: Any,
    ) -> Optimizer:
        given: object = optimizer_class
        if not (isinstance(given, type) and issubclass(given, Optimizer)):
            raise OnefoldTypeError(
                "ZeroRedundancyOptimizer: optimizer_class must be a class of onefold.optim, such "
                f"as flow.optim.Adam, but got {optimizer_class!r}"
            )
        if overlap_with_ddp:
            raise OnefoldValueError(
                "ZeroRedundancyOptimizer: overlap_with_ddp is not supported; for updates while "
                "backward runs use config.enable_optimizer_in_backward() of an nn.Graph"
            )
        if optimizer_class not in _classes:
            name = f"ZeroRedundancy{optimizer_class.__name__}"
            _classes[optimizer_class] = type(name, (_Consolidated, optimizer_class), {})
        return _classes[optimizer_class](params, **defaults).enable_zero(stage=1)
