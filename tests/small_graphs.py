"""Graphs that several tests use: one predicts, the other trains."""

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
