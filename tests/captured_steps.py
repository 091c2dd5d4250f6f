"""A training step with all that a CUDA graph must not freeze: draws, schedules, statistics."""

import onefold as flow
from onefold import nn, sbp


class Noisy(nn.Module):
    """Dropout, running statistics, and tensors that are made of nothing."""

    def __init__(self, **layout):
        super().__init__()
        self.up, self.down = nn.Linear(4, 8, **layout), nn.Linear(8, 2, **layout)
        self.norm = nn.BatchNorm1d(8, **layout)
        self.register_buffer("calls", flow.zeros(1, **layout))
        self.register_buffer("mixing", flow.arange(64, **layout).view(8, 8) * 0.01)

    def forward(self, x):
        self.calls += 1
        h = nn.functional.dropout(self.norm(self.up(x)), 0.5) @ self.mixing
        q = h.view(-1, 1, 2, 4)
        h = h + nn.functional.scaled_dot_product_attention(q, q, q, dropout_p=0.5).view(-1, 8)
        weights = flow.arange(8, **of(x)) * 0.1
        return self.down(h * weights + flow.rand(8, **of(x)))


def of(x):
    """How a tensor that a module makes is laid out."""
    return {"placement": x.placement, "sbp": sbp.broadcast} if x.is_global else {"device": x.device}


class Train(nn.Graph):
    """A step with a schedule, clipping, accumulation, a scaled loss, as asked for."""

    def __init__(
        self, *, cuda_graph=True, in_backward=False, parts=1, clip=None, scaler=None, returns=None,
        **layout,
    ):  # fmt: skip
        super().__init__()
        flow.manual_seed(3)
        self.model = Noisy(**layout)
        self.clip, self.returns = clip, returns
        options = {} if clip is None else {"clip_grad_max_norm": clip, "clip_grad_norm_type": 2.0}
        params = [{"params": [*self.model.parameters()], **options}]
        optimizer = flow.optim.AdamW(params, lr=0.1)
        self.add_optimizer(optimizer, lr_sch=flow.optim.lr_scheduler.StepLR(optimizer, 1, 0.8))
        self.config.set_gradient_accumulation_steps(parts)
        self.config.enable_cuda_graph(cuda_graph)
        self.config.enable_optimizer_in_backward(in_backward)
        if scaler is not None:
            self.set_grad_scaler(scaler)

    def build(self, x):
        loss = self.model(x).square().mean()
        loss.backward()
        return loss if self.returns is None else (loss, self.returns(self, x))


def batches(count, rows=6, **layout):
    flow.manual_seed(7)
    return [flow.randn(rows, 4, **layout) for _ in range(count)]


def trained(graph, given):
    """The results of calls, and what they left in the model."""
    flow.manual_seed(11)
    found = []
    for x in given:
        result = graph(x)
        found += [*result] if isinstance(result, tuple) else [result]
    return [x.numpy() for x in found] + [x.numpy() for x in graph.model.state_dict().values()]
