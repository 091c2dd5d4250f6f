"""How ranks agree on a call: whatever changes on any of them, they launch the same graphs."""

from dataclasses import dataclass, field

from hypothesis import given, strategies as st

from onefold.graph.cuda_graphs.rank_modes import Mode, Progress, pack, unpack

PARTS = 2  # CUDA graphs of a call that communicate
EVENTS = ["moves", "is watched", "fails", "raises", "raises late"]


@dataclass
class Rank:
    """A rank of which only the captures are there: `graphs` are the calls that captured them."""

    number: int
    progress: Progress = field(default_factory=Progress)
    graphs: list = field(default_factory=list)
    launched: list = field(default_factory=list)  # in this call

    def propose(self, event):
        if event == "moves":
            self.progress.restart()
            self.graphs = []
        most = Mode.AS_EVER if event == "is watched" else Mode.REPLAY
        return self.progress.propose(most)


def agree(proposals):
    rows = [pack(mode, rank, 5) for rank, mode in enumerate(proposals)]
    return unpack([min(column) for column in zip(*rows, strict=True)])


def call(ranks, number, events):
    """One call on all ranks, part by part; what each launched for each part."""
    event = [events.get(rank.number) for rank in ranks]
    proposed = [rank.propose(each) for rank, each in zip(ranks, event, strict=True)]
    agreed = agree(proposed).mode
    assert agreed == min(proposed)
    for rank in ranks:
        rank.launched = []
        if rank.progress.begin(agreed):
            rank.graphs = []
    if "raises" in event:  # an error of a step is raised on every rank, which lose their graphs
        for rank in ranks:
            rank.progress.restart()
            rank.graphs = []
        return
    mode = agreed
    for part in range(PARTS):
        if mode is Mode.CAPTURE:
            mode = min(mode, agree([Mode.NEVER if e == "fails" else mode for e in event]).mode)
            for rank in ranks:
                rank.progress.begin(mode)
                if mode is Mode.CAPTURE:
                    rank.graphs.append((number, part))
        for rank in ranks:
            replays = mode in (Mode.CAPTURE, Mode.REPLAY)
            rank.launched.append(rank.graphs[part] if replays else "one by one")
    for rank, each in zip(ranks, event, strict=True):
        if each != "raises late":  # on this rank alone, when all has been launched
            rank.progress.finish(agreed)


@given(
    st.integers(1, 4),
    st.lists(st.dictionaries(st.integers(0, 3), st.sampled_from(EVENTS)), max_size=12),
)
def test_ranks_launch_the_same_graphs(count, history):
    ranks = [Rank(number) for number in range(count)]
    for number, events in enumerate(history):
        call(ranks, number, {rank: event for rank, event in events.items() if rank < count})
        assert all(rank.launched == ranks[0].launched for rank in ranks)
        assert len({rank.progress.over for rank in ranks}) == 1  # who is over does not ask
    for number in range(len(history), len(history) + 5):
        call(ranks, number, {})
        assert all(rank.launched == ranks[0].launched for rank in ranks)
    over = ranks[0].progress.over
    assert all((part == "one by one") == over for part in ranks[0].launched)


def test_the_first_rank_that_proposed_the_least_is_named():
    verdict = agree([Mode.REPLAY, Mode.WARM_UP, Mode.AS_EVER, Mode.AS_EVER])
    assert verdict == (Mode.AS_EVER, 2, True)


def test_ranks_that_plan_another_order_never_capture():
    rows = pack(Mode.REPLAY, 0, 5), pack(Mode.REPLAY, 1, 6)
    assert unpack([min(column) for column in zip(*rows, strict=True)])[::2] == (Mode.NEVER, False)


def test_an_undisturbed_rank():
    progress, found = Progress(), []
    for _ in range(5):
        found.append(progress.propose())
        progress.finish(found[-1])
    assert found == [Mode.AS_EVER, Mode.WARM_UP, Mode.CAPTURE, Mode.REPLAY, Mode.REPLAY]
