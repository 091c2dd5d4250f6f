"""Published times of training steps on A100, and of one layer, as the simulator predicts them."""

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


def test_what_was_saved_is_near_all_that_was_published():
    saved = json.loads((REPO / "benchmarks/results/published.json").read_text())["results"]
    for rows, middle in ((saved["steps"], 0.05), (saved["zero bubble"], 0.08)):
        errors = [abs(row["predicted"] / row["published"] - 1) for row in rows.values()]
        assert mean(errors) <= middle
        assert max(errors) <= middle + 0.05
    assert set(QUICK) < saved["steps"].keys()
