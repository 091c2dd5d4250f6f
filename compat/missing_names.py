"""Names of torch and OneFlow that are not here, each with what to use in its place."""

from __future__ import annotations

from collections.abc import Mapping

_BOXES = (
    "call that of torchvision.ops on x.to_torch(), and flow.from_torch on what it gives: how many "
    "boxes are left depends on the values"
)
_BUFFERS = "a list of tensors holds tensors of several shapes"
_DENSE = (
    "sparse tensors have coordinates; make one with flow.sparse_coo_tensor(indices, values, size), "
    "and use flow.sparse.mm"
)
_DEVICES = (
    "devices are those of CUDA and the CPU; choose with "
    '"cuda" if flow.cuda.is_available() else "cpu", and call functions of flow.cuda'
)
_QUANTIZED = (
    "quantized tensors are not there; to compute with 8 bits use flow.quantize_fp8 and "
    "flow.scaled_matmul, and for half precision flow.autocast"
)
_COMPILED = (
    "use flow.compile(model), or an nn.Graph for a whole training step, whose `program` can be "
    "printed and read"
)
_STORAGE = "a tensor's memory is x.untyped_storage(); make tensors with flow.empty(n, dtype=...)"
_INFERENCE = (
    "tensors that were made in flow.inference_mode() are as others are; ask "
    "flow.is_grad_enabled() and x.requires_grad"
)

NAMES: Mapping[str, str] = {
    "mtia": _DEVICES,
    **dict.fromkeys(
        """dsmm hspmm hsmm saddmm smm sparse_bsc_tensor sparse_bsr_tensor sparse_compressed_tensor
        sparse_csc_tensor sparse_csr_tensor sspaddmm
        """.split(),
        _DENSE,
    ),
    **dict.fromkeys(
        """ao dequantize qint32 qint8 quantization quantize_per_channel quantize_per_tensor
        quantize_per_tensor_dynamic quint8
        """.split(),
        _QUANTIZED,
    ),
    "export": _COMPILED,
    **dict.fromkeys(
        """BFloat16Storage BoolStorage ByteStorage CharStorage DoubleStorage FloatStorage
        HalfStorage IntStorage LongStorage ShortStorage Storage TypedStorage UntypedStorage storage
        """.split(),
        _STORAGE,
    ),
    **dict.fromkeys("is_inference is_inference_mode_enabled".split(), _INFERENCE),
    **dict.fromkeys("Event Stream".split(), "use flow.cuda.Event and flow.cuda.Stream"),
    "TensorBuffer": _BUFFERS,
    "asyncs": "use threading.Thread: modes are each thread's own, and kernels run asynchronously",
    "cond": "use `if`, which a captured program does once, or flow.where(condition, x, y)",
    "cpu": 'use flow.autocast("cpu"), and device="cpu"',
    "distributed_partial_fc_sample": (
        "take rows of the weight by flow.randperm(classes)[:count], with those of the labels first"
    ),
    "functional": "its functions are names of onefold itself, such as flow.einsum",
    "gen_tensor_buffer": _BUFFERS,
    "lobpcg": "use flow.linalg.eigh(A), which gives all eigenvalues",
    "masked": "use flow.where(mask, x, y) or x.masked_fill(~mask, value) before a reduction",
    "matrix_rank": "torch has removed it; use flow.linalg.matrix_rank(A)",
    "mock_torch": (
        "write `import onefold as torch` where a program says `import torch`; torch's functions "
        "take tensors of Onefold, too"
    ),
    "nested": (
        "pad rows of several lengths with flow.nn.utils.rnn.pad_sequence, or pack them for "
        "flow.nn.functional.attention_varlen"
    ),
    "nms": _BOXES,
    "package": "save the weights with flow.save(model.state_dict(), path)",
    "roi_align": _BOXES,
    "segment_reduce": "use flow.scatter_reduce with the segment's number of each row",
    "tensor_buffer": _BUFFERS,
    "tensor_buffer_to_list_of_tensors": _BUFFERS,
    "tensor_buffer_to_tensor": _BUFFERS,
    "tensor_to_tensor_buffer": _BUFFERS,
    "while_loop": "use `while` in eager mode; a captured program has a fixed number of steps",
}

# Of `flow.jit`.
JIT: Mapping[str, str] = {
    **dict.fromkeys(
        """CompilationUnit RecursiveScriptModule ScriptFunction TopLevelTracedModule TracedModule
        trace trace_module
        """.split(),
        _COMPILED,
    ),
    **dict.fromkeys(
        "freeze load optimize_for_inference save".split(),
        "save a state_dict with flow.save, load it into the module, and call flow.compile(module)",
    ),
    **dict.fromkeys("fork wait".split(), "call the function; kernels run asynchronously"),
    **dict.fromkeys(
        """enable_onednn_fusion fuser onednn_fusion_enabled set_fusion_strategy
        strict_fusion
        """.split(),
        "flow.compile fuses what it can; leave it out",
    ),
}

# Of `flow.fx`.
FX: Mapping[str, str] = dict.fromkeys(
    """CodeGen Graph GraphModule Interpreter Node Proxy Tracer Transformer graph graph_module
    map_arg node proxy replace_pattern subgraph_rewriter symbolic_trace
    """.split(),
    _COMPILED,
)

# Of `flow.library`.
LIBRARY: Mapping[str, str] = {
    **dict.fromkeys(
        """Library define fallthrough_kernel get_kernel impl impl_abstract infer_schema
        register_autocast register_torch_dispatch register_vmap triton_op wrap_triton
        """.split(),
        "write the op as a function with types, and decorate it with flow.library.custom_op",
    ),
    "get_ctx": "give results of register_fake the size of an input; no shape depends on values",
    "opcheck": "use flow.autograd.gradcheck and onefold.testing.assert_sbp_equivalent",
}

# Of `flow.onnx`.
ONNX: Mapping[str, str] = dict.fromkeys(
    """ExportableModule ONNXProgram export operators ops register_custom_op_symbolic
    symbolic_helper symbolic_opset9 unregister_custom_op_symbolic utils
    """.split(),
    "load what flow.save(state_dict, path, format='torch') writes into torch's module, and export "
    "that",
)

_CAPTURED = (
    "a program is captured as its Python code runs, and captured again where shapes or settings "
    "differ; leave it out"
)

# Of `flow.compiler`.
COMPILER: Mapping[str, str] = {
    "config": "programs are captured without settings of their own; leave it out",
    "list_backends": 'flow.compile has one back end; mode="reduce-overhead" makes CUDA graphs',
    "set_stance": "call the function that was given to flow.compile to run it in eager mode",
    "substitute_in_graph": _CAPTURED,
}

_CUDA_GRAPHS = (
    "call config.enable_cuda_graph() in an nn.Graph, or flow.compile(f, mode='reduce-overhead')"
)
_ALLOCATOR = "memory is that of torch's allocator; call torch.cuda for its settings"

# Of `flow.cuda`.
CUDA: Mapping[str, str] = {
    **dict.fromkeys(
        "CUDAGraph graph graph_pool_handle graphs make_graphed_callables".split(), _CUDA_GRAPHS
    ),
    **dict.fromkeys(
        """CUDAPluggableAllocator MemPool change_current_allocator memory memory_snapshot
        use_mem_pool
        """.split(),
        _ALLOCATOR,
    ),
    "default_generators": "flow.default_generator serves every device",
    "nccl": "call functions of flow.comm",
    "random": "call the functions of flow.random, whose state is that of every device",
    "sparse": _DENSE,
}

_MODES = (
    "functions of Onefold do not ask for modes; use flow.profiler.profile() to see the ops of a "
    "program, and flow.device or placement= for where tensors are made"
)

# Of `flow.overrides`.
OVERRIDES: Mapping[str, str] = {
    **dict.fromkeys(
        "BaseTorchFunctionMode TorchFunctionMode enable_reentrant_dispatch".split(), _MODES
    ),
    **dict.fromkeys(
        """get_default_nowrap_functions get_ignored_functions get_overridable_functions
        get_testing_overrides is_tensor_method_or_property resolve_name
        """.split(),
        "functions of Onefold are not overridden; torch.overrides lists those of torch",
    ),
}

# Of `flow.utils`.
UTILS: Mapping[str, str] = {
    "collect_env": "run `python -m torch.utils.collect_env`",
    "cpp_extension": (
        "build functions of torch with torch.utils.cpp_extension, and make ops of them with the "
        "decorator flow.utils.custom_op.torch_function"
    ),
    "mobile_optimizer": _COMPILED,
}
