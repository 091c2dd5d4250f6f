"""Training steps and optimizers that are run by the driver without a GPU, at sizes of a GPU.

Widths and lengths are those for which kernels take the tiles of large inputs.
"""

from functools import partial

import onefold as flow
from onefold import nn
from onefold.testing.gpu_driver.graph_capture import number_faults

F = nn.functional
WIDTH, HEADS, LENGTH, ROWS, VOCABULARY = 512, 4, 512, 2, 2048
PLACEMENTS, BROADCAST = [flow.placement("cpu", [rank]) for rank in (0, 1)], flow.sbp.broadcast


class Attention(nn.Module):
    """Causal self-attention; with rotary embeddings and fewer heads of keys and values, or not."""

    dropout = 0.0

    def __init__(self, kv_heads, rotary):
        super().__init__()
        self.kv_heads, self.rotary, self.size = kv_heads, rotary, WIDTH // HEADS
        self.q = nn.Linear(WIDTH, WIDTH, bias=not rotary)
        self.k, self.v = (nn.Linear(WIDTH, kv_heads * self.size, bias=not rotary) for _ in "kv")
        self.out = nn.Linear(WIDTH, WIDTH, bias=not rotary)

    def forward(self, x):
        rows, length, width = x.shape
        q, k, v = (
            layer(x).view(rows, length, -1, self.size).transpose(1, 2)
            for layer in (self.q, self.k, self.v)
        )
        if self.rotary:
            angles = flow.arange(length, dtype=flow.float32)[:, None] * flow.arange(self.size // 2)
            cos, sin = flow.cos(angles), flow.sin(angles)
            q, k = F.rotary(q, cos, sin), F.rotary(k, cos, sin)
        dropped = {"is_causal": True, "enable_gqa": True, "dropout_p": self.dropout}
        y = F.scaled_dot_product_attention(q, k, v, **dropped)
        return self.out(y.transpose(1, 2).reshape(rows, length, width))


class GPTBlock(nn.Module):
    """Layer norms, biases, gelu and dropout."""

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention(HEADS, rotary=False)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        x = x + self.dropout(self.attention(self.norm1(x)))
        return x + self.dropout(self.down(F.gelu(self.up(self.norm2(x)))))


class LlamaBlock(nn.Module):
    """RMS norms, rotary embeddings, grouped queries and a gated network."""

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.attention = Attention(HEADS // 2, rotary=True)
        self.gate, self.up = (nn.Linear(WIDTH, 3 * WIDTH, bias=False) for _ in range(2))
        self.down = nn.Linear(3 * WIDTH, WIDTH, bias=False)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class LanguageModel(nn.Module):
    """Tokens (rows, length) and the following ones to a loss."""

    def __init__(self, block, norm):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.block, self.norm = block(), norm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens, following):
        scores = self.head(self.norm(self.block(self.tokens(tokens))))
        return F.cross_entropy(scores.flatten(0, 1), following.flatten())

    def stages(self):
        """The modules of two stages."""
        return (self.tokens, self.block), (self.norm, self.head)


class ConvNet(nn.Module):
    """Convolutions with batch norms, pools and a classifier."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
            nn.Conv2d(64, 128, 3, padding=1), nn.BatchNorm2d(128), nn.SiLU(),
            nn.Conv2d(128, 128, 3, padding=1, groups=128), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        )  # fmt: skip
        self.head = nn.Linear(128, VOCABULARY)

    def forward(self, images, wanted):
        return F.cross_entropy(self.head(self.features(images)), wanted)


MODELS = {"gpt": (GPTBlock, nn.LayerNorm), "llama": (LlamaBlock, nn.RMSNorm)}


class Products(nn.Module):
    """Products that are large enough for descriptors, with epilogues, and a loss in parts."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(1024, 4096), nn.Linear(4096, 1024, bias=False)
        self.head = nn.Linear(1024, 8192, bias=False)

    def forward(self, x, wanted):
        y = x + self.down(F.gelu(self.up(x)))
        return F.linear_cross_entropy(y, self.head.weight, wanted)


OTHERS = {"convnet": ConvNet, "products": Products}
MODES = ("eager", "graph", "eager amp", "graph amp")
STEPS = [(model, mode) for model in MODELS for mode in MODES]
STEPS += [(model, mode) for model in OTHERS for mode in ("graph", "eager amp")]


# Graphs whose steps are captured; "scaled" ones clip, scale the loss, have micro-batches, and drop
# weights of attention.
CAPTURED = [
    (model, mode) for model in MODELS for mode in ("captured", "captured amp", "captured scaled")
] + [("gpt", "captured in backward amp")]
STEPS += CAPTURED
# Products that add gradients to sums over micro-batches, with and without stages.
STEPS += [("products", "accumulated amp"), ("gpt", "staged amp")]


class Training(nn.Graph):
    """A step as a graph, in one of the modes; the learning rate changes in each."""

    def __init__(self, model, optimizer, mode):
        super().__init__()
        self.model = model
        self.add_optimizer(optimizer, lr_sch=flow.optim.lr_scheduler.StepLR(optimizer, 1, 0.9))
        self.config.enable_amp(mode.endswith("amp"), dtype=flow.bfloat16)
        self.config.enable_cuda_graph(mode.startswith("captured"))
        self.config.enable_optimizer_in_backward("in backward" in mode)
        if mode.startswith(("accumulated", "staged")):
            self.config.set_gradient_accumulation_steps(2)
        if mode.startswith("staged"):
            for stage, parts in enumerate(model.stages()):
                for part in parts:
                    part.to(nn.graph.GraphModule).set_stage(stage, PLACEMENTS[stage])
        self.scaled = mode.endswith("scaled")
        if self.scaled:
            self.config.enable_amp(dtype=flow.float16)
            self.config.set_gradient_accumulation_steps(2)
            self.set_grad_scaler(flow.amp.GradScaler())
            model.block.attention.dropout = 0.1

    def build(self, *given):
        loss = self.model(*given)
        loss.backward()
        if self.scaled:
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        return loss


def training_step(model, mode):
    """A function that does a training step: of a model by name, in one of the modes."""
    amp = mode.endswith("amp")
    made = LanguageModel(*MODELS[model]) if model in MODELS else OTHERS[model]()
    given = [flow.zeros(ROWS, LENGTH, dtype=flow.int64) for _ in range(2)]
    if mode.startswith("staged"):
        for parts, p in zip(made.stages(), PLACEMENTS, strict=True):
            for part in parts:
                part.to_global(p, BROADCAST)
        given = [x.to_global(p, BROADCAST) for x, p in zip(given, PLACEMENTS, strict=True)]
    if model == "convnet":
        given = [flow.zeros(ROWS, 3, 112, 112), flow.zeros(ROWS, dtype=flow.int64)]
    elif model == "products":
        given = [flow.zeros(4096, 1024), flow.zeros(4096, dtype=flow.int64)]
    optimizer = flow.optim.AdamW(made.parameters(), lr=1e-3, weight_decay=0.1)
    if not mode.startswith("eager"):
        return partial(Training(made, optimizer, mode), *given)

    def step():
        with flow.autocast("cpu", flow.bfloat16, enabled=amp):
            loss = made(*given)
        loss.backward()
        nn.utils.clip_grad_norm_(made.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def move(weight):
    """Give a parameter other memory; returns what has its present memory, which is not reused."""
    before = weight.shards
    weight.data = weight.data.clone()
    return before


def capture_faults(gpu, step):
    """What is wrong in the CUDA graphs of a graph's training step, captured in two steps."""
    graph = step.func
    for _ in range(4):
        step()
    reason = graph.cuda_graph_reason
    kept = move(next(iter(graph.model.parameters())))  # so that the step is captured again
    for _ in range(3):
        step()
    del kept
    if reason or not gpu.captures:
        return [f"not replayed: {reason}"]
    between = [line for line in graph.plan(0).splitlines() if line.startswith("# between")]
    found = [line for line in between if not line.startswith("# between: adapt_scale: ")]
    pairs = zip(gpu.captures, gpu.captures[len(gpu.captures) // 2 :], strict=False)
    return found + [
        f"{text}\n    in {form}" for pair in pairs for form, text in number_faults(*pair)
    ]


# Every optimizer, in the forms that its options make.
OPTIMIZERS = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    ("Adam", {"lr": 0.1, "weight_decay": 0.1}),
    ("AdamW", {"lr": 0.1, "amsgrad": True}),
    ("NAdam", {"lr": 0.1}),
    ("RAdam", {"lr": 0.1}),
    ("Adamax", {"lr": 0.1}),
    ("Adagrad", {"lr": 0.1}),
    ("Adadelta", {"lr": 0.1}),
    ("ASGD", {"lr": 0.1}),
    ("RMSprop", {"lr": 0.1, "momentum": 0.9, "centered": True}),
    ("Rprop", {"lr": 0.1}),
    ("Adafactor", {"lr": 0.1}),
    ("LAMB", {"lr": 0.1}),
    ("LARS", {"lr": 0.1, "momentum": 0.9}),
    ("Muon", {"lr": 0.1}),
    ("LBFGS", {"lr": 0.1}),
]


def optimizer_step(name, options):
    """A function that updates a few matrices, two of which have odd sizes."""
    params = [nn.Parameter(flow.ones(*shape)) for shape in ((64, 48), (33, 7), (5, 129))]
    optimizer = getattr(flow.optim, name)(params, **options)

    def loss():
        optimizer.zero_grad()
        found = sum((x * x).sum() for x in params)
        found.backward()
        return found

    return lambda: optimizer.step(loss)
