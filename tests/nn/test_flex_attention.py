"""flex_attention equals torch's, and plain torch in gradients; block masks have torch's blocks."""

import pytest
import torch
from torch.nn.attention import flex_attention as theirs

import onefold as flow
from onefold.nn import flex_attention as mine

B0, S0 = flow.sbp.broadcast, flow.sbp.split(0)
DOCUMENTS = torch.arange(20) // 6
SLOPES = torch.tensor([0.1, 0.2, 0.3, 0.4])
TABLE = torch.linspace(-1, 1, 40).reshape(2, 20)


def functions(module, give):
    """Masks and score functions, which look values up, over tensors of one library."""
    documents, slopes, table = give(DOCUMENTS), give(SLOPES), give(TABLE)

    def causal(b, h, q_idx, kv_idx):
        return q_idx >= kv_idx

    def same_document(b, h, q_idx, kv_idx):
        return documents[q_idx] == documents[kv_idx]

    def prefix(b, h, q_idx, kv_idx):
        return (kv_idx < 3) & (b > 0)

    def sees_nothing_first(b, h, q_idx, kv_idx):
        return q_idx > kv_idx

    def alibi(score, b, h, q_idx, kv_idx):
        return score + slopes[h] * (kv_idx - q_idx)

    def soft_cap(score, b, h, q_idx, kv_idx):
        return (score / 3).tanh() * 3 + table[b, q_idx]

    masks = {
        "documents": (module.and_masks(causal, same_document), None, None),
        "prefix": (module.or_masks(causal, prefix), 2, 4),
        "nothing": (sees_nothing_first, None, 1),
        "all": (module.noop_mask, 1, 1),
    }
    return masks, {"plain": None, "alibi": alibi, "soft cap": soft_cap}


def block_mask(module, mask, block_size=(4, 8), device="cpu"):
    function, batch, heads = mask
    return module.create_block_mask(function, batch, heads, 20, 20, device, block_size)


MASKS = ("documents", "prefix", "nothing", "all")
SCORES = ("plain", "alibi", "soft cap")


@pytest.fixture(autouse=True)
def not_compiled(monkeypatch):
    """Torch would compile its function."""
    monkeypatch.setattr(theirs, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)


def inputs():
    gen = torch.Generator().manual_seed(0)
    shapes = ((2, 4, 20, 8), (2, 2, 20, 8), (2, 2, 20, 6))
    return [torch.randn(shape, generator=gen) for shape in shapes]


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("mask", [None, *MASKS])
def test_values_are_those_of_torch(mask, score):
    found = []
    for module, give in ((theirs, torch.clone), (mine, flow.from_torch)):
        masks, scores = functions(module, give)
        blocks = block_mask(module, masks[mask]) if mask else None
        q, k, v = map(give, inputs())
        options = {"scale": 0.4, "enable_gqa": True, "return_aux": module.AuxRequest(lse=True)}
        y, extra = module.flex_attention(q, k, v, scores[score], blocks, **options)
        options.pop("return_aux")
        again = module.flex_attention(q, k, v, scores[score], blocks, **options)
        found.append([y, again, extra.lse])
    for expected, y in zip(*found, strict=True):
        torch.testing.assert_close(y.to_torch(), expected)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("mask", ["documents", "nothing"])
@pytest.mark.parametrize("split", [False, True])
def test_gradients_are_those_of_the_formula(world, mask, score, split):
    """Torch's function has none on the CPU."""
    masks, scores = functions(theirs, torch.clone)
    q, k, v = [x.double().requires_grad_() for x in inputs()]
    wide = [x.repeat_interleave(2, 1) for x in (k, v)]
    weights = q @ wide[0].mT / 8**0.5
    at = [
        torch.arange(n).view([-1 if i == dim else 1 for i in range(4)])
        for dim, n in enumerate(weights.shape)
    ]
    if scores[score] is not None:
        weights = scores[score](weights, *at)
    seen = masks[mask][0](*at).expand(weights.shape)
    weights = weights.masked_fill(~seen, -torch.inf).softmax(-1)
    expected = torch.where(seen.any(-1, keepdim=True), weights, 0) @ wide[1]
    grads = torch.autograd.grad((expected**2).sum(), (q, k, v))

    place = {"placement": flow.placement("cpu", [0, 1]), "sbp": B0} if split else {}
    masks, scores = functions(mine, lambda x: flow.tensor(x.numpy(), **place))
    own = [flow.tensor(x.detach().numpy(), **place) for x in (q, k, v)]
    if split:
        own = [x.to_global(sbp=S0) for x in own]
    blocks = block_mask(mine, masks[mask], device=own[0].device)
    own = [x.requires_grad_() for x in own]
    y = mine.flex_attention(*own, scores[score], blocks, enable_gqa=True)
    (y**2).sum().backward()
    torch.testing.assert_close(torch.from_numpy(y.numpy()), expected.detach())
    for x, grad in zip(own, grads, strict=True):
        torch.testing.assert_close(torch.from_numpy(x.grad.numpy()), grad)


@pytest.mark.parametrize("size", [8, (4, 8), 128])
@pytest.mark.parametrize("mask", MASKS)
def test_blocks_are_those_of_torch(mask, size):
    one = block_mask(theirs, functions(theirs, torch.clone)[0][mask], size)
    other = block_mask(mine, functions(mine, flow.from_torch)[0][mask], size)
    for name in ("kv_num_blocks", "full_kv_num_blocks"):
        assert getattr(other, name).tolist() == getattr(one, name).tolist()
    assert other.to_dense().tolist() == one.to_dense().tolist()
    assert (other.shape, other.numel(), other.sparsity()) == (
        one.shape, one.numel(), pytest.approx(one.sparsity())
    )  # fmt: skip
    for part in (lambda x: x[:, :, 0], lambda x: x[0:1], lambda x: x[0, -1]):
        assert part(other).kv_num_blocks.tolist() == part(one).kv_num_blocks.tolist()
    assert other._adjust(9, 12).to_dense().tolist() == one._adjust(9, 12).to_dense().tolist()
    assert other.to("cpu").kv_indices.tolist() == other.kv_indices.tolist()


def test_blocks_of_a_program():
    """What the blocks leave out is hidden, also where the function shows it."""
    masks = functions(mine, flow.from_torch)[0]
    made = block_mask(mine, masks["documents"])
    names = ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices")
    four = [getattr(made, name) for name in names]
    q, k, v = map(flow.from_torch, inputs())
    options = {"block_mask": made, "enable_gqa": True}
    expected = mine.flex_attention(q, k, v, **options)
    again = mine.BlockMask.from_kv_blocks(
        *four, BLOCK_SIZE=(4, 8), mask_mod=masks["documents"][0], seq_lengths=(20, 20)
    )
    assert again.shape == (1, 1, 20, 20)
    options["block_mask"] = again
    assert flow.equal(mine.flex_attention(q, k, v, **options), expected)
    own = mine.BlockMask.from_kv_blocks(
        flow.tensor([[[1, 1]]]), flow.tensor([[[[1, 0], [0, 1]]]]), BLOCK_SIZE=2
    )
    y = mine.flex_attention(
        *[flow.ones(1, 1, 4, 4)] * 2, flow.arange(4.0).view(1, 1, 4, 1), None, own
    )
    assert y.flatten().tolist() == [2.5, 2.5, 0.5, 0.5]


def test_a_captured_program(world):
    masks, scores = functions(mine, flow.from_torch)
    options = {"block_mask": block_mask(mine, masks["prefix"]), "enable_gqa": True}
    q, k, v = map(flow.from_torch, inputs())
    compiled = flow.compile(mine.flex_attention)
    for score in scores.values():
        expected = mine.flex_attention(q, k, v, score, **options)
        assert flow.allclose(compiled(q, k, v, score, **options), expected)


def test_mixed_precision():
    q, k, v = map(flow.from_torch, inputs())
    with flow.autocast("cpu", dtype=flow.bfloat16):
        y, extra = mine.flex_attention(q, k, v, enable_gqa=True, return_lse=True)
    low = [x.bfloat16() for x in (q, k, v)]
    expected, lse = mine.flex_attention(*low, enable_gqa=True, return_lse=True)
    assert y.dtype == flow.bfloat16 and extra.dtype == flow.float32
    assert flow.equal(y, expected) and flow.equal(extra, lse)


def test_masks_as_tensors():
    for name in MASKS:
        function, batch, heads = functions(mine, flow.from_torch)[0][name]
        other = functions(theirs, torch.clone)[0][name][0]
        found = mine.create_mask(function, batch, heads, 20, 20, "cpu")
        assert flow.equal(
            found, flow.from_torch(theirs.create_mask(other, batch, heads, 20, 20, "cpu"))
        )


def test_what_is_refused():
    q, k, v = map(flow.from_torch, inputs())
    scores = functions(mine, flow.from_torch)[1]
    blocks = block_mask(mine, (mine.noop_mask, None, None))
    gqa = {"enable_gqa": True}
    with pytest.raises(ValueError, match="same number of heads"):
        mine.flex_attention(q, k, v)
    with pytest.raises(ValueError, match="created for block_mask"):
        mine.flex_attention(q[:, :, :5], k, v, block_mask=blocks, enable_gqa=True)
    with pytest.raises(RuntimeError, match="4 dims"):
        mine.flex_attention(q[0], k[0], v[0])
    with pytest.raises(RuntimeError, match="do not fit"):
        mine.flex_attention(q, k[..., :4], v, enable_gqa=True)
    with pytest.raises(RuntimeError, match="sliced"):
        mine.flex_attention(q, k, v, block_mask=blocks[:, :, 0], enable_gqa=True)
    with pytest.raises(RuntimeError, match="must broadcast to"):
        mine.flex_attention(q, k, v, lambda s, b, h, i, j: s[..., None] + i, enable_gqa=True)
    with pytest.raises(TypeError, match="requires a mask_mod"):
        mine.create_block_mask(scores["alibi"], None, None, 20, 20, "cpu")
    with pytest.raises(TypeError, match="takes 2 arguments"):
        mine.create_mask(lambda b, h: b, None, None, 20, 20, "cpu")
    with pytest.raises(RuntimeError, match="callable"):
        mine.and_masks(mine.noop_mask, 3)
    with pytest.raises(RuntimeError, match="2 dimensions"):
        mine.BlockMask.from_kv_blocks(flow.ones(1), flow.ones(1))
    with pytest.raises(ValueError, match="both provided"):
        mine.BlockMask.from_kv_blocks(flow.ones(1), flow.ones(1, 1), flow.ones(1))
    with pytest.raises(ValueError, match="not both"):
        mine.flex_attention(q, k, v, return_lse=True, return_aux=mine.AuxRequest(), **gqa)
