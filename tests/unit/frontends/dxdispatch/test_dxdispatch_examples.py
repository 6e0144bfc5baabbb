"""The models in examples/ run and give what their comments say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dmlgpu
from dmlgpu.common.errors import NotSupported
from dmlgpu.frontends import dxdispatch

EXAMPLES = Path(__file__).parents[4] / "examples"

RESULTS = {
    "operator.json": {"result": [8.5, 10.5, 20.5, 22.5]},
    "graph.json": {"output": [10, -40, 90, -160]},
    "subranges.json": {"joined": [9, 10, 11, 100, 200, 5, 6]},
    "onnx.json": {"sum": [11, 22, 33, 44, 55, 66], "row": [1, 2, 3]},
    "shader.json": {"sum": [0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5, -1]},
}


def test_every_example_has_a_result() -> None:
    assert {path.name for path in EXAMPLES.glob("*.json")} == set(RESULTS)


@pytest.mark.parametrize("name", [name for name in RESULTS if name != "shader.json"])
def test_example(name: str, tmp_path: Path) -> None:
    result = dxdispatch.run(EXAMPLES / name, dmlgpu.Device("numpy"), output_directory=tmp_path)
    assert {key: array.ravel().tolist() for key, array in result.items()} == RESULTS[name]


def test_shaders_need_an_adapter_that_runs_them() -> None:
    with pytest.raises(NotSupported, match=r"^shader 'add': NumPy: numpy .* runs no shaders"):
        dxdispatch.run(EXAMPLES / "shader.json", dmlgpu.Device("numpy"))


def test_an_onnx_file_by_itself_runs_with_implicit_bindings() -> None:
    options = dxdispatch.OnnxOptions(name_overrides={"columns": 5}, shapes={"x": (3, 5), "y": (1, 5)})
    model = dxdispatch.load(EXAMPLES / "add.onnx", onnx=options)
    events = dxdispatch.execute(model, dmlgpu.Device("numpy"), print_onnx_bindings=True).events
    bound = [event for event in events if isinstance(event, dxdispatch.OnnxBound)]
    assert [(event.name, event.resource, event.shape) for event in bound] == [
        ("x", "implicit", (3, 5)),
        ("y", "implicit", (1, 5)),
        ("z", "deferred", (-1, 5)),
    ]
    assert str(bound[2]) == (
        "Output Tensor 'z':\n  Resource  = deferred (DirectX)\n  Data Type = FLOAT\n  Shape     = [-1,5]\n"
    )
    assert np.shape(events[-1].cpu) == (1,)
