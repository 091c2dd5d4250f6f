"""Training a small model on one device, by a strategy, and by the code that it prints."""

import onefold as flow

# How tensor parallelism splits a GPT, by the names of parameters.
TABLE = (
    ("*norm*", "replicate"),
    ("*ln_*", "replicate"),
    ("embed_tokens.*", "vocab"),
    ("*c_attn.*", "column"),
    ("*c_fc.*", "column"),
    ("*c_proj.*", "row"),
    ("lm_head.*", "column"),
)


def adamw(model):
    return flow.optim.AdamW(model.parameters(), lr=0.05)


def on_one_device(model, batch, loss, steps=3):
    optimizer, losses = adamw(model), []
    for _ in range(steps):
        optimizer.zero_grad()
        found = loss(model, *batch)
        found.backward()
        optimizer.step()
        losses.append(found.item())
    return losses


def trained(graph, batch, steps=3):
    return [graph(*batch).mean().item() for _ in range(steps)]


def layouts(model):
    return {name: (p.placement, p.sbp) for name, p in model.named_parameters()}


def from_code(strategy, model, batch, loss):
    """The losses and layouts of the code that a strategy prints."""
    space = {}
    exec(str(strategy), space)
    space["lay_out"](model)
    graph = space["Train"](model, loss, adamw(model))
    return trained(graph, space["place"](*batch)), layouts(model)
