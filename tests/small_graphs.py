"""Graphs that several tests use: one predicts, the other trains."""

import onefold as flow
from onefold import nn


class Predict(nn.Graph):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def build(self, x):
        return self.model(x)


class SquareMean(nn.Graph):
    """A training step, whose loss is the mean of the squared outputs."""

    def __init__(self, model, optimizer):
        super().__init__()
        self.model = model
        self.add_optimizer(optimizer)

    def build(self, x):
        loss = self.model(x).square().mean()
        loss.backward()
        return loss


class SquareMeanSGD(SquareMean):
    """The same with SGD, perhaps in mixed precision."""

    def __init__(self, model, amp=False):
        super().__init__(model, flow.optim.SGD(model.parameters(), lr=0.1))
        self.config.enable_amp(amp, dtype=flow.bfloat16)
