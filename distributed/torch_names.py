"""The names of torch.distributed: where those that are offered stand, and what the others become.

What is offered works on tensors, and so stands above this package.
"""

from __future__ import annotations

from collections.abc import Mapping

OFFERED: Mapping[str, str] = {
    **dict.fromkeys(
        """Backend DistBackendError DistError DistNetworkError DistStoreError GroupMember
        ProcessGroup ReduceOp default_pg_timeout destroy_process_group get_backend
        get_default_backend_for_device get_global_rank get_group_rank get_node_local_rank
        get_process_group_ranks get_rank get_world_size group
        init_process_group is_available is_backend_available is_gloo_available
        is_initialized is_mpi_available is_nccl_available is_torchelastic_launched
        monitored_barrier new_group new_subgroups new_subgroups_by_enumeration
        """.split(),
        "comm.process_groups",
    ),
    **dict.fromkeys(
        """Work all_gather all_gather_into_tensor all_gather_single all_reduce all_to_all
        all_to_all_single barrier broadcast gather reduce reduce_scatter
        reduce_scatter_single reduce_scatter_tensor scatter
        """.split(),
        "comm.group_collectives",
    ),
    **dict.fromkeys(
        """P2POp all_gather_object batch_isend_irecv broadcast_object_list gather_object irecv isend
        recv scatter_object_list send
        """.split(),
        "comm.group_messages",
    ),
    **dict.fromkeys(("DeviceMesh", "init_device_mesh"), "parallel.device_mesh"),
    "GradBucket": "nn.parallel.grad_bucket",
}

# Modules that stand elsewhere; import_paths.py leads there.
MODULES = (
    "_functional_collectives",
    "algorithms",
    "checkpoint",
    "constants",
    "device_mesh",
    "distributed_c10d",
    "fsdp",
    "nn",
    "optim",
    "pipelining",
    "tensor",
)

_GUIDE = "; docs/from_fsdp.md shows the same program"
MISSING: Mapping[str, str] = {
    "_shard": "call flow.distributed.fsdp.fully_shard(model)" + _GUIDE,
    **dict.fromkeys(
        "FileStore HashStore PrefixStore Store TCPStore".split(),
        ("ranks meet by themselves; use torch.distributed's own for other keys"),
    ),
    "autograd": "global tensors communicate by to_global, which has gradients",
    "rpc": "every rank runs the same program; send values with dist.send or broadcast_object_list",
    "run": "start programs with torchrun or `python -m onefold.distributed.launch`",
}

# The same below flow.distributed.algorithms.
MISSING_OF_ALGORITHMS: Mapping[str, str] = {
    "model_averaging": "gradients are averaged at every step; leave it out",
}

# The same below flow.distributed.algorithms.ddp_comm_hooks.
MISSING_OF_HOOKS: Mapping[str, str] = dict.fromkeys(
    """DDPCommHookType ddp_zero_hook mixed_precision_hooks optimizer_overlap_hooks
    post_localSGD_hook powerSGD_hook quantization quantization_hooks register_ddp_comm_hook
    """.split(),
    "give model.register_comm_hook a function such as default_hooks.bf16_compress_hook",
)

# The same below flow.distributed.tensor.
MISSING_OF_TENSORS: Mapping[str, str] = {
    "_random": "call flow.manual_seed(seed): random numbers do not depend on the layout",
    "debug": "count collectives with flow.profiler.comm()",
    "experimental": "write ops of global tensors, which infer their layouts",
}
