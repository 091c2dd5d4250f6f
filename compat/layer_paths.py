"""Paths of torch.nn.modules (`flow.nn.modules.batchnorm`): the layers, by torch's files.

A module holds the names of torch's module that stand in `nn`, and the base classes that programs
name in `isinstance` or as their own base.
"""

from __future__ import annotations

from types import ModuleType

import torch
from torch.nn.modules.module import _addindent

from .. import nn
from ..nn import module_hooks
from ..nn.convolution import _ConvNd, _ConvTransposeNd
from ..nn.loss_layers import _Loss, _WeightedLoss
from ..nn.module_state import IncompatibleKeys
from ..nn.recurrent_cells import RNNCellBase
from ..nn.running_norm import BatchNorm, RunningNorm, _InstanceNorm
from ..nn.table_layers import BASES
from ..nn.transformer import _clones
from ..nn.transformer_layers import _activation

__path__: list[str] = []  # import_paths.py leads to what is below it

# Of pooling only the adaptive layers have a base of their own here.
_BASES: dict[str, object] = {
    **{name: base for name, base in BASES.items() if name not in ("_AvgPoolNd", "_MaxPoolNd")},
    "RNNCellBase": RNNCellBase,
    "_BatchNorm": BatchNorm,
    "_ConvNd": _ConvNd,
    "_ConvTransposeNd": _ConvTransposeNd,
    "_InstanceNorm": _InstanceNorm,
    "_Loss": _Loss,
    "_NormBase": RunningNorm,
    "_WeightedLoss": _WeightedLoss,
    "_IncompatibleKeys": IncompatibleKeys,
    "_addindent": _addindent,
    "_get_activation_fn": _activation,
    "_get_clones": _clones,
    **{
        name: getattr(module_hooks, name)
        for name in vars(module_hooks)
        if name.startswith("register_module_")
    },
    "F": nn.functional,
    "init": nn.init,
}
_SHAPES = torch.nn.modules.utils.__name__  # its functions take and give tuples, or dicts of any


def _module(theirs: ModuleType) -> ModuleType:
    """What stands for one module of torch."""
    made = ModuleType(f"{nn.__name__}.modules.{theirs.__name__.rpartition('.')[2]}", theirs.__doc__)
    for name, value in vars(theirs).items():
        if name in _BASES:
            setattr(made, name, _BASES[name])
        elif name in vars(nn) and not name.startswith("__"):
            setattr(made, name, vars(nn)[name])
        elif getattr(value, "__module__", None) == _SHAPES:
            setattr(made, name, value)
    return made


MODULES = {
    name: _module(module)
    for name, module in vars(torch.nn.modules).items()
    if isinstance(module, ModuleType) and not name.startswith("_")
}
globals().update(MODULES)
globals().update({name: vars(nn)[name] for name in torch.nn.modules.__all__ if name in vars(nn)})
