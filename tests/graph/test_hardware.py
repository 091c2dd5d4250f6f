"""Hardware files: each field is needed and checked; collectives cost what their formulas say."""

import json
import tomllib
from dataclasses import replace
from math import inf

import pytest
import torch
from hypothesis import given, strategies as st

import onefold as flow
from onefold.errors import OnefoldRuntimeError, OnefoldValueError
from onefold.graph.hardware import SHIPPED, THIS_MACHINE, Curve, Hardware, Link, read
from onefold.graph.hardware.collective_cost import (
    all_gather,
    all_reduce,
    all_to_all,
    message,
    reduce_scatter,
    span,
)
from onefold.graph.hardware.hardware_files import FOLDER
from onefold.graph.hardware.hardware_record import Protocol
from onefold.graph.hardware.hardware_text import as_toml

FULL = Curve(((1.0, 1.0),))


def content_of(name):
    return tomllib.loads((FOLDER / f"{name}.toml").read_text())


def written(path, content):
    """A TOML file of tables of one level, and lists of tables."""

    def rows(table):
        return [f"{json.dumps(key)} = {json.dumps(value)}" for key, value in table.items()]

    tables = {key: value for key, value in content.items() if isinstance(value, dict)}
    links = content.get("links", [])
    nested = {"links"} if links and isinstance(links, list) and isinstance(links[0], dict) else ()
    lines = rows({k: v for k, v in content.items() if k not in tables and k not in nested})
    for key, table in tables.items():
        lines += [f"[{key}]", *rows(table)]
    for link in links if nested else ():
        lines += ["[[links]]", *rows(link)]
    path.write_text("\n".join(lines))
    return path


def fields(content):
    """Every field of a file, as a path of keys; not those that may be left out."""
    for key, value in content.items():
        yield (key,)
        if isinstance(value, dict):
            yield from ((key, inner) for inner in value if key != "peak" or inner == "float32")
    for index, link in enumerate(content["links"]):
        yield from (("links", index, inner) for inner in link)


def named(path):
    name = path[0] if len(path) == 1 or isinstance(path[1], str) else f"{path[0]}[{path[1]}]"
    return name if len(path) == 1 else f"{name}.{path[-1]}"


def holder(content, path):
    for key in path[:-1]:
        content = content[key]
    return content


OPTIONAL = ("host", "bytes"), ("links", 0, "protocols"), ("links", 1, "protocols")
PATHS = [path for path in fields(content_of("h100")) if path not in OPTIONAL]


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_files(name):
    found = read(name)
    assert read(found) is found
    assert found.flops(torch.int64) == found.peak[torch.float32]
    assert found.links[-1].ranks == inf
    assert found.name in str(found)
    assert found.links[0].bandwidth > found.links[1].bandwidth


def test_the_machines_that_are_shipped():
    assert SHIPPED == ("a100-80", "h100", "h200")


@pytest.mark.parametrize("name", SHIPPED)
def test_the_text_of_a_record_gives_it_again(name, tmp_path):
    path = tmp_path / "copy.toml"
    path.write_text(as_toml(read(name), "two\nlines"))
    assert read(path) == read(name)


def test_a_file_need_not_say_how_much_memory_the_host_has(tmp_path):
    path = tmp_path / "copy.toml"
    text = as_toml(replace(read("h100"), host_bytes=None))
    assert "bytes" not in text.partition("[host]")[2].partition("[")[0]
    path.write_text(text)
    assert read(path).host_bytes is None and read("h100").host_bytes == 250_000_000_000


@pytest.mark.parametrize("path", PATHS, ids=named)
def test_a_missing_field_is_the_error(path, tmp_path):
    content = content_of("h100")
    del holder(content, path)[path[-1]]
    file = written(tmp_path / "broken.toml", content)
    with pytest.raises(OnefoldValueError) as error:
        read(file)
    text = str(error.value)
    assert f"{file}: {named(path)} is missing; it must be" in text


@pytest.mark.parametrize("path", [*PATHS, *OPTIONAL], ids=named)
@pytest.mark.parametrize("value", ["", -1, [], [[1, 2, 3]], [[2.0, 0.5], [1.0, 0.5]]], ids=str)
def test_a_wrong_field_is_the_error(path, value, tmp_path):
    content = content_of("h100")
    holder(content, path)[path[-1]] = value
    file = written(tmp_path / "broken.toml", content)
    with pytest.raises(OnefoldValueError) as error:
        read(file)
    assert f"{file}: {named(path)} must be" in str(error.value)


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("speed",), 1, "speed is not a field; there are"),
        (("memory", "speed"), 1, "memory.speed is not a field; there are bandwidth, bytes"),
        (("links", 0, "speed"), 1, "links[0].speed is not a field"),
        (("links", 1, "ranks"), 64, "links[1].ranks must be no such field at the last level"),
        (("peak", "int33"), 1e9, "peak.int33 must be under the name of a dtype of torch"),
        (("links", 0, "algorithms"), ["star"], "a list of some of 'ring', 'tree'"),
        (("overlap", "contention"), 0.5, "a factor: a number >= 1, but is 0.5"),
        (("overlap", "skew"), -0.5, "a share: a number >= 0, but is -0.5"),
        (("launch", "collective"), True, "seconds: a number >= 0, but is True"),
        (("ops",), {"gelu": 0}, "ops.gelu must be a factor: a number > 0, but is 0"),
    ],
)
def test_other_faults(path, value, said, tmp_path):
    content = content_of("h100")
    holder(content, path)[path[-1]] = value
    with pytest.raises(OnefoldValueError) as error:
        read(written(tmp_path / "broken.toml", content))
    assert said in str(error.value)


def test_names_and_paths(tmp_path, monkeypatch):
    with pytest.raises(OnefoldValueError, match="unknown hardware 'b200'; choose one of 'a100-80'"):
        read("b200")
    with pytest.raises(OnefoldValueError, match=r"none\.toml cannot be read"):
        read(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("name = ")
    with pytest.raises(OnefoldValueError, match=r"bad\.toml cannot be read: Invalid value"):
        read(tmp_path / "bad.toml")
    with pytest.raises(OnefoldValueError, match=r"hardware must be a name, .* but got int"):
        read(3)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(OnefoldValueError, match=r"python -m onefold\.graph\.calibrate"):
        read(THIS_MACHINE)


def test_a_graph_asks_for_a_compiled_program_first():
    with pytest.raises(OnefoldRuntimeError, match="nothing is compiled yet"):
        flow.nn.Graph.trace(flow.relu).simulate("h100")


# Costs of collectives.


def machine(*links, **changes):
    """Hardware with links (ranks, latency, bandwidth, algorithms)."""
    made = tuple(
        Link(f"level {i}", ranks, 1e-6, latency, bandwidth, tuple(algorithms), FULL)
        for i, (ranks, latency, bandwidth, *algorithms) in enumerate(links)
    )
    usual = {
        "name": "test", "peak": {torch.float32: 1e12}, "memory_bytes": 1 << 40,
        "memory_bandwidth": 1e11, "launch": 0.0, "launches_ahead": False, "contention": 1.0,
        "matmul": FULL, "attention": FULL, "memory": FULL, "links": made,
    }  # fmt: skip
    return Hardware(**(usual | changes))


A, BW, T = 2e-6, 1e9, 3e6  # latency, bandwidth, bytes


@pytest.mark.parametrize("n", [2, 3, 8, 13])
def test_one_level(n):
    ring = span(machine((inf, A, BW, "ring")), range(n))
    tree = span(machine((inf, A, BW, "tree")), range(n))
    part = T * (n - 1) / n / BW
    assert all_gather(ring, T) == pytest.approx(1e-6 + (n - 1) * A + part)
    assert reduce_scatter(ring, T) == all_gather(ring, T)
    assert all_reduce(ring, T) == pytest.approx(1e-6 + 2 * (n - 1) * A + 2 * part)
    rounds = (n - 1).bit_length()
    assert all_reduce(tree, T) == pytest.approx(1e-6 + 2 * rounds * A + 2 * T / BW)
    assert all_to_all(ring, T) == pytest.approx(1e-6 + (n - 1) * A + part / n)
    both = span(machine((inf, A, BW, "ring", "tree")), range(n))
    assert all_reduce(both, T) == min(all_reduce(ring, T), all_reduce(tree, T))


def test_the_fastest_protocol_is_taken():
    """NCCL's simple protocol for much, LL128 for less: a bit less bandwidth, shorter rounds."""
    hardware = machine((inf, 14e-6, 5e10, "ring"))
    (link,) = hardware.links
    link = replace(link, launch=8.4e-6, protocols=(Protocol(14e-6, 4e-6, 0.92),))
    group, n = span(replace(hardware, links=(link,)), range(256)), 256
    for nbytes in (1e6, 1e11):
        part = nbytes * (n - 1) / n
        simple = 8.4e-6 + (n - 1) * 14e-6 + part / 5e10
        fast = 14e-6 + (n - 1) * 4e-6 + part / 4.6e10
        assert (fast < simple) is (nbytes == 1e6)
        assert all_gather(group, nbytes) == pytest.approx(min(simple, fast))


def test_one_rank_costs_nothing():
    alone = span(machine((inf, A, BW, "ring")), [5])
    assert all_reduce(alone, T) == all_gather(alone, T) == all_to_all(alone, T) == 0


def test_two_levels():
    g, nodes, near, far = 8, 4, 1e10, 1e9
    ways = {
        way: span(machine((g, A, near, way), (inf, 3 * A, far, way)), range(g * nodes))
        for way in ("ring", "tree", "hierarchical")
    }
    n = g * nodes
    rounds = 2 * ((n - nodes) * A + (nodes - 1) * 3 * A)
    narrow = min(near, g * far)
    assert all_reduce(ways["ring"], T) == pytest.approx(
        1e-6 + rounds + 2 * T * (n - 1) / n / narrow
    )
    assert all_reduce(ways["tree"], T) == pytest.approx(
        1e-6 + 2 * (3 * A + 2 * 3 * A) + 2 * T / narrow
    )
    inside = (g - 1) * A + T * (g - 1) / g / near
    between = (nodes - 1) * 3 * A + T / g * (nodes - 1) / nodes / far
    assert all_gather(ways["hierarchical"], T) == pytest.approx(1e-6 + inside + between)
    assert all_reduce(ways["hierarchical"], T) == pytest.approx(1e-6 + 2 * (inside + between))


def test_how_groups_lie():
    found = read("h100")
    assert found.fans(range(8)) == (8, 1)
    assert found.fans(range(32)) == (8, 4)
    assert found.fans(range(0, 32, 8)) == (1, 4)
    assert found.fans(range(0, 32, 4)) == (2, 4)
    assert found.level(0, 7).name == "NVLink"
    assert found.level(7, 8).name == "InfiniBand"
    three = machine((2, A, BW, "ring"), (8, A, BW, "ring"), (inf, A, BW, "ring"))
    assert three.fans(range(24)) == (2, 4, 3)


def test_a_message():
    link = machine((inf, A, BW, "ring")).links[0]
    assert message(link, T, 3) == pytest.approx(1e-6 + 3 * A + T / BW)


@given(
    st.integers(1, 40),
    st.floats(1, 1e9),
    st.lists(st.floats(1e6, 1e12), min_size=2, max_size=2),
    st.floats(1.0, 100.0),
)
def test_more_bandwidth_is_never_slower(ranks, nbytes, bandwidths, factor):
    ways = ("ring", "tree", "hierarchical")
    near, far = bandwidths
    slow = span(machine((8, A, near, *ways), (inf, A, far, *ways)), range(ranks))
    for faster in ((near * factor, far), (near, far * factor)):
        fast = span(machine((8, A, faster[0], *ways), (inf, A, faster[1], *ways)), range(ranks))
        for cost in (all_reduce, all_gather, all_to_all):
            assert cost(fast, nbytes) <= cost(slow, nbytes) * (1 + 1e-12)


@given(st.lists(st.tuples(st.floats(1, 1e12), st.floats(0.01, 1)), min_size=1, max_size=6))
def test_a_curve_is_between_its_points(points):
    sizes = sorted({size for size, _ in points})
    curve = Curve(tuple(zip(sizes, (share for _, share in points), strict=False)))
    shares = [share for _, share in curve.points]
    for size in (0.5, *sizes, 2e12, sizes[0] * 1.7):
        assert min(shares) - 1e-12 <= curve.at(size) <= max(shares) + 1e-12
    for size, share in curve.points:
        assert curve.at(size) == pytest.approx(share)


@given(st.sampled_from([*SHIPPED, "cpu"]), st.floats(10, 1e13), st.floats(1.001, 100))
def test_more_work_takes_longer(name, size, factor):
    found = read(name)
    curves = [found.matmul, found.attention, found.memory]
    for curve in (*curves, *(link.efficiency for link in found.links)):
        assert size / curve.at(size) < factor * size / curve.at(factor * size)
