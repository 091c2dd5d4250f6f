"""torch.distributed.tensor.parallel: how single modules take part in tensor parallelism."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from ..engine.tensor import Tensor
from ..errors import OnefoldNotImplementedError, OnefoldValueError
from ..nn.linear import Embedding, Linear
from ..nn.module import Module
from .device_mesh import DeviceMesh
from .mesh_tensors import MeshPlacement, Replicate, Shard
from .style_layouts import (
    Layouts,
    all_laid,
    check_pairs,
    checked,
    distribute,
    given_back,
    laid,
    one_laid,
    several,
)

__all__ = [
    "ColwiseParallel",
    "ParallelStyle",
    "PrepareModuleInput",
    "PrepareModuleInputOutput",
    "PrepareModuleOutput",
    "RowwiseParallel",
    "SequenceParallel",
]


class ParallelStyle(ABC):
    """How `parallelize_module` changes a module: the base of the styles below, and of others."""

    src_data_rank: int | None = 0

    @abstractmethod
    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        """Change the module in place, and give it back."""


class _Split(ParallelStyle):
    """A linear layer or embedding whose weight is split."""

    # The dims along which (weight, bias) are split, and the layout in which the input is read.
    _linear: tuple[MeshPlacement, MeshPlacement, MeshPlacement]
    _embedding: tuple[MeshPlacement, MeshPlacement, MeshPlacement]

    def __init__(
        self, input_layouts: MeshPlacement, output_layouts: MeshPlacement, use_local_output: bool
    ) -> None:
        self.input_layouts = (checked(self, input_layouts),)
        self.output_layouts = (checked(self, output_layouts),)
        self.use_local_output = use_local_output

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        if isinstance(module, Linear):
            weight, bias, read = self._linear
        elif isinstance(module, Embedding):
            weight, bias, read = self._embedding
        else:
            name = type(self).__name__
            raise OnefoldNotImplementedError(
                f"{name} currently only support nn.Linear and nn.Embedding, but got "
                f"{type(module).__name__}; name the layers inside of it, as in "
                f'{{"path.of.layer": {name}()}}'
            )
        for name, param in [*module.named_parameters(recurse=False)]:
            layout = weight if param.ndim > 1 else bias
            distribute(module, name, device_mesh, layout, self.src_data_rank)
        (given,), (made,) = self.input_layouts, self.output_layouts

        def before(module: Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
            return (laid(args[0], device_mesh, given, read, self), *args[1:])

        def after(module: Module, args: object, result: Tensor) -> Tensor:
            return given_back(
                laid(result, device_mesh, None, made, self), device_mesh, self.use_local_output
            )

        module.register_forward_pre_hook(before)
        module.register_forward_hook(after)
        return module

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(input_layouts={self.input_layouts}, output_layouts="
            f"{self.output_layouts}, use_local_output={self.use_local_output})"
        )


class ColwiseParallel(_Split):
    """Split what a linear layer, or embedding, gives: each rank has some of its features.

    A local input is this rank's part of a tensor that lies as `input_layouts` says, by default all
    of it. The result lies as `output_layouts` says, by default split along the last dim, and is
    this rank's part of it unless `use_local_output=False`. In a world of one process what is split
    stays global, since one local tensor could not be the parts of several ranks.
    """

    _linear = (Shard(0), Shard(0), Replicate())
    _embedding = (Shard(1), Replicate(), Replicate())

    def __init__(
        self,
        *,
        input_layouts: MeshPlacement | None = None,
        output_layouts: MeshPlacement | None = None,
        use_local_output: bool = True,
    ) -> None:
        super().__init__(
            input_layouts or Replicate(), output_layouts or Shard(-1), use_local_output
        )


class RowwiseParallel(_Split):
    """Split what a linear layer reads, or the rows of an embedding; ranks' results are summed.

    A local input is this rank's part of one that is split along its last dim, or lies as
    `input_layouts` says. The sum lies as `output_layouts` says, by default on every rank; see
    ColwiseParallel for `use_local_output`.
    """

    _linear = (Shard(1), Replicate(), Shard(-1))
    _embedding = (Shard(0), Replicate(), Replicate())

    def __init__(
        self,
        *,
        input_layouts: MeshPlacement | None = None,
        output_layouts: MeshPlacement | None = None,
        use_local_output: bool = True,
    ) -> None:
        super().__init__(
            input_layouts or Shard(-1), output_layouts or Replicate(), use_local_output
        )


class SequenceParallel(ParallelStyle):
    """Let a norm, dropout or other module without splits work on parts of a sequence.

    Its parameters are replicated. Inputs and results are split along `sequence_dim`; local ones are
    this rank's part. Source: Korthikanti et al., "Reducing activation recomputation in large
    transformer models" (2022).
    """

    def __init__(self, *, sequence_dim: int = 1, use_local_output: bool = False) -> None:
        self.sequence_sharding = (Shard(sequence_dim),)
        self.use_local_output = use_local_output

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        for owner in [*module.modules()]:
            for name, _ in [*owner.named_parameters(recurse=False)]:
                distribute(owner, name, device_mesh, Replicate(), self.src_data_rank)
        (split,) = self.sequence_sharding

        def before(module: Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
            return (laid(args[0], device_mesh, split, split, self), *args[1:])

        def after(module: Module, args: object, result: Tensor) -> Tensor:
            return given_back(
                laid(result, device_mesh, None, split, self), device_mesh, self.use_local_output
            )

        module.register_forward_pre_hook(before)
        module.register_forward_hook(after)
        return module

    def __repr__(self) -> str:
        (split,) = self.sequence_sharding
        return (
            f"SequenceParallel(sequence_dim={split.dim}, use_local_output={self.use_local_output})"
        )


class PrepareModuleInput(ParallelStyle):
    """Give a module its inputs in other layouts than those in which it is called with them.

    `input_layouts` says how each positional argument lies, `desired_input_layouts` how the module
    gets it; None leaves an argument as it is. The two for keyword arguments are dicts. Arguments
    become global tensors, or this rank's part with `use_local_output=True`. Raises
    OnefoldValueError for layouts without their counterparts.
    """

    def __init__(
        self,
        *,
        input_layouts: Layouts = None,
        desired_input_layouts: Layouts = None,
        input_kwarg_layouts: Mapping[str, MeshPlacement] | None = None,
        desired_input_kwarg_layouts: Mapping[str, MeshPlacement] | None = None,
        use_local_output: bool = False,
    ) -> None:
        self.input_layouts = several(self, input_layouts)
        self.desired_input_layouts = several(self, desired_input_layouts)
        self.input_kwarg_layouts = dict(input_kwarg_layouts or {})
        self.desired_input_kwarg_layouts = dict(desired_input_kwarg_layouts or {})
        self.use_local_output = use_local_output
        check_pairs(self, self.input_layouts, self.desired_input_layouts)
        if self.input_kwarg_layouts.keys() != self.desired_input_kwarg_layouts.keys():
            raise OnefoldValueError(
                "PrepareModuleInput: input_kwarg_layouts and desired_input_kwarg_layouts need the "
                f"same names, but have {[*self.input_kwarg_layouts]} and "
                f"{[*self.desired_input_kwarg_layouts]}"
            )

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        def before(
            module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]
        ) -> tuple[tuple[Any, ...], dict[str, Any]]:
            if self.input_layouts is not None:
                layouts = self.input_layouts, self.desired_input_layouts or ()
                args = all_laid(args, *layouts, device_mesh, self, "module inputs")
            wanted = self.desired_input_kwarg_layouts
            named = {
                name: one_laid(
                    value, self.input_kwarg_layouts.get(name), wanted.get(name), device_mesh, self
                )
                for name, value in kwargs.items()
            }
            return args, named

        module.register_forward_pre_hook(before, with_kwargs=True)
        return module

    def __repr__(self) -> str:
        return (
            f"PrepareModuleInput(input_layouts={self.input_layouts}, desired_input_layouts="
            f"{self.desired_input_layouts}, input_kwarg_layouts={self.input_kwarg_layouts}, "
            f"desired_input_kwarg_layouts={self.desired_input_kwarg_layouts}, use_local_output="
            f"{self.use_local_output})"
        )


class PrepareModuleOutput(ParallelStyle):
    """Give a module's results in other layouts than those in which it returns them.

    See PrepareModuleInput; results are this rank's part unless `use_local_output=False`.
    """

    def __init__(
        self,
        *,
        output_layouts: Layouts,
        desired_output_layouts: Layouts,
        use_local_output: bool = True,
    ) -> None:
        self.output_layouts = several(self, output_layouts) or ()
        self.desired_output_layouts = several(self, desired_output_layouts) or ()
        self.use_local_output = use_local_output
        check_pairs(self, self.output_layouts, self.desired_output_layouts)

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        def after(module: Module, args: object, result: Any) -> Any:
            results = result if isinstance(result, tuple) else (result,)
            layouts = self.output_layouts, self.desired_output_layouts
            made = all_laid(results, *layouts, device_mesh, self, "module outputs")
            return made[0] if len(made) == 1 else made

        module.register_forward_hook(after)
        return module

    def __repr__(self) -> str:
        return (
            f"PrepareModuleOutput(output_layouts={self.output_layouts}, desired_output_layouts="
            f"{self.desired_output_layouts}, use_local_output={self.use_local_output})"
        )


class PrepareModuleInputOutput(ParallelStyle):
    """PrepareModuleInput and PrepareModuleOutput of one module."""

    def __init__(
        self,
        *,
        input_layouts: Layouts = None,
        desired_input_layouts: Layouts = None,
        input_kwarg_layouts: Mapping[str, MeshPlacement] | None = None,
        desired_input_kwarg_layouts: Mapping[str, MeshPlacement] | None = None,
        use_local_input: bool = False,
        output_layouts: Layouts,
        desired_output_layouts: Layouts,
        use_local_output: bool = True,
    ) -> None:
        self.prepare_module_input = PrepareModuleInput(
            input_layouts=input_layouts,
            desired_input_layouts=desired_input_layouts,
            input_kwarg_layouts=input_kwarg_layouts,
            desired_input_kwarg_layouts=desired_input_kwarg_layouts,
            use_local_output=use_local_input,
        )
        self.prepare_module_output = PrepareModuleOutput(
            output_layouts=output_layouts,
            desired_output_layouts=desired_output_layouts,
            use_local_output=use_local_output,
        )

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        self.prepare_module_input._apply(module, device_mesh)
        return self.prepare_module_output._apply(module, device_mesh)

    def __repr__(self) -> str:
        return (
            f"PrepareModuleInputOutput({self.prepare_module_input!r}, "
            f"{self.prepare_module_output!r})"
        )
