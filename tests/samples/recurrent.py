"""Samples of torch's recurrent functions."""

import torch

from onefold.testing import Sample, T

GATES = {"rnn_tanh": 1, "rnn_relu": 1, "gru": 3, "lstm": 4}
SIZE, HIDDEN, BATCH = 3, 4, 5


def weights(mode, layers=1, directions=1, biases=True, proj=0):
    rows, found = GATES[mode] * HIDDEN, []
    out = proj or HIDDEN
    for layer in range(layers):
        size = SIZE if layer == 0 else out * directions
        for _ in range(directions):
            found += [T(rows, size), T(rows, out)]
            found += [T(rows), T(rows)] * biases
            found += [T(proj, HIDDEN)] * bool(proj)
    return found


def state(mode, count, batch=BATCH, proj=0):
    hidden = T(count, batch, proj or HIDDEN)
    return [hidden, T(count, batch, HIDDEN)] if mode == "lstm" else hidden


def whole(mode, layers=1, both=False, biases=True, batch_first=False, proj=0, **kwargs):
    x = T(BATCH, 2, SIZE) if batch_first else T(2, BATCH, SIZE)
    directions = 1 + both
    hx = state(mode, layers * directions, proj=proj)
    params = weights(mode, layers, directions, biases, proj)
    return Sample(mode, (x, hx, params, biases, layers, 0.0, True, both, batch_first), **kwargs)


def packed(mode):
    sizes = torch.tensor([3, 2])
    args = (T(5, SIZE), sizes, state(mode, 2, 3), weights(mode, 1, 2), True, 1, 0.0, False, True)

    def plain(x, sizes, *rest):
        return getattr(torch, mode)(x, sizes.cpu(), *rest)  # torch takes sizes on the CPU only

    return Sample(mode, args, torch=plain)


def cell(mode, biases=True, **kwargs):
    hx = [T(BATCH, HIDDEN), T(BATCH, HIDDEN)] if mode == "lstm" else T(BATCH, HIDDEN)
    return Sample(f"{mode}_cell", (T(BATCH, SIZE), hx, *weights(mode, biases=biases)), **kwargs)


SAMPLES = [
    *[whole(mode) for mode in GATES],
    *[whole(mode, grad=False) for mode in GATES],
    whole("lstm", 2, both=True, biases=False, proj=2),
    whole("gru", 2, batch_first=True),
    *[packed(mode) for mode in ("lstm", "rnn_tanh")],
    *[cell(mode) for mode in GATES],
    *[cell(mode, biases=mode != "gru", grad=False) for mode in GATES],
]
