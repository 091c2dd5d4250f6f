"""Process groups of some ranks, whatever groups their members were in before."""

import torch
from launched import run_ranks

from onefold.distributed import collectives
from onefold.distributed.world import world


def test_groups_meet_however_many_groups_their_members_made_before():
    def program():
        rank = world().rank
        world().ensure((0, 1, 2, 3))
        sums = []
        for group in ((0, 1), (1, 3), (0, 3), (1, 2, 3)):
            if rank in group:
                sums.append(collectives.all_reduce(torch.ones(2), group, "sum").tolist())
        return sums

    two, three = [2.0, 2.0], [3.0, 3.0]
    assert run_ranks(4, program, timeout=40) == [
        [two, two],
        [two, two, three],
        [three],
        [two, two, three],
    ]
