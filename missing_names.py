"""Names of OneFlow that are not here, each with what to use in its place."""

from __future__ import annotations

from collections.abc import Mapping

_BOXES = (
    "call that of torchvision.ops on x.to_torch(), and flow.from_torch on what it gives: how many "
    "boxes are left depends on the values"
)
_BUFFERS = "a list of tensors holds tensors of several shapes"

NAMES: Mapping[str, str] = {
    "TensorBuffer": _BUFFERS,
    "asyncs": "use threading.Thread: modes are each thread's own, and kernels run asynchronously",
    "distributed_partial_fc_sample": (
        "take rows of the weight by flow.randperm(classes)[:count], with those of the labels first"
    ),
    "gen_tensor_buffer": _BUFFERS,
    "mock_torch": (
        "write `import onefold as torch` where a program says `import torch`; torch's functions "
        "take tensors of Onefold, too"
    ),
    "nms": _BOXES,
    "roi_align": _BOXES,
    "tensor_buffer": _BUFFERS,
    "tensor_buffer_to_list_of_tensors": _BUFFERS,
    "tensor_buffer_to_tensor": _BUFFERS,
    "tensor_to_tensor_buffer": _BUFFERS,
}
