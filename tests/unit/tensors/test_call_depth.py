"""How many Python calls lie between a function of a tensor and its dispatch."""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import pytest

from dmlgpu import Tensor, ops
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.numpy.backend import NumPyBackend

CACHED = 8
"""Most calls from the function to the dispatch, both counted, if the operator is compiled and recorded."""

COMPILED = 10
"""Most calls from the function to the compilation of the operator, both counted, and to the dispatch after it."""

DISPATCH = NumPyBackend.enqueue.__code__
COMPILATION = Device.compile_operator.__code__

CALLS: dict[str, Callable[[Tensor], Any]] = {
    "softmax": ops.softmax,
    "directml": ops.directml.activation_relu,
    "operator": operator.invert,
    "number": functools.partial(operator.mul, 2),
    "method": Tensor.copy,
}


def depths(function: Callable[[Tensor], Any], x: Tensor) -> dict[Any, list[str]]:
    """The calls that lead to the deepest call of the executor and of the compiler, by code object."""
    deepest: dict[Any, list[str]] = {}

    def run() -> None:
        function(x)

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code in (DISPATCH, COMPILATION):
            names, caller = [], frame
            while caller.f_code is not run.__code__:
                names.append(caller.f_code.co_qualname)
                assert caller.f_back is not None
                caller = caller.f_back
            deepest[frame.f_code] = max(names[::-1], deepest.get(frame.f_code, []), key=len)

    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(None)
    return deepest


@pytest.mark.parametrize("name", CALLS)
def test_few_calls_lead_to_the_dispatch(name: str) -> None:
    data_type = np.uint8 if CALLS[name] is operator.invert else np.float32
    x = Tensor(np.ones((3, 5), data_type), device=Device("numpy"))
    new = depths(CALLS[name], x)
    assert set(new) == {DISPATCH, COMPILATION}
    assert all(len(calls) <= COMPILED for calls in new.values()), new
    cached = depths(CALLS[name], x)
    assert set(cached) == {DISPATCH}
    assert len(cached[DISPATCH]) <= CACHED, cached
