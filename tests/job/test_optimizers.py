"""The update rules of jobs, in the words of both generations, against their formulas."""

import numpy as np
import pytest

import onefold.job as flow
import onefold.job.typing as tp
from onefold.errors import OnefoldTypeError, OnefoldValueError
from onefold.job.conf_dicts import schedule_of
from onefold.job.session import session

X = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)
START = np.random.default_rng(1).normal(size=(6, 3)).astype(np.float32)
STEPS = 4
RATES = [0.1, 0.1, 0.05, 0.05]


@pytest.fixture(autouse=True)
def fresh_session():
    flow.clear_default_session()
    yield
    flow.clear_default_session()


def norm(x):
    return float(np.sqrt((x * x).sum()))


def momentum(w, g, kept, lr, beta=0.9, decay=0.0):
    kept["moved"] = beta * kept.get("moved", 0.0) - lr * g
    return w + kept["moved"] - lr * decay * w


def adam(w, g, kept, lr, beta1=0.9, beta2=0.999, epsilon=1e-8, correct=False, decay=0.0):
    kept["n"] = kept.get("n", 0) + 1
    kept["m"] = beta1 * kept.get("m", 0.0) + (1 - beta1) * g
    kept["v"] = beta2 * kept.get("v", 0.0) + (1 - beta2) * g * g
    m, v = kept["m"], kept["v"]
    if correct:
        m, v = m / (1 - beta1 ** kept["n"]), v / (1 - beta2 ** kept["n"])
    return w - lr * (m / (np.sqrt(v) + epsilon) + decay * w)


def rmsprop(w, g, kept, lr, rate=0.99, epsilon=1e-8, centered=False):
    kept["square"] = rate * kept.get("square", 0.0) + (1 - rate) * g * g
    kept["mean"] = rate * kept.get("mean", 0.0) + (1 - rate) * g
    spread = kept["square"] - (kept["mean"] ** 2 if centered else 0.0)
    return w - lr * g / np.sqrt(spread + epsilon)


def lars(w, g, kept, lr, beta=0.9, epsilon=1e-9, coefficient=1e-4, decay=0.0):
    own = lr * coefficient * norm(w) / (norm(g) + decay * norm(w) + epsilon)
    return momentum(w, g, kept, own, beta, decay)


def lamb(w, g, kept, lr, beta1=0.9, beta2=0.999, epsilon=1e-6, decay=0.0):
    u = w - adam(w, g, kept, 1.0, beta1, beta2, epsilon, True, decay)
    return w - lr * norm(w) / norm(u) * u


def wanted(rule, rates=RATES, most=None, **options):
    """What the weights are after the steps of a formula."""
    w, kept = START.astype(np.float64), {}
    for lr in rates:
        y = X.astype(np.float64) @ w
        g = 2 * X.astype(np.float64).T @ y / y.size
        if most is not None:
            g = g * min(1.0, most / norm(g))
        w = rule(w, g, kept, lr, **options)
    return w


def network(x, **of_weight):
    w = flow.get_variable("w", (6, 3), initializer=flow.zeros_initializer(), **of_weight)
    return flow.math.square(flow.matmul(x, w))


def weights_after(job, x):
    flow.train.CheckPoint().init()
    flow.load_variables({"w": START})
    for _ in range(STEPS):
        job(x)
    return session.variables["w"].tensor.numpy()


def second(make):
    """The weights behind a job of the second generation, whose weight is split over devices."""
    flow.config.gpu_device_num(2)

    @flow.global_function(type="train")
    def job(x: tp.Numpy.Placeholder((4, 6))) -> tp.Numpy:
        loss = network(x, distribute=flow.distribute.split(0))
        make(flow.optimizer.PiecewiseConstantScheduler([1], [0.1, 0.05])).minimize(loss)
        return loss

    return weights_after(job, X)


def first(conf, rate=0.1):
    """The weights behind a job of the first generation, in the mirrored view."""
    flow.config.gpu_device_num(2)
    config = flow.function_config()
    config.train.primary_lr(rate)
    config.train.model_update_conf(conf)

    @flow.global_function(config)
    def job(x=flow.MirroredTensorDef((4, 6))):  # noqa: B008 (the words of the generation)
        loss = network(x)
        flow.losses.add_loss(loss)
        return loss

    return weights_after(job, [X[:2], X[2:]])


def close(found, right):
    np.testing.assert_allclose(found, right, rtol=2e-5, atol=2e-6)


O = flow.optimizer  # noqa: E741
DECAY = {"weight_decay": 0.1}
WORDS = {
    "SGD": (O.SGD, momentum, {}),
    "SGD, plain": (lambda s: O.SGD(s, momentum=0), momentum, {"beta": 0.0}),
    "SGDW": (lambda s: O.SGDW(s, None, 0.8, **DECAY), momentum, {"beta": 0.8, "decay": 0.1}),
    "Adam": (lambda s: O.Adam(s, 0.8, 0.9, 1e-3), adam,
             {"beta1": 0.8, "beta2": 0.9, "epsilon": 1e-3}),
    "Adam, corrected": (lambda s: O.Adam(s, do_bias_correction=True), adam, {"correct": True}),
    "AdamW": (lambda s: O.AdamW(s, **DECAY), adam, {"decay": 0.1}),
    "LazyAdam": (lambda s: O.LazyAdam(s, 0.8, 0.9, 1e-3), adam,
                 {"beta1": 0.8, "beta2": 0.9, "epsilon": 1e-3}),
    "RMSProp": (O.RMSProp, rmsprop, {}),
    "RMSProp, centered": (lambda s: O.RMSProp(s, 0.8, 0.1, True), rmsprop,
                          {"rate": 0.8, "epsilon": 0.1, "centered": True}),
    "LARS": (O.LARS, lars, {}),
    "LARS, all": (lambda s: O.LARS(s, 0.5, 0.1, 0.3, **DECAY), lars,
                  {"beta": 0.5, "epsilon": 0.1, "coefficient": 0.3, "decay": 0.1}),
    "LAMB": (O.LAMB, lamb, {}),
    "LAMB, all": (lambda s: O.LAMB(s, 0.8, 0.9, 1e-3, **DECAY), lamb,
                  {"beta1": 0.8, "beta2": 0.9, "epsilon": 1e-3, "decay": 0.1}),
}  # fmt: skip


@pytest.mark.parametrize("name", WORDS)
def test_classes_follow_their_formulas(name):
    make, rule, options = WORDS[name]
    close(second(make), wanted(rule, **options))


CONFS = {
    "naive_conf": ({}, momentum, {"beta": 0.0}),
    "momentum_conf": ({"beta": 0.5}, momentum, {"beta": 0.5}),
    "rmsprop_conf": ({"decay_rate": 0.8, "epsilon": 0.1, "centered": True}, rmsprop,
                     {"rate": 0.8, "epsilon": 0.1, "centered": True}),
    "lars_conf": ({"momentum_beta": 0.5, "epsilon": 0.1, "lars_coefficient": 0.3}, lars,
                  {"beta": 0.5, "epsilon": 0.1, "coefficient": 0.3}),
    "adam_conf": ({"beta1": 0.8, "do_bias_correction": True}, adam,
                  {"beta1": 0.8, "correct": True}),
    "lazy_adam_conf": ({"epsilon": 1e-2}, adam, {"epsilon": 1e-2}),
    "lamb_conf": ({"beta2": 0.9}, lamb, {"beta2": 0.9}),
}  # fmt: skip


@pytest.mark.parametrize("name", CONFS)
def test_dicts_follow_their_formulas(name):
    conf, rule, options = CONFS[name]
    close(first({name: conf}), wanted(rule, [0.1] * STEPS, **options))


@pytest.mark.parametrize("name", ["momentum_conf", "adam_conf", "lars_conf", "lamb_conf"])
def test_dicts_with_weight_decay_and_clipping(name):
    conf = {
        name: {},
        "weight_decay_conf": {"weight_decay_rate": 0.1, "includes": {"pattern": ["^w"]}},
        "clip_conf": {"clip_by_global_norm": {"clip_norm": 0.5}},
    }
    close(first(conf), wanted(CONFS[name][1], [0.1] * STEPS, most=0.5, decay=0.1))


def test_a_wrong_formula_is_noticed():
    with pytest.raises(AssertionError):
        close(second(O.LAMB), wanted(lamb, decay=0.01))


@pytest.mark.parametrize("name", ["RMSProp", "LARS", "LAMB"])
def test_clipping_and_loss_scale(name):
    """The scale is undone exactly; LARS and LAMB take the norm of what is clipped."""

    def make(schedule):
        return getattr(O, name)(
            schedule,
            grad_clipping=O.grad_clipping.by_global_norm(0.5),
            loss_scale_policy=O.loss_scale.dynamic_loss_scale(1024.0),
        )

    close(second(make), wanted(WORDS[name][1], most=0.5))


@pytest.mark.parametrize(
    ("words", "decays"),
    [
        ({"weight_decay_includes": ["weight"]}, [True, False]),
        ({"weight_decay_excludes": "bias"}, [True, False]),
        ({"weight_decay_excludes": ["^dense", "b.as$"]}, [False, False]),
        ({}, [True, True]),
    ],
)
def test_which_variables_are_decayed(words, decays):
    rule = O.AdamW(O.CosineScheduler(0.1, 5), weight_decay=0.1, **words)
    assert [rule.decays(name) for name in ("dense-weight", "dense-bias")] == decays


def test_mistakes_are_refused():
    schedule = O.CosineScheduler(0.1, 5)
    with pytest.raises(OnefoldTypeError, match=r"LAMB takes such as lr_scheduler=.*got 0.1"):
        O.LAMB(0.1)
    with pytest.raises(OnefoldTypeError, match=r"by_global_norm\(1.0\), but got 1.0"):
        O.RMSProp(schedule, grad_clipping=1.0)
    with pytest.raises(OnefoldTypeError, match="give one of them"):
        O.SGDW(schedule, weight_decay_includes="a", weight_decay_excludes="b")
    with pytest.raises(OnefoldTypeError, match="leave it out"):
        O.LARS(schedule, train_step_lbn="step/out")
    train = flow.function_config().train
    for conf, text in (
        ({"lars_conf": {"momentum": 0.9}}, "may have momentum_beta.*but got momentum"),
        ({"rmsprop_conf": {}, "weight_decay_conf": {"weight_decay_rate": 1}}, "no weight decay"),
        ({"lamb_conf": {}, "adam_conf": {}}, "needs one of .*lamb_conf"),
        ({"lion_conf": {}}, "but got lion_conf"),
        ({"lion_conf": {}, "naive_conf": {}}, "but got lion_conf, naive_conf"),
        ({"naive_conf": {}, "weight_decay_conf": {}}, "needs weight_decay_rate"),
        (
            {"lamb_conf": {}, "weight_decay_conf": {"weight_decay_rate": 1, "includes": {"a": 1}}},
            "needs one of pattern, but got a",
        ),
        ({"naive_conf": {}, "clip_conf": {"by_value": 1}}, "needs one of clip_by_global_norm"),
        ({"naive_conf": {}, "learning_rate_decay": {"cosine_conf": {}}}, "needs decay_batches"),
        ({"naive_conf": {}, "warmup_conf": {"linear_conf": {"steps": 1}}}, "needs warmup_batches"),
    ):
        with pytest.raises(OnefoldValueError, match=text):
            train.model_update_conf(conf)
    with pytest.raises(OnefoldTypeError, match=r"needs a dict.*but got 'naive_conf'"):
        train.model_update_conf("naive_conf")
    assert not train.is_set


@pytest.mark.parametrize(
    ("conf", "schedule"),
    [
        ({"cosine_conf": {"decay_batches": 9, "alpha": 0.1}}, O.CosineScheduler(0.3, 9, 0.1)),
        ({"linear_cosine_conf": {"decay_batches": 9, "num_periods": 2.0, "beta": 0.1}},
         O.LinearCosineScheduler(0.3, 9, 2.0, beta=0.1)),
        ({"exponential_conf": {"decay_batches": 4, "decay_rate": 0.5, "staircase": True}},
         O.ExponentialScheduler(0.3, 4, 0.5, True)),
        ({"inverse_time_conf": {"decay_batches": 4, "decay_rate": 0.5}},
         O.InverseTimeScheduler(0.3, 4, 0.5)),
        ({"natural_exp_conf": {"decay_batches": 4, "decay_rate": 0.5}},
         O.NaturalExpScheduler(0.3, 4, 0.5)),
        ({"piecewise_constant_conf": {"boundaries": [3, 5], "values": [1.0, 0.5, 0.1]}},
         O.PiecewiseConstantScheduler([3, 5], [1.0, 0.5, 0.1])),
        ({"piecewise_scaling_conf": {"boundaries": [3, 5], "scales": [1, 0.5, 0.1]}},
         O.PiecewiseScalingScheduler(0.3, [3, 5], [0.5, 0.1])),
        ({"polynomial_conf": {"decay_batches": 4, "power": 2.0, "cycle": True}},
         O.PolynomialScheduler(0.3, 4, power=2.0, cycle=True)),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)  # fmt: skip
def test_dicts_of_schedules_are_the_schedules(conf, schedule):
    plain = schedule_of(0.3, conf, None)
    assert [plain.rate(0, n) for n in range(12)] == [schedule.rate(0, n) for n in range(12)]
    ahead = {"linear_conf": {"warmup_batches": 4, "start_multiplier": 0.5}}
    warmed = schedule_of(0.3, conf, ahead)
    base = 1.0 if "piecewise_constant_conf" in conf else 0.3
    assert [warmed.rate(0, n) for n in (0, 2)] == pytest.approx([base * 0.5, base * 0.75])
    assert warmed.rate(0, 6) == plain.rate(0, 6)
