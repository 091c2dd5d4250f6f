"""Strategies: applied, printed, saved and loaded, they train as one device does."""

import copy
import json
from dataclasses import replace

import numpy as np
import pytest
from launched import run_ranks
from strategy_training import TABLE, adamw, from_code, layouts, on_one_device, trained
from transformer_models import GPTBlock, LanguageModel, loss_of

import onefold as flow
from onefold import nn
from onefold.auto import Strategy, load
from onefold.errors import OnefoldTypeError, OnefoldValueError

pytestmark = pytest.mark.filterwarnings("ignore::onefold.PipelineWarning")

BY_NAME = (
    ("embed_tokens.weight", "S1"),
    ("*.c_attn.weight", "S0"),
    ("*.c_fc.*", "S0"),
    ("*.c_proj.weight", "S1"),
    ("lm_head.*", "S0"),
    ("*", "replicate"),
)
UNITS = ("embed_tokens", "blocks.0", "blocks.1", "norm", "lm_head")
TWO = (UNITS[:2], UNITS[2:])
FOUR = (UNITS[:1], UNITS[1:2], UNITS[2:3], UNITS[3:])
ALL = {"inputs": (0, 0), "device": "cpu"}
ENDS = {"inputs": (0, 1), "device": "cpu"}

STRATEGIES = {
    "one rank": Strategy(1, **ALL),
    "data": Strategy(4, data=4, **ALL),
    "tensor": Strategy(4, tensor=4, table=TABLE, **ALL),
    "sequence": Strategy(2, tensor=2, table=TABLE, sequence_dim=1, **ALL),
    "layouts searched": Strategy(
        4, data=2, tensor=2, table=BY_NAME, layout_search=True, zero=1, **ALL
    ),
    "layouts searched, ZeRO 3": Strategy(
        4, data=2, tensor=2, table=BY_NAME, layout_search=True, zero=3, micro_batches=2, **ALL
    ),
    "layouts of stages searched": Strategy(
        4,
        tensor=2,
        table=BY_NAME,
        layout_search=True,
        parts=TWO,
        micro_batches=4,
        schedule="1f1b",
        **ENDS,
    ),
    "offloaded": Strategy(2, data=2, offloaded=UNITS[1:2], recomputed=UNITS[2:3], **ALL),
    "recomputed in part": Strategy(
        2,
        tensor=2,
        table=TABLE,
        sequence_dim=1,
        recomputed=UNITS[1:3],
        saved=(("c_attn.linear", "ln_2.*"), ()),
        offloaded=UNITS[1:2],
        **ALL,
    ),
    "ZeRO 1": Strategy(4, data=4, zero=1, **ALL),
    "ZeRO 3": Strategy(4, data=4, zero=3, micro_batches=2, **ALL),
    "a mesh, ZeRO 2": Strategy(
        4, data=2, tensor=2, table=TABLE, sequence_dim=1, zero=2, micro_batches=2, **ALL
    ),
    "one stage": Strategy(
        2, data=2, parts=(UNITS,), micro_batches=2, schedule="1f1b", recomputed=UNITS[1:3], **ALL
    ),
    "1f1b": Strategy(2, parts=TWO, micro_batches=4, schedule="1f1b", **ENDS),
    "interleaved": Strategy(
        2, parts=FOUR, micro_batches=4, schedule="interleaved", inputs=(0, 3), device="cpu"
    ),
    "zb-v": Strategy(2, parts=FOUR, micro_batches=4, schedule="zb-v", inputs=(0, 3), device="cpu"),
    "all": Strategy(
        8,
        data=2,
        tensor=2,
        table=TABLE,
        sequence_dim=1,
        parts=TWO,
        micro_batches=4,
        schedule="zb-h1",
        recomputed=("blocks.1",),
        **ENDS,
    ),
}


def language_model(block):
    """A local model, and a batch of tokens and targets."""
    flow.manual_seed(3)
    model = LanguageModel(block).double()
    return model, (flow.randint(0, 10, (8, 6)), flow.randint(0, 10, (8, 6)))


@pytest.mark.parametrize("name", STRATEGIES)
def test_losses_are_those_of_one_device(name, world):
    strategy = STRATEGIES[name]
    model, batch = language_model(GPTBlock)
    wanted = on_one_device(copy.deepcopy(model), batch, loss_of)
    again = copy.deepcopy(model)
    assert strategy.apply(model) is model
    losses = trained(strategy.graph(model, loss_of, adamw(model)), strategy.place(*batch))
    np.testing.assert_allclose(losses, wanted, rtol=1e-8)
    assert from_code(strategy, again, batch, loss_of) == (losses, layouts(model))


TIED = [name for name, strategy in STRATEGIES.items() if strategy.meshes > 1 or strategy.zero == 3]


def tied_model(head_first=False):
    """A model whose first and last module share a weight, and a batch."""
    model, batch = language_model(GPTBlock)
    tied = nn.Module()
    modules = dict(model.named_children())
    if head_first:
        modules = dict(reversed(modules.items()))
    for name, module in modules.items():
        setattr(tied, name, module)
    tied.lm_head.weight = tied.embed_tokens.weight
    tied.forward = lambda tokens: LanguageModel.forward(tied, tokens)
    return tied, batch


@pytest.mark.parametrize("name", TIED)
def test_stages_share_parameters(name, world):
    strategy = STRATEGIES[name]
    if strategy.layout_search:  # the table lays the two names of the weight out differently
        strategy = replace(strategy, table=TABLE)
    model, batch = tied_model()
    wanted = on_one_device(model, batch, loss_of)
    model, again = tied_model()[0], tied_model()[0]
    strategy.apply(model)
    assert model.lm_head.weight is model.embed_tokens.weight
    graph = strategy.graph(model, loss_of, adamw(model))
    losses = trained(graph, strategy.place(*batch))
    np.testing.assert_allclose(losses, wanted, rtol=1e-8)
    assert model.lm_head.weight is model.embed_tokens.weight
    assert from_code(strategy, again, batch, loss_of) == (losses, layouts(model))


def test_the_first_name_of_a_parameter_says_where_it_is(world):
    strategy = STRATEGIES["1f1b"]
    wanted = on_one_device(*tied_model(), loss_of)
    model, batch = tied_model(head_first=True)
    strategy.apply(model)
    assert model.embed_tokens.weight.placement.flat_ranks == (1,)
    graph = strategy.graph(model, loss_of, adamw(model))
    np.testing.assert_allclose(trained(graph, strategy.place(*batch)), wanted, rtol=1e-8)


def test_a_copy_of_a_shared_parameter_is_sent_once_in_a_step():
    """Not once for each micro-batch; and its gradient comes back once."""
    sent = []
    for micro_batches in (2, 4):
        strategy = replace(STRATEGIES["1f1b"], micro_batches=micro_batches)
        with flow.planning(2):
            model, batch = tied_model()
            strategy.apply(model)
            graph = strategy.graph(model, loss_of, adamw(model))
            graph._compile(*strategy.place(*batch))
            nbytes = model.lm_head.weight.nbytes
            activations = 8 * 6 * 8 * model.norm.weight.numel()  # those of the whole batch
            sent.append([row.sent for row in graph.summary().groups])
            assert sent[-1] == [nbytes + activations] * 2
    assert sent[0] == sent[1]


def test_the_code_is_what_a_person_would_write():
    assert str(STRATEGIES["all"]) == EXPECTED


def test_the_code_of_offloading():
    lines = str(STRATEGIES["offloaded"]).splitlines()
    at = lines.index('    for name in ["blocks.0"]:')
    assert lines[at + 2] == "        module.to(nn.graph.GraphModule).activation_offloading = True"


def test_the_code_of_activations_that_are_saved():
    strategy = STRATEGIES["recomputed in part"]
    assert strategy.summary.endswith("1 recomputed, 1 recomputed in part, 1 offloaded")
    assert SAVED in str(strategy)


SAVED = """\
    for name in ["blocks.0"]:
        module = model.get_submodule(name)
        module.to(nn.graph.GraphModule).activation_checkpointing = True
        module.to(nn.graph.GraphModule).saved_activations = [
            "c_attn.linear",
            "ln_2.*",
        ]
    for name in ["blocks.1"]:
        module = model.get_submodule(name)
        module.to(nn.graph.GraphModule).activation_checkpointing = True
    for name in ["blocks.0"]:
        module = model.get_submodule(name)
        module.to(nn.graph.GraphModule).activation_offloading = True
"""


def test_the_code_of_layouts_that_were_searched():
    code = str(STRATEGIES["layouts searched"])
    assert "from onefold.parallel import REPLICATE, Style, tensor_parallel\n" in code
    assert (
        'S1 = Style("S1", *[flow.sbp.split(1)] * 2)\nTABLE = {\n    "embed_tokens.weight": S1,'
        in code
    )
    assert "        self.config.enable_auto_parallel(axis=1)\n" in code


EXPECTED = '''\
"""Layouts: pipeline 2 x data 2 x tensor 2, zb-h1 of 2 stages, sequence split, 4 micro-batches, 1
recomputed."""

import numpy as np

import onefold as flow
from onefold import nn
from onefold.parallel import COLUMN, REPLICATE, ROW, VOCAB, tensor_parallel

WHOLE = (flow.sbp.broadcast, flow.sbp.broadcast)
BATCH = (flow.sbp.split(0), flow.sbp.broadcast)
MESHES = np.arange(8).reshape(2, 2, 2)
STAGES = [flow.placement("cpu", mesh) for mesh in MESHES]
MODULES = [  # of each stage
    ["embed_tokens", "blocks.0"],
    ["blocks.1", "norm", "lm_head"],
]
TABLE = {
    "*norm*": REPLICATE,
    "*ln_*": REPLICATE,
    "embed_tokens.*": VOCAB,
    "*c_attn.*": COLUMN,
    "*c_fc.*": COLUMN,
    "*c_proj.*": ROW,
    "lm_head.*": COLUMN,
}


def placement_of(name, tensor):
    """Where a parameter or buffer lies: on the stage of its module, or the first."""
    for stage, names in enumerate(MODULES):
        if any(name.startswith(f"{module}.") for module in names):
            return STAGES[stage]
    return STAGES[0]


def lay_out(model):
    """Lay the model out over the ranks, in place."""
    model.to_global(placement_of, WHOLE)
    for stage, names in enumerate(MODULES):
        for name in names:
            module = model.get_submodule(name)
            module.to(nn.graph.GraphModule).set_stage(stage, STAGES[stage])
    tensor_parallel(model, plan=TABLE, sequence_dim=1)
    for name in ["blocks.1"]:
        module = model.get_submodule(name)
        module.to(nn.graph.GraphModule).activation_checkpointing = True
    return model


def place(x0, x1):
    """The tensors of a whole batch as the step takes them."""
    return (
        x0.to_global(STAGES[0], WHOLE).to_global(sbp=BATCH),
        x1.to_global(STAGES[-1], WHOLE).to_global(sbp=BATCH),
    )


class Train(nn.Graph):
    def __init__(self, model, loss, optimizer):
        super().__init__()
        self.model, self.loss = model, loss
        self.add_optimizer(optimizer)
        self.config.set_gradient_accumulation_steps(4)
        self.config.set_schedule("zb-h1")

    def build(self, *batch):
        loss = self.loss(self.model, *batch)
        loss.backward()
        return loss
'''


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_file_has_the_same_strategy(name, tmp_path):
    STRATEGIES[name].save(tmp_path / "plan.json")
    assert load(tmp_path / "plan.json") == STRATEGIES[name]


def test_a_file_from_before_there_were_all_fields(tmp_path):
    path = tmp_path / "plan.json"
    STRATEGIES["all"].save(path)
    content = json.loads(path.read_text())
    del content["layout_search"], content["offloaded"], content["saved"]
    path.write_text(json.dumps(content))
    assert load(path) == STRATEGIES["all"]


def launched_losses(strategy):
    model, batch = language_model(GPTBlock)
    strategy.apply(model)
    return trained(strategy.graph(model, loss_of, adamw(model)), strategy.place(*batch), steps=2)


def test_processes_train_alike():
    strategy = STRATEGIES["1f1b"]
    model, batch = language_model(GPTBlock)
    wanted = on_one_device(model, batch, loss_of, steps=2)
    for losses in run_ranks(2, launched_losses, strategy, timeout=120):
        np.testing.assert_allclose(losses, wanted, rtol=1e-8)


def test_a_model_without_data_is_laid_out_and_then_filled(world):
    model = nn.Sequential(nn.Linear(4, 8, device="meta"), nn.Linear(8, 4, device="meta"))
    strategy = Strategy(
        4, data=2, parts=(("0",), ("1",)), schedule="1f1b", inputs=(0,), device="cpu"
    )
    strategy.apply(model)
    assert all(p.is_meta for p in model.parameters())
    assert [layer.weight.placement.flat_ranks for layer in model] == [(0, 1), (2, 3)]
    for layer in model:
        layer.reset_parameters()
    assert not any(p.is_meta for p in model.parameters())


def filled_losses(strategy):
    """The losses of a model that each process made without data, laid out and then filled."""
    wanted, batch = language_model(GPTBlock)
    with flow.device("meta"):
        model = LanguageModel(GPTBlock).double()
    strategy.apply(model)
    assert all(x.is_meta for param in model.parameters() for x in param.shards)
    values = {name: value.to_torch() for name, value in wanted.state_dict().items()}
    flow.checkpoint.load_weights(model, values)
    return trained(strategy.graph(model, loss_of, adamw(model)), strategy.place(*batch), steps=2)


def test_processes_lay_a_model_without_data_out_and_fill_it():
    strategy = STRATEGIES["1f1b"]
    model, batch = language_model(GPTBlock)
    wanted = on_one_device(model, batch, loss_of, steps=2)
    for losses in run_ranks(2, filled_losses, strategy, timeout=120):
        np.testing.assert_allclose(losses, wanted, rtol=1e-8)


def test_another_model_is_refused_and_unchanged(world):
    strategy = STRATEGIES["all"]
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    with pytest.raises(OnefoldValueError, match=r"the modules embed_tokens, .* it has 0, 1"):
        strategy.apply(model)
    assert all(p.is_local for p in model.parameters())
    with pytest.raises(OnefoldTypeError, match=r"nn\.Module, but got int"):
        strategy.apply(3)
    with pytest.raises(OnefoldValueError, match=r"no rule of the plan matches 0\.weight"):
        STRATEGIES["tensor"].apply(model)
    assert all(p.is_local for p in model.parameters())
    with pytest.raises(OnefoldValueError, match="a batch of 2 tensors, but got 1"):
        strategy.place(flow.ones(8))


def test_files_that_are_no_strategies(tmp_path):
    path = tmp_path / "plan.json"
    with pytest.raises(OnefoldValueError, match="cannot be read"):
        load(path)
    path.write_text("{")
    with pytest.raises(OnefoldValueError, match="cannot be read"):
        load(path)
    path.write_text('{"size": 4, "speed": 2}')
    with pytest.raises(OnefoldValueError, match=r"is not a strategy: .*amp, data, .*speed"):
        load(path)
    path.write_text("[]")
    with pytest.raises(OnefoldValueError, match="is not a strategy"):
        load(path)
