"""The data of a report equals what the graph itself says; its page holds it, whatever is in it."""

import json
import re
from dataclasses import replace

import numpy as np
import pipelines
import pytest
from report_rows import Row
from small_graphs import Predict, SquareMean

import onefold as flow
from onefold import nn
from onefold.distributed.world import seen_from, virtual_world
from onefold.errors import OnefoldRuntimeError, OnefoldTypeError, OnefoldValueError
from onefold.graph.hardware import hardware_files, read
from onefold.graph.report import gather, page

B, S0, S1 = flow.sbp.broadcast, flow.sbp.split(0), flow.sbp.split(1)


def pipeline(schedule="1f1b", micro_batches=4, offloaded=()):
    spec = pipelines.Spec(((0, 1), (2, 3)), (0, 1), offloaded=offloaded)
    model = pipelines.Model(spec, staged=True)
    graph = pipelines.Train(model, micro_batches, schedule)
    graph._compile(*pipelines.data(model, 4 * micro_batches))
    return graph


def single():
    p = flow.placement("cpu", [0, 1])
    model = nn.Sequential(*(nn.Linear(8, 8, placement=p, sbp=B) for _ in range(3)))
    graph = SquareMean(model, flow.optim.AdamW(model.parameters()))
    graph._compile(flow.randn(6, 8, placement=p, sbp=S0))
    return graph


GRAPHS = {
    "stages": pipeline,
    "stages that offload": lambda: pipeline(offloaded=(0, 1)),
    "two stages on a rank": lambda: pipeline_back("zb-v"),
    "no stages": single,
}


def pipeline_back(schedule):
    spec = pipelines.Spec(((0,), (1,), (1,), (0,)), (0, 0, 0, 0))
    model = pipelines.Model(spec, staged=True)
    graph = pipelines.Train(model, 4, schedule)
    graph._compile(*pipelines.data(model, 16))
    return graph


def data_of(path):
    """The tree in a page; records are dicts again."""
    text = path.read_text(encoding="utf-8")
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    return records(json.loads(found))


def records(node):
    if isinstance(node, list):
        return [records(each) for each in node]
    if not isinstance(node, dict):
        return node
    if node.keys() == {"keys", "rows"}:
        return [dict(zip(node["keys"], map(records, row), strict=True)) for row in node["rows"]]
    return {key: records(value) for key, value in node.items()}


@pytest.mark.parametrize("name", GRAPHS)
def test_totals_and_groups_are_those_of_the_simulation(world, name, tmp_path):
    graph = GRAPHS[name]()
    graph.report(tmp_path / "plan.html", "h100", tokens=96)
    data = data_of(tmp_path / "plan.html")
    wanted, summary = graph.simulate("h100", tokens=96), graph.summary()
    totals = data["totals"]
    for key in ("step_time", "tokens_per_second", "mfu", "bubble", "ranks"):
        assert totals[key] == getattr(wanted, key)
    assert totals["received"] == sum(wanted.received.values())
    reserved = [group.reserved for group in wanted.groups]
    peaks = [summary.group(group.ranks[0]).peak for group in wanted.groups]
    assert totals["memory"] == max(map(sum, zip(peaks, reserved, strict=True)))
    assert totals["parameters"] == sum(p.numel() for p in graph.model.parameters())
    assert len(data["groups"]) == len(wanted.groups) == totals["different"]
    for group, times in zip(data["groups"], wanted.groups, strict=True):
        assert group["count"] == len(times.ranks)
        assert (group["compute"], group["waiting"]) == (times.compute, times.waiting)
        assert group["memory"] == summary.group(times.ranks[0]).peak + times.reserved
    total = sum(row["total"] for row in data["traffic"])
    assert total == totals["received"]


@pytest.mark.parametrize("name", GRAPHS)
def test_events_are_those_of_the_simulation(world, name, tmp_path):
    graph = GRAPHS[name]()
    graph.report(tmp_path / "plan.html", "a100-80")
    timeline = data_of(tmp_path / "plan.html")["timeline"]
    line = graph.simulate("a100-80", memory=False).timeline
    found = []
    for track in timeline["tracks"]:
        now = 0
        for at in range(0, len(track["events"]), 4):
            number, wait, duration, micro_batch = track["events"][at : at + 4]
            label = timeline["labels"][number]
            assert wait >= 0 and duration >= 0
            place = track["group"], track["stream"]
            name = label["name"] + (str(micro_batch) if micro_batch >= 0 else "")
            found.append((*place, name, now + wait, now + wait + duration))
            now += wait + duration
    wanted = [
        (task.rank, task.stream, task.name, round(1e9 * start), round(1e9 * end))
        for task, start, end in zip(line.tasks, line.starts, line.ends, strict=True)
        if task.name[0] not in "RP"  # which begin copies and wait for them, and take no time
    ]
    assert sorted(found) == sorted(wanted)
    assert timeline["span"] == line.makespan


def reported(graph, folder):
    """What a page shows, and of each group the shown memory, its plan and what the device takes."""
    graph.report(folder / "plan.html", "h100")
    data = data_of(folder / "plan.html")
    groups = graph.simulate("h100", memory=False).groups
    plans = [(graph.memory(group.ranks[0]), group.reserved) for group in groups]
    return data, [(shown, *plan) for shown, plan in zip(data["memory"], plans, strict=True)]


@pytest.mark.parametrize("name", GRAPHS)
def test_memory_adds_up_to_the_planned_peak(world, name, tmp_path):
    data, planned = reported(GRAPHS[name](), tmp_path)
    for memory, plan, reserved in planned:
        curves = np.array(list(memory["series"].values()))
        constant = sum(memory["constant"].values())
        wanted = plan.persistent + plan.inputs + reserved
        assert memory["peak"] == wanted + plan.lower_bound
        assert constant == wanted
        assert constant + curves.sum(0).max() == memory["peak"]
        times = memory["times"]
        assert times == sorted(times)
        assert (
            times[curves.sum(0).argmax()] == memory["peak_at"] <= 1e9 * data["totals"]["step_time"]
        )
        named = sum(each["nbytes"] for each in memory["live"])
        assert named + sum(nbytes for _, nbytes in memory["others"].values()) == memory["peak"]
        for kind, curve in memory["series"].items():
            at_peak = sum(each["nbytes"] for each in memory["live"] if each["kind"] == kind)
            assert curve[times.index(memory["peak_at"])] == at_peak


def test_memory_moves_with_the_actions(world, tmp_path):
    """What a forward keeps is there from its event on."""
    graph = pipeline("gpipe")
    graph.report(tmp_path / "plan.html", "h100")
    data = data_of(tmp_path / "plan.html")
    tasks = graph.simulate("h100", memory=False).timeline
    for number, memory in enumerate(data["memory"]):
        kept = np.array(memory["series"]["activations"])
        times = np.array(memory["times"])
        ends = [
            1e9 * end
            for task, end in zip(tasks.tasks, tasks.ends, strict=True)
            if task.rank == number and task.name.startswith("F")
        ]
        levels = [kept[times <= end][-1] for end in ends]
        assert levels == sorted(levels) and levels[0] < levels[-1]
        assert kept[-1] < levels[-1]


@pytest.mark.parametrize("name", GRAPHS)
def test_a_rank_of_a_launched_job_writes_the_same_times(name, tmp_path):
    pages = []
    for world in (virtual_world(), seen_from(1, 4)):
        with world:
            data, planned = reported(GRAPHS[name](), tmp_path)
            for memory, plan, reserved in planned:
                wanted = plan.persistent + plan.inputs + plan.lower_bound
                assert memory["peak"] == wanted + reserved
                assert memory["times"] == sorted(memory["times"])
            pages.append(data)
    here, there = pages
    for key in ("timeline", "traffic", "parameters", "machine"):
        assert here[key] == there[key]


def test_tensors_at_the_peak_have_their_names(world, tmp_path):
    graph = single()
    graph.report(tmp_path / "plan.html", "h100")
    (memory,) = data_of(tmp_path / "plan.html")["memory"]
    kinds = {each["name"]: each["kind"] for each in memory["live"]}
    assert kinds["model.0.weight"] == "parameters"
    assert kinds["model.0.weight-exp_avg"] == "optimizer states"
    assert kinds["gradient of model.0.weight"] == "gradients"
    assert kinds["input.0"] == "inputs"
    forms = {each["name"]: each["form"] for each in memory["live"]}
    assert forms["input.0"] == "float32[3, 8]"  # on one of two ranks


def test_parameters_have_their_layouts(world, tmp_path):
    p = flow.placement("cpu", [[0, 1], [2, 3]])
    model = nn.Sequential(nn.Linear(8, 6, placement=p, sbp=(B, S0)), nn.BatchNorm1d(6))
    model[1].to_global(placement=p, sbp=(B, B))
    model[0].bias.requires_grad_(False)
    weights = [t for t in model.parameters() if t.requires_grad]
    graph = SquareMean(model, flow.optim.AdamW(weights))
    graph._compile(flow.randn(4, 8, placement=p, sbp=(S0, B)))
    graph.report(tmp_path / "plan.html")
    rows = {row["name"]: row for row in data_of(tmp_path / "plan.html")["parameters"]}
    weight = rows["model.0.weight"]
    assert (weight["shape"], weight["sbp"], weight["dtype"]) == ([6, 8], "(B, S0)", "float32")
    assert weight["placement"] == "cpu 0-3 (2 x 2)"
    assert weight["nbytes"] == 4 * 3 * 8
    assert weight["state"] == 2 * weight["nbytes"]
    assert rows["model.0.bias"]["kind"] == rows["model.1.running_mean"]["kind"] == "buffers"
    assert rows["model.0.bias"]["state"] == 0


def test_the_hardware_is_shown_as_its_file_says(world, tmp_path):
    single().report(tmp_path / "plan.html", "h200")
    machine, wanted = data_of(tmp_path / "plan.html")["machine"], read("h200")
    assert machine["memory_bytes"] == wanted.memory_bytes
    assert machine["peak"]["bfloat16"] == wanted.flops(flow.bfloat16)
    assert [link["bandwidth"] for link in machine["links"]] == [x.bandwidth for x in wanted.links]
    assert machine["links"][-1]["ranks"] is None
    assert machine["curves"]["matmul"] == [list(point) for point in wanted.matmul.points]


HOSTILE = "</script><script>alert(1)</script>\"'&{{data}}<!--\u2028 é"


def test_texts_are_escaped(world, tmp_path):
    rows = [Row(HOSTILE, 1.0, 2, HOSTILE)]
    graph = single()
    graph.report(tmp_path / "plan.html", "h100", searched=rows)
    text = (tmp_path / "plan.html").read_text(encoding="utf-8")
    assert text.count("<script") == text.count("</script>") == 2
    data = data_of(tmp_path / "plan.html")
    assert data["searched"] == [
        {"name": HOSTILE, "seconds": 1.0, "memory": 2, "description": HOSTILE}
    ]
    report = gather("x", graph._latest("test"))
    titled = page(replace(report, title=HOSTILE))
    assert titled.count("<script") == titled.count("</script>") == 2
    assert '<h1 id="title">&lt;/script&gt;' in titled


def test_the_page_names_no_other_address(world, tmp_path):
    single().report(tmp_path / "plan.html")
    text = (tmp_path / "plan.html").read_text(encoding="utf-8")
    assert set(re.findall(r"https?://[^\"' ]+", text)) <= {"http://www.w3.org/2000/svg"}
    assert not re.search(r"(?:src|href)=\"(?!#|data:)", text)
    assert "default-src 'none'" in text


# Without hardware.


def test_without_hardware_there_is_the_schedule(world, tmp_path, monkeypatch):
    monkeypatch.setattr(hardware_files.Path, "home", lambda: tmp_path)
    graph = pipeline()
    graph.report(tmp_path / "plan.html")
    data = data_of(tmp_path / "plan.html")
    assert data["totals"]["step_time"] is data["machine"] is None
    assert data["timeline"]["unit"] == ""
    labels = data["timeline"]["labels"]
    drawn = [labels[track["events"][0]]["name"] for track in data["timeline"]["tracks"]]
    assert drawn == ["F0.", "F1."]
    summary = graph.summary()
    assert [group["memory"] for group in data["groups"]] == [g.peak for g in summary.groups]
    assert [group["received"] for group in data["groups"]] == [g.received for g in summary.groups]
    graph = single()
    graph.report(tmp_path / "plan.html")
    data = data_of(tmp_path / "plan.html")
    assert data["timeline"] is None
    (memory,) = data["memory"]
    assert memory["peak_at"] % 10**9 == 0  # steps take the place of seconds


def test_this_machine_is_taken_where_it_was_measured(world, tmp_path, monkeypatch):
    monkeypatch.setattr(hardware_files.Path, "home", lambda: tmp_path)
    file = hardware_files.this_machine()
    file.parent.mkdir(parents=True)
    file.write_text((hardware_files.FOLDER / "h100.toml").read_text().replace("DGX H100", "here"))
    with flow.planning(size=2):
        graph = single()
        graph.report(tmp_path / "plan.html")
    assert data_of(tmp_path / "plan.html")["machine"] is None
    graph.report(tmp_path / "plan.html")  # planned for a cluster that is not this machine
    assert data_of(tmp_path / "plan.html")["machine"] is None
    with flow.planning(size=2, hardware="h200"):
        single().report(tmp_path / "plan.html")
    assert data_of(tmp_path / "plan.html")["machine"]["name"] == read("h200").name
    single().report(tmp_path / "plan.html")
    data = data_of(tmp_path / "plan.html")
    assert data["machine"]["name"] == "here"
    assert data["totals"]["step_time"] == single().simulate("h100").step_time


# Size.


def test_the_page_does_not_grow_with_equal_ranks(tmp_path):
    sizes = []
    for data in (8, 128):
        with flow.planning(size=2 * data * 4) as cluster:
            stages = cluster.meshes(data, 4)
            model = nn.Sequential(
                *(nn.Linear(64, 64, placement=where, sbp=(B, S0)) for where in stages)
            )
            for number, where in enumerate(stages):
                model[number].to(nn.graph.GraphModule).set_stage(number, where)
            graph = SquareMean(model, flow.optim.AdamW(model.parameters()))
            graph.config.set_gradient_accumulation_steps(8)
            graph(flow.randn(8 * data, 64, placement=stages[0], sbp=(S0, B)))
            graph.report(tmp_path / "plan.html", "h100")
        sizes.append((tmp_path / "plan.html").stat().st_size)
    assert sizes[1] < 1.05 * sizes[0]


# Bad calls.


def test_a_graph_that_is_not_compiled_is_an_error(world, tmp_path):
    graph = Predict(nn.Linear(2, 2))
    with pytest.raises(OnefoldRuntimeError, match=r"report: nothing is compiled yet"):
        graph.report(tmp_path / "plan.html")
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_cannot_be_written_is_an_error(world, tmp_path):
    graph = single()
    with pytest.raises(OnefoldValueError, match=r"cannot be written: it is a folder"):
        graph.report(tmp_path)
    with pytest.raises(OnefoldValueError, match=r"there is no folder .*missing"):
        graph.report(tmp_path / "missing" / "plan.html")
    with pytest.raises(OnefoldValueError, match=r"cannot be written: .*[Nn]ame too long"):
        graph.report(tmp_path / ("x" * 300))
    with pytest.raises(OnefoldTypeError, match=r"a path, but got int"):
        graph.report(3)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"hardware": "h1000"}, OnefoldValueError, "unknown hardware 'h1000'; choose one of"),
        ({"hardware": "h100", "tokens": 0}, OnefoldValueError, "tokens must be at least 1"),
        (
            {"hardware": "h100", "searched": [{"name": "x"}]},
            OnefoldTypeError,
            "row 0 of searched is a dict without name, seconds, memory, description",
        ),
    ],
)
def test_bad_arguments_write_nothing(world, tmp_path, arguments, error, said):
    graph = single()
    with pytest.raises(error, match=said):
        graph.report(tmp_path / "plan.html", **arguments)
    assert list(tmp_path.iterdir()) == []


def test_tokens_need_hardware(world, tmp_path, monkeypatch):
    monkeypatch.setattr(hardware_files.Path, "home", lambda: tmp_path)
    with pytest.raises(OnefoldValueError, match="tokens are counted per second, which needs"):
        single().report(tmp_path / "plan.html", tokens=8)
