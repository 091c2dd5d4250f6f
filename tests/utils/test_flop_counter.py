"""FlopCounterMode counts what torch's counts."""

import pytest
import torch
import torch.utils.flop_counter

import onefold as flow


def mlp(lib):
    nn = lib.nn
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Sequential(nn.Linear(8, 4)))
    return model, lib.ones(5, 6)


def images(lib):
    nn = lib.nn
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, stride=2), nn.BatchNorm2d(8), nn.ConvTranspose2d(8, 4, 2),
        nn.Conv2d(4, 4, 3, stride=2), nn.Conv2d(4, 6, 2),
    )  # fmt: skip
    return model, lib.ones(2, 3, 9, 9)


def products(lib):
    class Products(lib.nn.Module):
        def forward(self, x):
            y = lib.bmm(x, x.transpose(1, 2)).requires_grad_()
            y = lib.einsum("bij,bkj->bik", y, y[:1])
            return lib.baddbmm(y, y, y) @ lib.ones(4, 3)

    return Products(), lib.ones(2, 4, 5)


def attends(lib):
    class Attends(lib.nn.Module):
        def forward(self, x):
            return lib.nn.functional.scaled_dot_product_attention(x, x, x[..., :4])

    return Attends(), lib.ones(2, 3, 8, 6)


@pytest.mark.parametrize("make", [mlp, images, products, attends])
@pytest.mark.parametrize("backward", [False, True])
def test_counts_are_torchs(make, backward):
    if make is attends and backward:
        pytest.skip("torch counts no gradients of its attention on the CPU")
    found = []
    for lib in (torch, flow):
        model, x = make(lib)
        with lib.utils.flop_counter.FlopCounterMode(display=False) as counter:
            y = model(x)
            if backward:
                y.sum().backward()
        by_module = counter.get_flop_counts()
        sums = {name: sum(counts.values()) for name, counts in by_module.items()}
        total = counter.get_total_flops()
        assert sums.pop("Global") == total
        found.append((total, {name: count for name, count in sums.items() if count}))
    assert found[1] == found[0]


def test_the_table(capsys):
    model, x = mlp(flow)
    with flow.utils.flop_counter.FlopCounterMode(depth=1) as counter:
        model(x)
    shown = capsys.readouterr().out
    assert shown.split() == counter.get_table(1).split()
    assert "Sequential" in shown and "Sequential.0" not in shown and "100.00%" in shown
    assert "Sequential.0" in counter.get_table(2)


def test_global_tensors_count_as_wholes(world):
    p = flow.placement("cpu", [0, 1])
    x = flow.ones(4, 6, placement=p, sbp=flow.sbp.split(0))
    with flow.utils.flop_counter.FlopCounterMode(display=False) as counter:
        x @ flow.ones(6, 3, placement=p, sbp=flow.sbp.broadcast)
    assert counter.get_total_flops() == 2 * 4 * 6 * 3
