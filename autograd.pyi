"""The names of `flow.autograd`: backward, grad, Function, modes, functional, saved-tensor hooks.

Written by `make stubs`; do not edit.
"""

from .engine.autograd_api import (
    Function as Function,
    anomaly_mode as anomaly_mode,
    backward as backward,
    detect_anomaly as detect_anomaly,
    enable_grad as enable_grad,
    function as function,
    functional as functional,
    grad as grad,
    grad_mode as grad_mode,
    gradcheck as gradcheck,
    graph as graph,
    inference_mode as inference_mode,
    is_anomaly_enabled as is_anomaly_enabled,
    no_grad as no_grad,
    set_detect_anomaly as set_detect_anomaly,
    set_grad_enabled as set_grad_enabled,
)
