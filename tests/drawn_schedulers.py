"""Schedulers of every kind, drawn with their options."""

from hypothesis import strategies as st

BASE_LRS = st.lists(st.floats(0.125, 2.0), min_size=1, max_size=2)
FACTORS = st.sampled_from([0.125, 0.3, 0.75, 1.0])
LENGTHS = st.integers(1, 8)
KINDS = {
    "ConstantLR": st.tuples(FACTORS, LENGTHS),
    "LinearLR": st.tuples(FACTORS, FACTORS, LENGTHS),
    "StepLR": st.tuples(LENGTHS, FACTORS),
    "MultiStepLR": st.tuples(st.sets(LENGTHS, max_size=3).map(sorted), FACTORS),
    "ExponentialLR": st.tuples(FACTORS),
    "LambdaLR": st.tuples(FACTORS.map(lambda factor: lambda step: 1 / (1 + factor * step))),
    "MultiplicativeLR": st.tuples(FACTORS.map(lambda factor: lambda step: factor + step % 3 / 20)),
    "CosineAnnealingLR": st.tuples(LENGTHS, st.sampled_from([0.0, 0.01])),
    "CosineAnnealingWarmRestarts": st.tuples(LENGTHS, st.integers(1, 3)),
    "PolynomialLR": st.fixed_dictionaries(
        {"total_iters": LENGTHS, "power": st.sampled_from([0.5, 1.0, 2.0])}
    ),
    "CyclicLR": st.fixed_dictionaries(
        {
            "base_lr": st.just(0.125),
            "max_lr": st.just(0.5),
            "step_size_up": LENGTHS,
            "cycle_momentum": st.just(False),
        }
    ),
    "OneCycleLR": st.fixed_dictionaries(
        {
            "max_lr": st.just(0.75),
            "total_steps": st.integers(40, 60),
            "cycle_momentum": st.just(False),
        }
    ),
}
PARTS = st.lists(
    st.one_of(*[st.tuples(st.just(name), options) for name, options in KINDS.items()]),
    min_size=1,
    max_size=4,
)


def schedulers(lib, optimizer, parts):
    return [
        getattr(lib, name)(optimizer, **options)
        if isinstance(options, dict)
        else getattr(lib, name)(optimizer, *options)
        for name, options in parts
    ]


def is_moved_cosine(parts, milestones):
    """Whether a cosine at step 0, which OneCycleLR gives another base rate, rises again.

    torch then adds what belongs to its own base rate.
    """
    first = sum(place == 0 for place in milestones)
    names = [name for name, _ in parts]
    return names[first] == "CosineAnnealingLR" and "OneCycleLR" in names
