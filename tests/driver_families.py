"""Training steps of models of several families, as users write them, for the driver without a GPU.

A residual network in channels-last with layers in place, a U-Net with attention and embedded time
steps, a transformer with padding masks, a graph network, and a mixture of experts.
"""

import math
from functools import partial

import onefold as flow
from onefold import nn

F = nn.functional


def labels(high, *shape):
    return flow.arange(math.prod(shape)).reshape(*shape) % high


class Bottleneck(nn.Module):
    """Three convolutions with a shortcut."""

    def __init__(self, given, middle, stride):
        super().__init__()
        sizes = [(given, middle, 1, 1), (middle, middle, 3, stride), (middle, 4 * middle, 1, 1)]
        self.convs = nn.ModuleList(
            nn.Conv2d(a, b, kernel, step, kernel // 2, bias=False) for a, b, kernel, step in sizes
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(b) for _, b, _, _ in sizes)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = nn.Sequential(
            nn.Conv2d(given, 4 * middle, 1, stride, bias=False), nn.BatchNorm2d(4 * middle)
        )

    def forward(self, x):
        y = x
        for conv, norm in zip(self.convs[:2], self.norms[:2], strict=True):
            y = self.relu(norm(conv(y)))
        y = self.norms[2](self.convs[2](y))
        y += self.shortcut(x)
        return self.relu(y)


class ResNet(nn.Module):
    """Images to a loss."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True)
        )
        self.pool, self.layers = nn.MaxPool2d(3, 2, 1), Bottleneck(64, 64, 2)
        self.head = nn.Linear(256, 100)
        self.to(memory_format=flow.channels_last)
        images = flow.zeros(8, 3, 64, 64).to(memory_format=flow.channels_last)
        self.given = images, labels(100, 8)

    def forward(self, x, wanted):
        x = F.adaptive_avg_pool2d(self.layers(self.pool(self.stem(x))), 1).flatten(1)
        return F.cross_entropy(self.head(x), wanted, label_smoothing=0.1)


class TimedBlock(nn.Module):
    """Two convolutions, between which an embedded time step scales and shifts."""

    def __init__(self, given, made, embedded):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(8, given), nn.GroupNorm(8, made)
        self.conv1 = nn.Conv2d(given, made, 3, padding=1)
        self.conv2 = nn.Conv2d(made, made, 3, padding=1)
        self.time, self.skip = nn.Linear(embedded, 2 * made), nn.Conv2d(given, made, 1)

    def forward(self, x, time):
        y = self.conv1(F.silu(self.norm1(x)))
        scale, shift = self.time(F.silu(time))[:, :, None, None].chunk(2, 1)
        y = self.norm2(y) * (1 + scale) + shift
        return self.skip(x) + self.conv2(F.silu(y))


class UNet(nn.Module):
    """Noisy images and time steps to a loss, with attention where images are small."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 64, 3, padding=1), nn.Conv2d(64, 3, 3, padding=1)
        self.time = nn.Sequential(nn.Linear(64, 256), nn.SiLU(), nn.Linear(256, 256))
        self.before, self.after = TimedBlock(64, 64, 256), TimedBlock(192, 64, 256)
        self.down, self.middle = nn.Conv2d(64, 64, 3, 2, 1), TimedBlock(64, 128, 256)
        self.norm, self.qkv = nn.GroupNorm(8, 128), nn.Conv1d(128, 384, 1)
        self.register_buffer("signal", flow.linspace(1.0, 0.0, 1000))
        self.given = flow.zeros(4, 3, 32, 32), flow.zeros(4, 3, 32, 32), labels(1000, 4)

    def forward(self, x, noise, t):
        kept = self.signal[t][:, None, None, None]
        rates = flow.exp(flow.arange(32, dtype=flow.float32) * (-math.log(10000) / 32))
        angles = t[:, None].float() * rates
        time = self.time(flow.cat([angles.cos(), angles.sin()], 1))
        large = self.before(self.first(kept.sqrt() * x + (1 - kept).sqrt() * noise), time)
        y = self.middle(self.down(large), time)
        flat = y.flatten(2)
        q, k, v = self.qkv(self.norm(flat)).transpose(1, 2).chunk(3, 2)
        y = (flat + F.scaled_dot_product_attention(q, k, v).transpose(1, 2)).reshape(y.shape)
        y = F.interpolate(y, scale_factor=2.0, mode="nearest")
        return F.mse_loss(self.last(self.after(flow.cat([y, large], 1), time)), noise)


class Translation(nn.Module):
    """Sentences of two languages, padded with 0, to a loss."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(1000, 128, padding_idx=0)
        self.core = nn.Transformer(128, 4, 1, 1, 256, dropout=0.1, batch_first=True)
        self.given = labels(1000, 8, 40), labels(1000, 8, 31)

    def forward(self, source, target):
        given, following = target[:, :-1], target[:, 1:]
        unknown = source == 0
        y = self.core(
            self.words(source) * math.sqrt(128), self.words(given) * math.sqrt(128),
            tgt_mask=nn.Transformer.generate_square_subsequent_mask(given.shape[1]),
            src_key_padding_mask=unknown, memory_key_padding_mask=unknown,
        )  # fmt: skip
        scores = y @ self.words.weight.t()
        return F.cross_entropy(scores.transpose(1, 2), following, ignore_index=0)


class GraphNetwork(nn.Module):
    """Nodes and edges to a loss: attention over the edges of each node, and sums over graphs."""

    def __init__(self):
        super().__init__()
        self.values, self.scores = nn.Linear(64, 64), nn.Linear(128, 1)
        self.head = nn.Linear(64, 3)
        ends = [labels(1000, 5000) for _ in range(2)]
        self.given = flow.zeros(1000, 64), *ends, labels(2, 1000), labels(3, 2)

    def forward(self, x, source, target, graph, wanted):
        y = self.values(x)
        score = F.leaky_relu(self.scores(flow.cat([y[source], y[target]], 1)), 0.2).float().exp()
        total = flow.zeros(len(x), 1).index_add_(0, target, score)
        message = (y[source] * (score / (total[target] + 1e-9))).float()
        y = flow.zeros(len(x), 64).scatter_add_(0, target[:, None].expand(-1, 64), message)
        pooled = flow.zeros(2, 64).index_add(0, graph, F.elu(y))
        return F.cross_entropy(self.head(pooled), wanted)


class Experts(nn.Module):
    """Tokens to a loss: each expert works on the tokens that it scores highest."""

    def __init__(self):
        super().__init__()
        self.gate, self.norm = nn.Linear(128, 4, bias=False), nn.LayerNorm(128)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(128, 256), nn.GELU(), nn.Linear(256, 128)) for _ in range(4)
        )
        self.given = (flow.zeros(512, 128),)

    def forward(self, x):
        shares = F.softmax(self.gate(x), -1, dtype=flow.float32)
        y = x
        for number, expert in enumerate(self.experts):
            share, rows = shares[:, number].topk(128)
            y = y.index_add(0, rows, (expert(x[rows]) * share[:, None]).to(y.dtype))
        return self.norm(y).float().square().mean() + shares.mean(0).square().sum()


FAMILIES = {
    "resnet": ResNet,
    "unet": UNet,
    "translation": Translation,
    "graph network": GraphNetwork,
    "experts": Experts,
}
MODES = ("eager amp", "captured amp")
STEPS = [(family, mode) for family in FAMILIES for mode in MODES]


class FamilyTraining(nn.Graph):
    """A step as a graph, in one of the modes."""

    def __init__(self, model, optimizer, mode):
        super().__init__()
        self.model = model
        self.add_optimizer(optimizer)
        self.config.enable_amp(mode.endswith("amp"), dtype=flow.bfloat16)
        self.config.enable_cuda_graph(mode.startswith("captured"))

    def build(self, *given):
        loss = self.model(*given)
        loss.backward()
        return loss


def family_step(family, mode):
    """A function that does a training step of a family, in one of the modes."""
    model = FAMILIES[family]()
    optimizer = flow.optim.AdamW(model.parameters(), lr=1e-3)
    if not mode.startswith("eager"):
        return partial(FamilyTraining(model, optimizer, mode), *model.given)

    def step():
        with flow.autocast("cpu", flow.bfloat16, enabled=mode.endswith("amp")):
            loss = model(*model.given)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step
