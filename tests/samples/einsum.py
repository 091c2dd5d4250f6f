"""Samples of einsum and tensordot."""

import torch

from onefold.testing import Sample, T

C = torch.complex128

SAMPLES = [
    Sample("vdot", (T(6), T(6))),
    Sample("vdot", (T(6, dtype=C), T(6, dtype=C))),
    Sample("inner", (T(4, 6), T(3, 6))),
    Sample("inner", (T(6), T(2, 3, 6))),
    Sample("tensordot", (T(4, 3, 6), T(3, 6, 5)), {"dims": 2}),
    Sample("tensordot", (T(4, 3, 6), T(6, 5, 4)), {"dims": ([2, 0], [0, 2])}),
    Sample("tensordot", (T(4, 3), T(2, 5)), {"dims": 0}),
    Sample("einsum", ("ij,jk->ik", T(6, 4), T(4, 3))),
    Sample("einsum", ("ij,jk->ik", T(6, 4, dtype=C), T(4, 3, dtype=C))),
    Sample("einsum", ("ij,jk", T(6, 4), T(4, 3))),
    Sample("einsum", ("bij,bjk->bik", T(4, 6, 2), T(4, 2, 3))),
    Sample("einsum", ("bhid,bhjd->bhij", T(2, 3, 4, 6), T(2, 3, 5, 6))),
    Sample("einsum", ("ij->ji", T(6, 4))),
    Sample("einsum", ("ij->", T(6, 4))),
    Sample("einsum", ("ii", T(6, 6))),
    Sample("einsum", ("ii->i", T(6, 6))),
    Sample("einsum", ("iij,jk->ik", T(4, 4, 3), T(3, 6))),
    Sample("einsum", ("i,j->ij", T(6), T(4))),
    Sample("einsum", ("i,i->", T(6), T(6))),
    Sample("einsum", ("...ij,...jk->...ik", T(4, 2, 3), T(3, 5))),
    Sample("einsum", ("...ij,jk", T(4, 2, 3), T(3, 5))),
    Sample("einsum", ("b...,b...->...", T(4, 6), T(4, 1))),
    Sample("einsum", ("ij,jk,kl->il", T(4, 6), T(6, 2), T(2, 3))),
    Sample("einsum", ("bn,anm,bm->ba", T(2, 4), T(3, 4, 5), T(2, 5))),
    Sample("einsum", ("ij,kj->", T(4, 6), T(3, 6))),
    Sample("einsum", ("ij,ik->jk", T(6, 1), T(1, 3))),
]
