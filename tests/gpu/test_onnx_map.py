"""Batches on different drivers of a machine at once, one of which loses its process."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import psutil
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from dmlgpu.frontends.onnx import load
from dmlgpu.runtime.adapters import adapters
from tests.gpu.usable import usable_adapters

pytestmark = pytest.mark.gpu

COUNT = 30


def test_two_adapters_of_which_one_is_killed() -> None:
    known = adapters()
    chosen = [known.index(info) for info in usable_adapters(numpy=True)][:2]
    if not known[chosen[0]].is_software:
        pytest.skip("a GPU is done before the other adapter has taken enough of its work")
    weights = np.random.default_rng(0).normal(size=(8, 3, 3, 3)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]), helper.make_node("Relu", ["c"], ["y"])],
        "layer",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 16, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weights, "w")],
    )
    session = load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), "numpy")
    pictures = np.random.default_rng(1).normal(size=(COUNT, 1, 3, 16, 16)).astype(np.float32)

    def batches() -> Iterator[NDArray[np.float32]]:
        for index, picture in enumerate(pictures):
            if index == COUNT // 2:
                workers = [child for child in psutil.Process().children() if str(chosen[0]) in child.cmdline()]
                workers[0].kill()
            yield picture

    with pytest.warns(UserWarning, match="was lost, and starts again"):
        results = list(session.map(batches(), adapters=chosen))
    assert len(results) == COUNT
    for result, picture in zip(results, pictures, strict=True):
        np.testing.assert_allclose(result["y"], session.run({"x": picture})["y"], rtol=1e-5, atol=1e-5)
