"""The check of compiled kernels: facts read from assembly, the budget, and compilers that die."""

import importlib
from dataclasses import replace

import pytest
import torch
from triton_launches import all_kernels

from onefold.errors import OnefoldValueError
from onefold.kernels.aot import budget, compile_kernel, workers
from onefold.kernels.aot.facts import Facts, beyond, of_amd, of_nvidia
from onefold.kernels.gpu.launch import configs, registry
from onefold.kernels.gpu.matmul import gemm
from onefold.testing.gpu_driver import GpuDriver

command = importlib.import_module("onefold.kernels.aot.__main__")

PTX = """
.reqntid 384
    ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd1];
    @%p1 ld.global.L1::evict_last.L2::cache_hint.b16 { %rs1 }, [ %rd2 + 0 ], %rd3;
    cp.async.cg.shared.global [ %r9 + 0 ], [ %rd5 + 0 ], 0x10, %r10;
    st.global.v2.b32 [%rd4], {%r1, %r2};
    ld.shared.v4.b64 {%r1}, [%r2];
    wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {%f1}, %rd6, %rd7, p, 1, 1, 0, 1;
"""
REPORT = """
ptxas info    : Function properties for _dot
    8 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 168 registers, used 1 barriers, 8 bytes cumulative stack size
"""
AMD = """
    global_load_dwordx4 v[0:3], v4, s[0:1]
    buffer_load_ushort v5, v6, s[4:7], 0 offen
    buffer_store_dwordx2 v[0:1], v6, s[4:7], 0 offen
    v_mfma_f32_32x32x8_bf16_1k a[0:15], v[0:1], v[2:3], a[0:15]
    .sgpr_spill_count: 0
    .vgpr_count:     225
    .vgpr_spill_count: 3
"""
GOOD = Facts(64, 0, 1000, 128, 16, 8, 16, "wgmma", True)


def without_a_case(cases):
    """The kernels that are compiled for no target."""
    compiled = {case.kernel for case in cases if case.targets}
    return sorted(name for name, kernel in all_kernels().items() if kernel not in compiled)


def test_every_kernel_has_a_case():
    cases = compile_kernel.all_cases().values()
    assert without_a_case(cases) == []
    others = [case for case in cases if case.kernel.name != "_reduce"]
    assert without_a_case(others) == ["reductions._reduce"]


def test_read_from_ptx():
    found = of_nvidia(PTX, REPORT, shared=4096, warps=8)
    assert found == Facts(168, 28, 4096, 384, 16, 3, 8, "wgmma", False)
    tiles = of_nvidia("cp.async.bulk.tensor.2d.shared", REPORT, 0, 4)
    assert (tiles.tma, tiles.matrix, tiles.threads, tiles.load) == (True, "", 128, 0)
    wide = of_nvidia("ld.global.v8.b32 {%r1}, [%rd1]; tcgen05.mma.cta_group::1", REPORT, 0, 4)
    assert (wide.load, wide.matrix) == (32, "tcgen05")
    message = (
        "(C7515) Potential Performance Loss: wgmma.mma_async instructions are serialized due to"
    )
    assert of_nvidia(PTX, message + REPORT, 0, 4).serialized and not found.serialized
    with pytest.raises(ValueError, match="no registers"):
        of_nvidia(PTX, "", 0, 4)


def test_no_form_of_the_budget_has_serialized_products():
    """See `attention_tiles.nonempty_end`."""
    table, _ = budget.read(budget.PATH)
    assert sum(facts.matrix == "wgmma" for facts in table.values()) > 50
    assert [key for key, facts in table.items() if facts.serialized] == []


def test_read_from_amd_assembly():
    assert of_amd(AMD, shared=10, warps=4) == Facts(225, 12, 10, 256, 16, 2, 8, "mfma", False)
    with pytest.raises(ValueError, match="vgpr_count"):
        of_amd("", 0, 4)


@pytest.mark.parametrize(
    ("target", "change"),
    [
        ("sm_80", {"shared": 166913}),
        ("sm_90", {"shared": 232449}),
        ("sm_100", {"shared": 232449}),
        ("gfx942", {"shared": 65537}),
        ("sm_90", {"registers": 255, "threads": 512}),
        ("gfx942", {"registers": 300, "threads": 512}),
    ],
)
def test_what_does_not_start_is_refused(target, change):
    assert beyond(GOOD, target) == []
    key = f"m.k(*bf16; 1) 4x3 {target}"
    found = {key: replace(GOOD, **change)}
    [line] = budget.compare(found, found).failed  # even where the budget says so
    assert key in line
    assert "does not start" in line


def test_what_may_be_wrong_is_refused():
    found = {"m.k(*bf16; 1) 4x3 sm_90": replace(GOOD, hazard=True)}
    [line] = budget.compare(found, found).failed
    assert line.endswith("registers change while wgmma may read them: results may be wrong")


WORSE = {
    "registers": 73, "spills": 4, "shared": 1001, "load": 4, "loads": 11, "store": 2,
    "matrix": "", "tma": False, "serialized": True,
}  # fmt: skip
BETTER = {"registers": 56, "shared": 900, "load": 32, "loads": 2, "store": 32}
SAME = {"registers": 57, "loads": 9, "threads": 256}


@pytest.mark.parametrize("name", WORSE)
def test_a_worse_kernel_is_noticed(name):
    then, now = {"k sm_90": GOOD}, {"k sm_90": replace(GOOD, **{name: WORSE[name]})}
    result = budget.compare(then, now)
    [line] = result.failed
    assert line == f"k sm_90: worse: {name} {getattr(GOOD, name)!r} -> {WORSE[name]!r}"
    assert result.better == []


@pytest.mark.parametrize("name", BETTER)
def test_a_better_kernel_is_told(name):
    result = budget.compare({"k sm_90": GOOD}, {"k sm_90": replace(GOOD, **{name: BETTER[name]})})
    assert result.failed == []
    assert f"better: {name}" in result.better[0]


@pytest.mark.parametrize("name", SAME)
def test_small_changes_are_none(name):
    now = {"k sm_90": replace(GOOD, **{name: SAME[name]})}
    assert budget.compare({"k sm_90": GOOD}, now) == budget.Comparison()


def test_forms_that_come_and_go_are_noticed():
    result = budget.compare({"old sm_90": GOOD}, {"new sm_90": GOOD})
    assert "new sm_90: not in the budget" in result.failed[0]
    assert "old sm_90: in the budget, but no such form" in result.failed[1]


def test_file(tmp_path):
    path = tmp_path / "budget.json"
    table = {"b sm_90": GOOD, "a sm_90": replace(GOOD, matrix="")}
    budget.write(path, table, "triton 1.2.3")
    assert budget.read(path) == (table, "triton 1.2.3")
    lines = path.read_text().splitlines()
    assert [line[:3] for line in lines] == ["{", '"co', '"a ', '"b ', "}"]
    for text in ("", "[]", "{}", '{"compiler": "x", "a": {"registers": 1}}'):
        path.write_text(text)
        with pytest.raises(OnefoldValueError, match="--write"):
            budget.read(path)


@pytest.fixture
def plain(tmp_path):
    """The cases without a table."""
    path = tmp_path / "empty.json"
    configs.write(path, {})
    return compile_kernel.all_cases(path)


@pytest.fixture
def table(tmp_path):
    """A table with one entry that no case has."""
    path = tmp_path / "configs.json"
    tile = {"m": 64, "n": 64, "k": 32, "warps": 8, "stages": 2}
    entries = {"matmul half 8192x8192x8192 sm_90": tile, "matmul half 8192x8192x8192 sm_89": tile}
    configs.write(path, entries)
    return path


def test_entries_of_the_table_are_forms(plain, table):
    found = compile_kernel.all_cases(table)
    added = {key: case for key, case in found.items() if key not in plain}
    assert {key.split("(")[0] for key in added} == {
        "gemm_tiles.tiles", "gemm_tma._persistent"
    }  # fmt: skip
    assert {case.targets for case in added.values()} == {("sm_90",)}
    assert all("64,64,32," in key and key.endswith(" 8x2") for key in added)
    assert {key: found[key] for key in plain} == plain


def test_forms_of_a_specialized_tile_are_those_that_are_launched(plain, table, monkeypatch):
    """Also of products that are not copied by TMA, for which no program is specialized."""
    tile = {"m": 128, "n": 256, "k": 64, "warps": 4, "stages": 4, "specialized": 1}
    configs.write(table, {"matmul half 8192x8192x8192 sm_90": tile})
    added = [case for key, case in compile_kernel.all_cases(table).items() if key not in plain]
    monkeypatch.setattr(gemm, "tile_of", lambda *sizes: gemm.Tile(**tile))
    with GpuDriver("none") as gpu:
        for size in (8192, 8191):
            x = torch.empty(size, size, dtype=torch.bfloat16)
            gemm.product(x, x)
    launched = {(form.name, form.warps) for form in gpu.forms}
    assert launched == {("_persistent", 4), ("tiles", 8)}
    assert {(case.kernel.name, case.warps) for case in added} == launched


def test_every_tuned_kernel_has_forms(table):
    wanted = {}  # by entry
    written = {}
    for kernel, tuned in registry.all_tuned().items():
        for dtype in tuned.dtypes:
            for shape_class, sizes in tuned.shapes.items():
                config = tuned.allowed(dtype, sizes)[-1]
                name = tuned.name(dtype).removeprefix("torch.")
                entry = configs.key(kernel, name, shape_class, "sm_90")
                written[entry] = config
                wanted[entry] = tuned.cases(name, sizes, config)
    configs.write(table, written)
    found = compile_kernel.all_cases(table).values()
    compiled = {case.key for case in found if "sm_90" in case.targets}
    for entry, cases in wanted.items():
        forms = {case.key for case in cases if "sm_90" in case.targets}
        assert forms, entry
        assert forms <= compiled, entry


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["softmax", "cross_entropy_grad"])
def test_forms_of_the_table_compile(kernel):
    tuned = registry.all_tuned()[kernel]
    for case in tuned.cases("bfloat16", (64, 64, 1), {"kept": 4, "block": 64, "warps": 2}):
        assert compile_kernel.facts_of(case, "sm_80").spills == 0


def test_an_entry_that_is_a_case_already_adds_nothing_to_it(plain, table):
    tile = {"m": 128, "n": 256, "k": 64, "warps": 8, "stages": 3}
    configs.write(table, {"matmul half 8192x8192x8192 sm_90": tile})
    found = compile_kernel.all_cases(table)
    assert len(found) > len(plain)
    assert {key: found[key].targets for key in plain} == {
        key: case.targets for key, case in plain.items()
    }


@pytest.mark.slow
def test_the_command_compiles_them(table, capfd):
    """And asks for a budget of them, if this is the compiler that the budget is of."""
    options = ["--table", str(table), "--match", "True,half,None,None,64,64,32", "--processes", "1"]
    status = command.main(options)
    said = capfd.readouterr().out
    assert "entries for sm_89 are not compiled here" in said
    if budget.read(budget.PATH)[1] == compile_kernel.COMPILER:
        assert status == 1
        assert said.count("not in the budget: registers") == 1
    else:
        assert status == 0


def test_with_another_compiler_nothing_is_compared(monkeypatch, capsys):
    monkeypatch.setattr(compile_kernel, "COMPILER", "triton 0.0")
    spilled = {"a.k(i32; 1) 4x3 sm_90": replace(GOOD, spills=8)}
    assert command._compare(spilled, [], True) == 0
    said = capsys.readouterr().out
    assert "sm_90: spills 8" in said
    assert "1 forms compile with triton 0.0; 1 of them spill." in said
    assert "nothing is compared" in said
    assert command._compare({}, ["a: the compiler died"], True) == 1
    large = {"a.k(i32; 1) 4x3 sm_90": replace(GOOD, shared=10**6)}
    assert command._compare(large, [], True) == 1


@pytest.mark.slow
def test_a_worker_that_dies_names_its_task():
    texts = ["1 + 1", "1 / 0", "__import__('os').abort()", "__import__('time').sleep(99)", "2 + 2"]
    told = {}

    def done(task, result, error):
        told[task[0]] = result, error

    workers.run(eval, [(text,) for text in texts], 1, 5.0, done)
    assert list(told) == texts
    assert [told[text][0] for text in texts] == [2, None, None, None, 4]
    for text, error in zip(texts[1:4], ("ZeroDivisionError", "SIGABRT", "5 seconds"), strict=True):
        assert error in told[text][1]
