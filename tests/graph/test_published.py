"""Published times of training steps, and of one layer, as the simulator predicts them."""

import json
import sys
from statistics import mean

import pytest
from source_tree import REPO

sys.path.insert(0, str(REPO / "benchmarks"))

import published


@pytest.mark.parametrize("name", published.LAYERS)
def test_a_layer_takes_about_as_long_as_was_published(name):
    job, trains, milliseconds = published.LAYERS[name]
    assert 1e3 * published.layer_seconds(job, trains) == pytest.approx(milliseconds, rel=0.08)


QUICK = {
    name: (job, seconds)
    for model in ("22B", "175B")
    for name, job, seconds in published.jobs_of(model)
}


@pytest.mark.parametrize("name", QUICK)
def test_a_step_takes_about_as_long_as_was_published(name):
    job, seconds = QUICK[name]
    assert published.step_of(job)[0] == pytest.approx(seconds, rel=0.08)


# Steps of tables to which nothing was fitted, and the largest error.
OUTSIDE = {
    ("weak scaling", "18.4B"): 0.05,
    ("mpt", "13B, 2048 tokens, 8 ranks"): 0.05,
    ("gpt-3, h100", "128 ranks"): 0.08,
}


@pytest.mark.parametrize(("key", "name"), OUTSIDE)
def test_a_step_of_another_table_takes_about_as_long_as_was_published(key, name):
    table = published.TABLES[key]
    job, seconds = table.rows[name]
    predicted, _ = published.step_of(job, table.machine, table.kind)
    assert predicted == pytest.approx(seconds, rel=OUTSIDE[key, name])


def test_steps_follow_from_published_rates():
    """With 1008B parameters, 3,072 samples take about 8 flop for each parameter and token."""
    job, seconds = published.TABLES["weak scaling"].rows["1008B"]
    assert (job.ranks, job.samples, job.micro_batches) == (3072, 3072, 512)
    assert seconds == pytest.approx(8 * 1008e9 * 3072 * 2048 / (3072 * 163e12), rel=0.02)
    job, seconds = published.TABLES["llama, h100"].rows["16384 ranks"]
    assert (job.ranks, job.samples * job.length) == (16384, 2**24)
    assert seconds == pytest.approx(6 * 405e9 * 2**24 / (16384 * 400e12), rel=0.1)


def test_all_tables_were_saved():
    saved = json.loads((REPO / "benchmarks/results/published.json").read_text())["results"]
    for key, table in published.TABLES.items():
        for name, (_, seconds) in table.rows.items():
            assert saved[key][name]["published"] == pytest.approx(seconds)
    page = (REPO / "docs/planning.md").read_text()
    for key in published.TABLES:
        errors = [row["error"] for row in saved[key].values()]
        assert f"{100 * mean(map(abs, errors)):.1f}% | {100 * max(errors, key=abs):+.1f}% |" in page


def test_what_was_saved_is_near_all_that_was_published():
    saved = json.loads((REPO / "benchmarks/results/published.json").read_text())["results"]
    for rows, middle in ((saved["steps"], 0.05), (saved["zero bubble"], 0.08)):
        errors = [abs(row["predicted"] / row["published"] - 1) for row in rows.values()]
        assert mean(errors) <= middle
        assert max(errors) <= middle + 0.05
    assert set(QUICK) < saved["steps"].keys()
