"""Training steps of a few matrices, for each optimizer: rates, scales and skipped steps change."""

import torch

import onefold as flow
from onefold import nn

RECORDED = [
    ("AdamW", {"weight_decay": 0.1}),
    ("AdamW", {"amsgrad": True, "do_bias_correction": False}),
    ("Adam", {"weight_decay": 0.1, "maximize": True}),
    ("SGD", {}),
    ("SGD", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    ("RMSprop", {"momentum": 0.9, "centered": True}),
    ("Adadelta", {}),
    ("Rprop", {}),
]
ON_THE_HOST = [  # what only the host counts, so that no scaler may skip it
    ("Adagrad", {"lr_decay": 0.1}),
    ("Adamax", {"weight_decay": 0.1}),
    ("NAdam", {}),
    ("RAdam", {}),
    ("ASGD", {"t0": 3}),
    ("SparseAdam", {}),
]


def names(rows):
    return [f"{name}-{number}" for number, (name, _) in enumerate(rows)]


class Fit(nn.Graph):
    """A step with two groups, one of which is clipped, a schedule, and perhaps a scaler."""

    def __init__(
        self, name, options, *, cuda_graph=True, in_backward=False, scaled=False, clip=0.5,
        make=None, **layout,
    ):  # fmt: skip
        super().__init__()
        flow.manual_seed(2)
        up, down = nn.Linear(5, 4, **layout), nn.Linear(4, 3, bias=False, **layout)
        self.model = nn.Sequential(up, nn.Tanh(), down)
        first, *others = self.model.parameters()
        groups = [{"params": others}, {"params": [first], "lr": 0.03}]
        if clip is not None:
            groups[1] |= {"clip_grad_max_norm": clip, "clip_grad_norm_type": 2.0}
        cls = make or getattr(flow.optim, name)
        self.optimizer = cls(groups, lr=0.1, **options)
        schedule = flow.optim.lr_scheduler.StepLR(self.optimizer, 1, 0.7)
        self.add_optimizer(self.optimizer, lr_sch=schedule)
        self.config.enable_cuda_graph(cuda_graph)
        self.config.enable_optimizer_in_backward(in_backward)
        if scaled:
            self.set_grad_scaler(flow.amp.GradScaler(init_scale=8.0, growth_interval=2))

    def build(self, x):
        loss = self.model(x).square().mean()
        loss.backward()
        return loss


def inputs(count, skipped=(), **layout):
    """Inputs of steps; those that are `skipped` make gradients that are not finite."""
    flow.manual_seed(4)
    found = [flow.randn(6, 5, **layout) for _ in range(count)]
    return [x * float("inf") if number in skipped else x for number, x in enumerate(found)]


def cycled(cuda_graph, **layout):
    """What steps left whose options change in each, and why none was replayed.

    A schedule that cycles momentum does this.
    """
    graph = Fit("AdamW", {"weight_decay": 0.1}, cuda_graph=cuda_graph, **layout)
    for number, x in enumerate(inputs(6, **layout)):
        for group in graph.optimizer.param_groups:
            group |= {"betas": (0.5 + number / 100, 0.9), "weight_decay": number / 10}
        graph(x)
    return left(graph), graph.cuda_graph_reason


def left(graph):
    """The bits that steps left: parameters, states, and what the scaler keeps."""
    found = [*graph.model.parameters()]
    for group in graph.optimizer.param_groups:
        for param in group["params"]:
            state = graph.optimizer.state.get(param, {})
            found += [state[key] for key in sorted(state)]
    scaler = graph._scaler
    found += [] if scaler is None else [*scaler.state_dict().values()]
    return [x.numpy() if isinstance(x, flow.Tensor) else float(x) for x in found]


def run(graph, given, change=None):
    """The losses of steps, and what they left; `change` is made before the fifth."""
    losses = []
    for number, x in enumerate(given):
        if number == 4 and change is not None:
            change(graph)
        losses.append(graph(x).numpy())
    return [*losses, *left(graph)]


def assert_same(found, wanted):
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)
