"""``dmlgpu.profile`` on the adapter ``numpy``, which times submissions as a whole."""

from __future__ import annotations

import numpy as np

import dmlgpu
from dmlgpu import Tensor, ops


def test_a_profile_has_the_kernels_that_run_inside() -> None:
    x = Tensor(np.ones(3, np.float32), device="numpy")
    ops.relu(x)
    with dmlgpu.profile() as outer:
        ops.relu(x)
        with dmlgpu.profile() as inner:
            y = ops.exp(x)
    ops.relu(y)
    assert [label for label, _, _ in outer.kernels] == ["relu", "exp"]
    assert [label for label, _, _ in inner.kernels] == ["exp"]
    assert outer.by_kernel()["relu"][0] == 1
    assert all(seconds > 0 for _, _, seconds in outer.kernels)
    assert "1 run: 2 kernels, " in repr(outer)
    names = {event["name"] for event in outer.trace()["traceEvents"]}
    assert {"relu", "exp", "run 1 kernels"} <= names
    assert np.allclose(y.numpy(), np.exp(1))


def test_a_profile_ends_with_an_error_inside() -> None:
    x = Tensor(np.ones(3, np.float32), device="numpy")
    try:
        with dmlgpu.profile() as profile:
            raise KeyError
    except KeyError:
        pass
    ops.relu(x)
    assert profile.kernels == []
    assert repr(profile) == "1 run: 0 kernels, 0.000 ms, each timed separately"
