"""Process groups under torch.distributed's names: starting, ending, and who is in a group.

A launched program needs none of these: the processes connect by themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from urllib.parse import urlsplit

import torch
from torch.distributed import (
    Backend,
    DistBackendError,
    DistError,
    DistNetworkError,
    DistStoreError,
    ReduceOp,
    default_pg_timeout,
    get_default_backend_for_device,
)

from ..distributed.topology import get_local_rank
from ..distributed.world import forget_world, world
from ..env import MASTER_ADDR, MASTER_PORT, RANK, STORE, TIMEOUT, WORLD_SIZE
from ..errors import OnefoldRuntimeError, OnefoldTypeError, OnefoldValueError
from . import local_collectives as collectives

__all__ = [
    "Backend",
    "DistBackendError",
    "DistError",
    "DistNetworkError",
    "DistStoreError",
    "GroupMember",
    "ProcessGroup",
    "ReduceOp",
    "default_pg_timeout",
    "destroy_process_group",
    "get_backend",
    "get_default_backend_for_device",
    "get_global_rank",
    "get_group_rank",
    "get_node_local_rank",
    "get_process_group_ranks",
    "get_rank",
    "get_world_size",
    "group",
    "init_process_group",
    "is_available",
    "is_backend_available",
    "is_gloo_available",
    "is_initialized",
    "is_mpi_available",
    "is_nccl_available",
    "is_torchelastic_launched",
    "monitored_barrier",
    "new_group",
]


class ProcessGroup:
    """Some ranks of the job. Functions take it as `group`; None is all ranks."""

    def __init__(self, ranks: Sequence[int] | None = None, name: str = "") -> None:
        self._ranks = None if ranks is None else tuple(ranks)
        self.group_name = name

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks, in the order of their numbers in the group."""
        return tuple(range(world().size)) if self._ranks is None else self._ranks

    def rank(self) -> int:
        """This process's number in the group; -1 if it is not in it."""
        me = world().rank or 0
        return self.ranks.index(me) if me in self.ranks else -1

    def size(self) -> int:
        """How many ranks there are."""
        return len(self.ranks)

    def name(self) -> str:
        """The back end's name."""
        return get_backend(self)

    def __repr__(self) -> str:
        return f"ProcessGroup(ranks={list(self.ranks)})"


class group:
    """Holds the group of all ranks, as in torch."""

    WORLD = ProcessGroup(name="default")


class GroupMember:
    """Holds the group of all ranks, and what torch gives to ranks outside of a new group."""

    WORLD = group.WORLD
    NON_GROUP_MEMBER = ProcessGroup((), "none")


class _State:
    """Whether the program asked for the processes, and for which back end."""

    def __init__(self) -> None:
        self.backend: str | None = None
        self.groups = 0


_state = _State()


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: timedelta | None = None,
    world_size: int = -1,
    rank: int = -1,
    store: object = None,
    group_name: str = "",
    pg_options: object = None,
    device_id: torch.device | int | None = None,
) -> None:
    """Connect to the other processes, which a launched program also does by itself.

    The ranks are those of the launcher. Processes that a program starts itself give `rank` and
    `world_size`, and an `init_method` of env://, tcp:// or file:// unless MASTER_ADDR and
    MASTER_PORT are set. What a device's tensors go through follows from the device: `backend` is
    only remembered. `timeout` counts unless ONEFOLD_TIMEOUT is set. Raises OnefoldValueError when
    called twice or for another rank than the launcher's, OnefoldTypeError for a `store`.
    """
    if _state.backend is not None:
        raise OnefoldValueError("trying to initialize the default process group twice!")
    if store is not None:
        raise OnefoldTypeError(
            "init_process_group takes no store; give init_method='tcp://host:port' or "
            "'file:///path', or set MASTER_ADDR and MASTER_PORT"
        )
    if timeout is not None and not TIMEOUT.is_set():
        TIMEOUT.write(timeout.total_seconds())
    _meet_by(init_method)
    if rank >= 0 and world_size > 0:
        _be(rank, world_size)
    world().ensure(tuple(range(world().size)))
    _state.backend = (backend or _default_backend()).lower()


def _meet_by(init_method: str | None) -> None:
    """Set where the processes meet."""
    url = urlsplit(init_method or "env://")
    if url.scheme == "file":
        STORE.write(url.path)
    elif url.scheme == "tcp":
        if not MASTER_PORT.is_set():
            MASTER_ADDR.write(url.hostname or MASTER_ADDR.default)
            MASTER_PORT.write(url.port or MASTER_PORT.default)
    elif url.scheme != "env":
        raise OnefoldValueError(
            f"init_method must begin with env://, tcp:// or file://, but is {init_method!r}"
        )


def _be(rank: int, world_size: int) -> None:
    """Make this process rank `rank` of so many, which a launcher may have done."""
    here = world()
    if (here.rank or 0, here.size) == (rank, world_size):
        return
    if here.launched or here.size > 1:
        raise OnefoldValueError(
            f"init_process_group: got rank {rank} of {world_size}, but this process is "
            f"{here!r}; leave rank and world_size out"
        )
    RANK.write(rank)
    WORLD_SIZE.write(world_size)
    forget_world()


def destroy_process_group(group: ProcessGroup | None = None) -> None:
    """End a group. Connections stay until the program ends, for global tensors."""
    if group is None or group is GroupMember.WORLD:
        if _state.backend is None:
            raise OnefoldValueError("Invalid process group specified: none was initialized")
        _state.backend = None


def is_available() -> bool:
    """True: processes can always be started."""
    return True


def is_initialized() -> bool:
    """Whether init_process_group was called, and destroy_process_group was not since."""
    return _state.backend is not None


def is_gloo_available() -> bool:
    """True."""
    return True


def is_nccl_available() -> bool:
    """Whether tensors of GPUs can travel without the hosts."""
    return torch.distributed.is_nccl_available()


def is_mpi_available() -> bool:
    """False."""
    return False


def is_backend_available(backend: str) -> bool:
    """Whether torch has the back end of this name, such as "gloo"."""
    return torch.distributed.is_backend_available(backend)


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """The number of this process on its machine; the fallback changes nothing."""
    return get_local_rank()


def is_torchelastic_launched() -> bool:
    """Whether a launcher started this process."""
    return world().launched


def _default_backend() -> str:
    return "nccl" if torch.cuda.is_available() else "gloo"


def get_backend(group: ProcessGroup | None = None) -> str:
    """The back end's name that was given to init_process_group."""
    return _state.backend or _default_backend()


def get_rank(group: ProcessGroup | None = None) -> int:
    """This process's number in the group, or -1; 0 in a program that is not launched."""
    return (group or GroupMember.WORLD).rank()


def get_world_size(group: ProcessGroup | None = None) -> int:
    """How many ranks the group has; -1 if this process is not in it."""
    found = group or GroupMember.WORLD
    return found.size() if found.rank() >= 0 else -1


def get_process_group_ranks(group: ProcessGroup | None) -> list[int]:
    """The ranks of the group, by their numbers in it."""
    return list((group or GroupMember.WORLD).ranks)


def get_global_rank(group: ProcessGroup, group_rank: int) -> int:
    """The rank that has this number in the group."""
    ranks = get_process_group_ranks(group)
    if not 0 <= group_rank < len(ranks):
        raise OnefoldValueError(f"group rank {group_rank} is not part of group {ranks}")
    return ranks[group_rank]


def get_group_rank(group: ProcessGroup, global_rank: int) -> int:
    """The number of a rank in the group."""
    ranks = get_process_group_ranks(group)
    if global_rank not in ranks:
        raise OnefoldValueError(f"Global rank {global_rank} is not part of group {ranks}")
    return ranks.index(global_rank)


def new_group(
    ranks: Sequence[int] | None = None,
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: object = None,
    use_local_synchronization: bool = False,
    group_desc: str | None = None,
    device_id: torch.device | None = None,
) -> ProcessGroup:
    """The group of these ranks, or of all; what is not in it gets `GroupMember.NON_GROUP_MEMBER`.

    Its ranks connect when they first communicate. The other arguments change nothing.
    """
    _state.groups += 1
    size = world().size
    given = sorted(range(size) if ranks is None else ranks)
    if len(set(given)) < len(given) or not set(given) <= {*range(size)}:
        raise OnefoldRuntimeError(
            f"new_group: ranks must be different ones of 0 to {size - 1}, but are {given}"
        )
    made = ProcessGroup(given, group_desc or str(_state.groups))
    return made if made.rank() >= 0 else GroupMember.NON_GROUP_MEMBER


def new_subgroups(
    group_size: int | None = None,
    group: ProcessGroup | None = None,
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: object = None,
    group_desc: str | None = None,
) -> tuple[ProcessGroup, list[ProcessGroup]]:
    """Groups of `group_size` neighboring ranks: that of this rank, and all of them.

    The size is the number of CUDA devices if it is not given. Raises OnefoldValueError where it
    does not divide the number of ranks of `group`.
    """
    ranks = get_process_group_ranks(group)
    size = torch.cuda.device_count() if group_size is None else group_size
    if size <= 0 or len(ranks) % size:
        raise OnefoldValueError(
            f"new_subgroups: group_size must be positive and divide the {len(ranks)} ranks, but "
            f"got {size}"
        )
    parts = [ranks[at : at + size] for at in range(0, len(ranks), size)]
    return new_subgroups_by_enumeration(parts, group_desc=group_desc)


def new_subgroups_by_enumeration(
    ranks_per_subgroup_list: Sequence[Sequence[int]],
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: object = None,
    group_desc: str | None = None,
) -> tuple[ProcessGroup, list[ProcessGroup]]:
    """Groups of these ranks, no rank in two: that of this rank, and all of them.

    The first is `GroupMember.NON_GROUP_MEMBER` on a rank that is in none.
    """
    named = [rank for ranks in ranks_per_subgroup_list for rank in ranks]
    if not named or len(set(named)) < len(named):
        raise OnefoldValueError(
            "new_subgroups_by_enumeration: each rank may be in one group only, but the groups are "
            f"{[list(ranks) for ranks in ranks_per_subgroup_list]}"
        )
    made = [new_group(ranks, group_desc=group_desc) for ranks in ranks_per_subgroup_list]
    own = [each for each in made if each is not GroupMember.NON_GROUP_MEMBER]
    return own[0] if own else GroupMember.NON_GROUP_MEMBER, made


def monitored_barrier(
    group: ProcessGroup | None = None,
    timeout: timedelta | None = None,
    wait_all_ranks: bool = False,
) -> None:
    """`barrier`: every wait names the ranks that did not come."""
    if get_rank(group) >= 0:
        collectives.barrier(get_process_group_ranks(group))
