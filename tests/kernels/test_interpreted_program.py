"""A user's ordinary program runs in Triton's interpreter, with nothing but two variables set."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

PROGRAM = '''
"""A small GPT that is trained for two steps, eagerly and as a graph with autocast."""

import json
import sys

import onefold as flow
from onefold import nn

F = nn.functional


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(32), nn.RMSNorm(32)
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, x):
        q, k, v = (
            part.reshape(2, 8, 2, 16).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).chunk(3, -1)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + F.dropout(self.out(y.transpose(1, 2).reshape(2, 8, 32)), 0.1)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.block, self.head = nn.Embedding(16, 32), Block(), nn.Linear(32, 16)

    def forward(self, tokens, wanted):
        scores = self.head(self.block(self.tokens(tokens)))
        return F.cross_entropy(scores.view(-1, 16), wanted.view(-1))


def train(graph=False, narrow=False):
    flow.manual_seed(0)
    model = GPT()
    optimizer = flow.optim.AdamW(model.parameters(), lr=1e-2)
    tokens = flow.randint(0, 16, (2, 8))

    class Training(nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = model
            self.add_optimizer(optimizer)
            self.config.enable_amp(narrow, dtype=flow.bfloat16)

        def build(self, tokens):
            loss = self.model(tokens, tokens)
            loss.backward()
            return loss

    def step(tokens):
        with flow.autocast("cpu", flow.bfloat16, enabled=narrow):
            loss = model(tokens, tokens)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    step = Training() if graph else step
    return [step(tokens).item() for _ in range(2)]


if __name__ == "__main__":
    runs = [train(), train(graph=True, narrow=True)]
    loaded = "onefold.kernels.gpu.launch.jit_kernel" in sys.modules
    print(json.dumps({"losses": runs, "triton": loaded}))
'''


def losses(folder, kernels):
    script = folder / "program.py"
    script.write_text(PROGRAM)
    env = {**os.environ, "ONEFOLD_KERNELS": kernels}
    env |= {"TRITON_INTERPRET": "1" if kernels == "triton" else "0"}
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=folder, env=env, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_it_trains_as_with_torch(tmp_path):
    wanted, found = (json.loads(losses(tmp_path, kernels)) for kernels in ("torch", "triton"))
    assert (wanted["triton"], found["triton"]) == (False, True)
    for mine, theirs, tol in zip(found["losses"], wanted["losses"], (1e-5, 1e-2), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=tol)
