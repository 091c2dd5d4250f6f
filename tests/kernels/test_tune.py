"""The tuner, with a timer that is told how fast each configuration is."""

import importlib
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from triton.runtime.errors import OutOfResources

from onefold.errors import OnefoldValueError
from onefold.kernels.gpu.launch import configs, registry
from onefold.kernels.gpu.launch.configs import Tuned
from onefold.kernels.tune import config_pruning, gpu_timer
from onefold.kernels.tune.config_search import WRONG, form_of, search
from onefold.kernels.tune.saved_rows import Rows

command = importlib.import_module("onefold.kernels.tune.__main__")
BF16 = torch.bfloat16
NO_ROOM = str(OutOfResources(300000, 232448, "shared memory"))
RULE, WIDE, HUGE, WRONG_CONFIG = ({"BLOCK": n, "warps": 4} for n in (64, 128, 4096, 13))


class Fake:
    """A kernel that adds one, and the timer of its configurations."""

    def __init__(self, seconds, allowed):
        self.seconds, self.timed = seconds, []
        shapes = {"small": (8,)}
        self.tuned = Tuned("fake", (BF16,), shapes, lambda *_: allowed, self.call, lambda *_: [])

    def call(self, config, dtype, sizes):
        def run():
            self.now = config["BLOCK"]
            if self.now == 4096:
                raise OutOfResources(300000, 232448, "shared memory")
            return torch.ones(sizes, dtype=dtype) + (self.now != 13)

        return run

    def timer(self, run):
        run()
        self.timed.append(self.now)
        return self.seconds[self.now]

    def session(self, tmp_path, **changes):
        """A run of the tuner on this kernel alone."""
        rows = Rows(tmp_path / "rows.jsonl", "a GPU")
        made = command.Session("sm_90", tmp_path / "configs.json", rows, self.timer)
        return replace(made, **changes)

    @property
    def entries(self):
        return [(self.tuned, BF16, "small")]


def test_the_fastest_that_runs_is_found():
    fake = Fake({64: 2.0, 128: 1.0}, [RULE, HUGE, WIDE])
    found = search(fake.tuned, BF16, "small", fake.timer)
    assert (found.config, found.seconds, found.rule_seconds) == (WIDE, 1.0, 2.0)
    assert found.tried == [(RULE, 2.0), (HUGE, NO_ROOM), (WIDE, 1.0)]


@pytest.mark.parametrize("seconds", [1.99, 2.0, 3.0])
def test_the_rule_stays_where_little_is_gained(seconds):
    fake = Fake({64: 2.0, 128: seconds}, [RULE, WIDE])
    assert search(fake.tuned, BF16, "small", fake.timer).config == RULE


def test_a_wrong_kernel_is_not_the_fastest(tmp_path):
    fake = Fake({64: 2.0, 13: 0.1, 128: 1.0}, [RULE, WRONG_CONFIG, WIDE])
    found = search(fake.tuned, BF16, "small", fake.timer)
    assert found.config == WIDE
    assert (WRONG_CONFIG, WRONG) in found.tried
    session = fake.session(tmp_path)
    command.configs.write(session.table, {})
    command.tune(session, fake.entries)
    assert session.faults == [f"fake bfloat16 small sm_90: {WRONG}: {WRONG_CONFIG}"]


def test_table_is_rewritten_and_read(tmp_path, monkeypatch, capsys):
    path = tmp_path / "configs.json"
    again = tmp_path / "again"
    other = {"other float32 small sm_90": {"BLOCK": 1}}
    configs.write(path, other)
    fake = Fake({64: 2.0, 128: 1.0}, [RULE, WIDE, HUGE])
    command.tune(fake.session(tmp_path), fake.entries)
    name = "fake bfloat16 small sm_90"
    assert configs.read(path) == {name: WIDE, **other}
    assert "2.00 x the rule: BLOCK 128, warps 4" in capsys.readouterr().out

    monkeypatch.setattr(configs, "_table", lambda: configs.read(path))
    assert configs.config("fake", BF16, "small", RULE, arch="sm_90") == WIDE
    assert configs.config("fake", BF16, "small", RULE, arch="sm_80") == RULE
    assert configs.config("fake", BF16, "large", RULE, arch="sm_90") == RULE
    with pytest.raises(OnefoldValueError, match=r"kernels\.tune fake"):
        configs.config("fake", BF16, "small", {"warps": 4}, arch="sm_90")

    fake.seconds = {64: 0.5, 128: 1.0}  # the rule became better: its entry goes
    command.tune(fake.session(again, table=path), fake.entries)
    assert configs.read(path) == other


def test_a_new_table_is_made(tmp_path):
    fake = Fake({64: 2.0, 128: 1.0}, [RULE, WIDE])
    path = tmp_path / "new.json"
    command.tune(fake.session(tmp_path, table=path), fake.entries)
    assert configs.read(path) == {"fake bfloat16 small sm_90": WIDE}


def test_a_file_that_is_no_table_costs_no_measurement(tmp_path):
    fake = Fake({64: 2.0, 128: 1.0}, [RULE, WIDE])
    path = tmp_path / "notes.txt"
    path.write_text("no table")
    with pytest.raises(OnefoldValueError, match="not a table of configurations"):
        command.tune(fake.session(tmp_path, table=path), fake.entries)
    assert (fake.timed, path.read_text()) == ([], "no table")


def test_a_run_that_ended_early_goes_on(tmp_path):
    fake = Fake({64: 2.0, 128: 1.0}, [RULE, HUGE, WIDE])
    configs.write(tmp_path / "configs.json", {})
    session = fake.session(tmp_path)
    session.expired = lambda: len(fake.timed) > 0
    command._tune_entry(session, fake.entries[0])
    assert (session.left, fake.timed) == (1, [64])
    assert configs.read(session.table) == {}
    with session.rows.path.open("a") as file:
        file.write('{"entry": "cut o')  # in the middle of a row

    command.tune(fake.session(tmp_path, ends=0.0), fake.entries)
    assert fake.timed == [64]
    session = fake.session(tmp_path)
    command.tune(session, fake.entries)
    assert (session.left, fake.timed) == (0, [64, 128])
    assert configs.read(session.table) == {"fake bfloat16 small sm_90": WIDE}

    command.tune(fake.session(tmp_path), fake.entries)
    assert fake.timed == [64, 128]  # all is known
    other = Rows(session.rows.path, "another GPU")
    assert not other.known


def test_a_rule_that_does_not_run_is_a_fault_and_others_are_tuned(tmp_path, capsys):
    broken, fake = Fake({}, [HUGE, WIDE]), Fake({64: 2.0, 128: 1.0}, [RULE, WIDE])
    configs.write(tmp_path / "configs.json", {})
    session = fake.session(tmp_path)
    command.tune(session, [*broken.entries, *fake.entries])
    assert session.faults == [f"fake bfloat16 small sm_90: {NO_ROOM}"]
    assert configs.read(session.table) == {"fake bfloat16 small sm_90": WIDE}


@pytest.mark.slow
def test_configurations_are_compiled_in_parallel_and_those_without_hope_left_out(tmp_path):
    """A tile of float32 products that needs too many registers, and one that does not."""
    tuned = registry.all_tuned()["softmax"]
    shape_class = next(iter(tuned.shapes))
    good, bad = {"kept": 1, "block": 1024, "warps": 4}, {"kept": 16, "block": 1024, "warps": 1}
    tasks = config_pruning.tasks_of(tuned, BF16, shape_class, [good, bad], "sm_90")
    found = {}
    config_pruning.compile_all(tasks, 2, found.__setitem__)
    assert found[tasks[0]] == ""
    assert "spills" in found[tasks[1]]

    fake = Fake({}, [good, bad])
    session = fake.session(tmp_path, processes=1)
    two = replace(tuned, allowed=lambda *_: [good, bad])
    command._compile(session, [(two, BF16, shape_class)])
    known = session.rows.known[session.name((tuned, BF16, shape_class))]
    assert list(known) == [form_of(bad)]


def test_what_is_tuned_is_chosen_by_family_dtype_and_shape():
    def names(*words, dtypes=(), shapes=()):
        return {
            (tuned.kernel, str(dtype), shape)
            for tuned, dtype, shape in command.chosen(words, dtypes, shapes)
        }

    everything = names()
    attention = names("attention")
    assert {kernel for kernel, _, _ in attention} == {
        "attention_forward", "attention_queries", "attention_keys"
    }  # fmt: skip
    assert attention < everything
    half = names("attention", dtypes=["bfloat16"], shapes=["8192x8192"])
    assert half < attention
    assert {dtype for _, dtype, _ in half} == {"torch.bfloat16"}
    assert all("8192x8192" in shape for _, _, shape in half)
    with pytest.raises(OnefoldValueError, match="is called nothing; there are"):
        names("matmul", "nothing")


def test_the_list_of_what_is_tuned(capsys):
    assert (
        command.main(["matmul", "--dtype", "float32", "--shape", "1024x1024x1024", "--list"]) == 0
    )
    assert capsys.readouterr().out.startswith("matmul ieee 1024x1024x1024: ")


class Clock:
    """Stands for torch.cuda: a host and a GPU, each of which has a time."""

    def __init__(self, host, work):
        self.host, self.work = host, work  # seconds of the host and of the GPU for a call
        self.now = self.busy = 0.0

    def _sleep(self, cycles):
        self.busy = max(self.busy, self.now) + cycles / 2e9

    def call(self):
        self.now += self.host
        self.busy = max(self.busy, self.now) + self.work

    def Event(self, enable_timing):  # noqa: N802 - torch's name
        return Event(self)


class Event:
    def __init__(self, clock):
        self.clock = clock

    def record(self):
        self.at = self.clock.busy = max(self.clock.busy, self.clock.now)

    def query(self):
        return self.clock.now >= self.at

    def synchronize(self):
        self.clock.now = self.at

    def elapsed_time(self, end):
        return (end.at - self.at) * 1e3


@pytest.mark.parametrize("host", [1e-5, 1.5e-4, 1e-3, 9e-3])
def test_the_time_of_the_host_is_not_measured(host, monkeypatch):
    clock = Clock(host, 5e-6)
    monkeypatch.setattr(gpu_timer.torch, "cuda", clock)
    assert gpu_timer.once(clock.call) == pytest.approx(5e-6)


def test_a_host_that_is_much_too_slow_ends_the_waiting(monkeypatch):
    clock = Clock(1.0, 5e-6)
    monkeypatch.setattr(gpu_timer.torch, "cuda", clock)
    assert gpu_timer.once(clock.call) > 0.9


def test_committed_table_is_of_kernels_that_are_tuned():
    known = registry.all_tuned()
    for entry in configs.read(configs.PATH):
        kernel, name, shape_class, _ = entry.split()
        tuned = known[kernel]
        assert name in {tuned.name(dtype).removeprefix("torch.") for dtype in tuned.dtypes}
        assert shape_class in tuned.shapes


def test_allowed_configurations_are_of_one_form():
    for tuned in registry.all_tuned().values():
        for dtype in tuned.dtypes:
            for sizes in tuned.shapes.values():
                rule, *others = tuned.allowed(dtype, sizes)
                assert len(others) > 1
                assert all(set(config) == set(rule) and config != rule for config in others)


def test_a_file_that_is_no_table_is_refused(tmp_path):
    path = tmp_path / "configs.json"
    for text in ("", "[]", '{"a": 1}', '{"a": {"BLOCK": "x"}}'):
        path.write_text(text)
        with pytest.raises(OnefoldValueError, match="not a table of configurations"):
            configs.read(path)


@pytest.mark.skipif(torch.cuda.is_available(), reason="here it would tune")
def test_without_a_gpu_the_command_says_so():
    done = subprocess.run(
        [sys.executable, "-m", "onefold.kernels.tune"],
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "kernels are tuned on a GPU" in done.stderr
    assert "Traceback" not in done.stderr
