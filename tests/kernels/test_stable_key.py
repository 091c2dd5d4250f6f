"""Keys of compiled forms are the same in every order of first use."""

import pytest
from triton.runtime.jit import JITCallable

from onefold.kernels.gpu.launch import registry, stable_key
from onefold.kernels.gpu.launch.jit_kernel import Kernel


@pytest.fixture
def functions():
    """The Triton functions of all kernels and those that they call, whose keys are forgotten."""
    found = {}

    def collect(values):
        for value in values:
            if isinstance(value, JITCallable) and id(value) not in found:
                found[id(value)] = value
                collect(stable_key._called(value.fn))

    collect(value.jit for m in registry.modules() for value in vars(m).values()
            if isinstance(value, Kernel))  # fmt: skip
    yield found.values()
    forget(found.values())


def forget(functions):
    for function in functions:
        function.hash, function.used_global_vals = None, {}


def keys_in_order(functions, settle):
    forget(functions)
    for function in functions:
        if settle:
            stable_key.settle_keys([function])
        _ = function.cache_key
    return {id(function): function.cache_key for function in functions}


def test_the_order_of_first_use_does_not_matter(functions):
    forwards, backwards = [*functions], [*functions][::-1]
    assert keys_in_order(forwards, True) == keys_in_order(backwards, True)


def test_without_this_the_order_matters(functions):
    """Where this fails, Triton has been mended, and stable_key.py can go."""
    forwards, backwards = [*functions], [*functions][::-1]
    assert keys_in_order(forwards, False) != keys_in_order(backwards, False)
