"""The README's speed table says what the committed results say."""

import runpy

from source_tree import REPO

TABLES = runpy.run_path(str(REPO / "benchmarks" / "tables.py"))


def test_the_readme_shows_the_committed_results():
    readme = (REPO / "README.md").read_text()
    assert "\n".join(TABLES["dispatch_rows"]()) in readme
    assert "\n".join(TABLES["graph_rows"]()) in readme
    assert "\n".join(TABLES["parallel_rows"]()) in readme
    assert "\n".join(TABLES["model_rows"]()) in readme
    assert "\n".join(TABLES["recurrent_rows"]()) in readme
    shortest, longest = TABLES["first_call_range"]()
    assert f"takes {shortest} to {longest} microseconds" in readme


def test_pages_show_the_committed_results():
    pages = {"kernels": "host_rows", "job_functions": "job_rows", "divergence": "divergence_rows"}
    for page, rows in pages.items():
        assert "\n".join(TABLES[rows]()) in (REPO / "docs" / f"{page}.md").read_text()


def test_a_committed_call_of_a_job_takes_little_more_than_its_graph():
    assert max(row["job/graph"] for row in TABLES["load"]("job_call")) <= 1.1


def test_every_committed_loss_is_that_of_one_rank():
    runs = TABLES["load"]("mnist_losses")["runs"]
    assert {run["strategy"] for run in runs} == {"dp", "mp", "pp", "mixed"}
    assert len({run["world"] for run in runs}) >= 5
    assert max(run["apart"] for run in runs) < 1e-4
    assert min(run["accuracy"] for run in runs) >= 0.96


def test_committed_parallel_steps_are_as_fast_as_others():
    limits = {"megatron": 1.05, "megatron, fused": 1.05}
    for ways in TABLES["load"]("parallel_step").values():
        for way, found in ways.items():
            if way != "size":
                assert found["apart"] < 1e-4
                for name, ratio in found["onefold / peer"].items():
                    if "fused" not in name and "onefold" not in name:
                        assert ratio <= limits.get(name, 1.0), (way, name)


def test_committed_models_learn_as_torchs_do():
    rows = TABLES["load"]("models")
    assert {row["model"] for row in rows} == {"GPT", "ResNet-18", "graph network"}
    assert max(row["apart"] for row in rows) < 1e-3


def test_committed_recurrent_layers_take_little_more_than_torchs():
    rows = TABLES["load"]("recurrent_layers")
    assert sum(row["layer"] == "LSTM" for row in rows) >= 5
    assert max(row["onefold/torch"] for row in rows) <= 1.3


def test_committed_memory_plans_are_tight_and_true():
    worst, apart = TABLES["memory_ratios"]()
    assert worst <= 1.02
    assert apart == 1.0
