"""stack_module_state: the parameters of several models as one, for `vmap` over an ensemble."""

from __future__ import annotations

from collections.abc import Sequence

from ..engine.tensor import Tensor, tensor_ops
from ..errors import OnefoldRuntimeError
from ..nn.container import ModuleList
from ..nn.module import Module
from ..nn.running_norm import BatchNorm


def stack_module_state(
    models: Sequence[Module] | ModuleList,
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The parameters and buffers of models of one class, by name: each stacked along dim 0.

    They are new leaves, which require a gradient where the models' parameters do. Raises
    OnefoldRuntimeError without models, or if they differ in class, mode, or in what requires a
    gradient.

    >>> import onefold as flow
    >>> models = [flow.nn.Linear(3, 2) for _ in range(4)]
    >>> params, buffers = flow.func.stack_module_state(models)
    >>> call = lambda params, x: flow.func.functional_call(models[0], params, x)
    >>> flow.vmap(call, (0, None))(params, flow.ones(5, 3)).shape
    torch.Size([4, 5, 2])
    """
    given = list(models)
    if not given:
        raise OnefoldRuntimeError("stack_module_state: Expected at least one model, got 0.")
    if len({model.training for model in given}) > 1:
        raise OnefoldRuntimeError(
            "stack_module_state: Expected all models to have the same training/eval mode."
        )
    if len({type(model) for model in given}) > 1:
        raise OnefoldRuntimeError(
            "stack_module_state: Expected all models to be of the same class, but got "
            f"{', '.join(sorted({type(model).__name__ for model in given}))}."
        )
    return (
        _stacked([dict(model.named_parameters()) for model in given]),
        _stacked([dict(model.named_buffers()) for model in given]),
    )


def _stacked(states: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    stacked = {}
    for name in states[0]:
        tensors = [state[name] for state in states]
        if len({x.requires_grad for x in tensors}) > 1:
            raise OnefoldRuntimeError(
                f"stack_module_state: Expected {name} to have the same .requires_grad in all models"
            )
        stacked[name] = tensor_ops.stack(tensors).detach().requires_grad_(tensors[0].requires_grad)
    return stacked


def replace_all_batch_norm_modules_(root: Module) -> Module:
    """Let every batch norm of a module use the statistics of its batch alone, as `vmap` needs.

    >>> import onefold as flow
    >>> flow.func.replace_all_batch_norm_modules_(flow.nn.BatchNorm1d(2)).running_mean is None
    True
    """
    for module in root.modules():
        if isinstance(module, BatchNorm) and module.track_running_stats:
            module.track_running_stats = False
            module.running_mean = module.running_var = module.num_batches_tracked = None
    return root
