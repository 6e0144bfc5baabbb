"""External data wherever a tensor may stand: initializers, bodies, attributes, functions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dmlgpu.common.errors import ModelError
from dmlgpu.frontends.onnx import checking, load
from dmlgpu.frontends.onnx.model import read
from dmlgpu.frontends.onnx.preview import preview
from dmlgpu.runtime.device import Device
from tests.unit.frontends.onnx.onnx_models import onnxruntime_outputs

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
X = np.array([1, -2, 3, -4], np.float32)
PLACES = ("initializer", "constant", "filler", "if", "nested", "loop", "scan", "function", "default", "argument")


def tensor(name: str, first: float, count: int = 4) -> TensorProto:
    return numpy_helper.from_array(first + np.arange(count, dtype=np.float32), name)


def constant(output: str, first: float) -> onnx.NodeProto:
    return helper.make_node("Constant", [], [output], value=tensor("", first))


def graph(name: str, nodes: list[Any], inputs: dict[str, Any], outputs: list[str], held: list[Any]) -> onnx.GraphProto:
    kinds = {"on": (BOOL, []), "go": (BOOL, []), "number": (INT64, [])}
    infos = [helper.make_tensor_value_info(item, *kinds.get(item, (FLOAT, [4]))) for item in inputs]
    return helper.make_graph(
        nodes,
        name,
        infos,
        [helper.make_tensor_value_info(item, *kinds.get(item, (FLOAT, [4]))) for item in outputs],
        held,
    )


def model_with(place: str) -> onnx.ModelProto:
    """Return a model that adds an external tensor to x."""
    node = helper.make_node
    nodes: list[onnx.NodeProto] = []
    weights, functions = [numpy_helper.from_array(np.array(True), "yes")], []
    add = node("Add", ["x", "w"], ["t"])
    other = graph("other", [node("Neg", ["x"], ["t"])], {}, ["t"], [])
    if place == "initializer":
        weights.append(tensor("w", 1))
        nodes = [node("Add", ["x", "w"], ["y"])]
    elif place == "constant":
        nodes = [constant("w", 1), node("Add", ["x", "w"], ["y"])]
    elif place == "filler":
        weights.append(numpy_helper.from_array(np.array([4]), "sizes"))
        nodes = [node("ConstantOfShape", ["sizes"], ["w"], value=tensor("", 7, 1)), node("Add", ["x", "w"], ["y"])]
    elif place == "if":
        then = graph("then", [constant("v", 2), add, node("Mul", ["t", "v"], ["u"])], {}, ["u"], [tensor("w", 1)])
        nodes = [node("If", ["yes"], ["y"], then_branch=then, else_branch=other)]
    elif place == "nested":
        inner = graph("inner", [add], {}, ["t"], [tensor("w", 1)])
        then = graph("then", [node("If", ["yes"], ["t"], then_branch=inner, else_branch=other)], {}, ["t"], [])
        nodes = [node("If", ["yes"], ["y"], then_branch=then, else_branch=other)]
    elif place == "loop":
        steps = [
            constant("v", 2),
            node("Add", ["s", "w"], ["t"]),
            node("Mul", ["t", "v"], ["u"]),
            node("Identity", ["go"], ["on"]),
        ]
        body = graph("body", steps, dict.fromkeys(("number", "go", "s")), ["on", "u"], [tensor("w", 1)])
        weights.append(numpy_helper.from_array(np.array(2), "count"))
        nodes = [node("Loop", ["count", "", "x"], ["y"], body=body)]
    elif place == "scan":
        steps = [node("Add", ["s", "w"], ["t"]), node("Add", ["t", "row"], ["u"])]
        body = graph("body", steps, dict.fromkeys(("s", "row")), ["u"], [tensor("w", 1)])
        nodes = [
            node("Unsqueeze", ["x", "axis"], ["rows"]),
            node("Scan", ["x", "rows"], ["y"], body=body, num_scan_inputs=1),
        ]
        weights.append(numpy_helper.from_array(np.array([0]), "axis"))
    else:
        held = node("Constant", [], ["w"]) if place != "function" else constant("w", 1)
        if place != "function":
            held.attribute.add(name="value", ref_attr_name="held", type=onnx.AttributeProto.TENSOR)
        defaults = [helper.make_attribute("held", tensor("", 1))] if place == "default" else []
        names = ["held"] if place == "argument" else []
        imports = [helper.make_opsetid("", 18)]
        functions = [helper.make_function("local", "Plus", ["x"], ["t"], [held, add], imports, names, defaults)]
        attributes = {"held": tensor("", 5)} if place == "argument" else {}
        nodes = [node("Plus", ["x"], ["y"], domain="local", **attributes)]
    infos = [helper.make_tensor_value_info(name, FLOAT, [4]) for name in "xy"]
    main = helper.make_graph(nodes, "main", infos[:1], infos[1:], weights)
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("local", 1)]
    return helper.make_model(main, functions=functions, opset_imports=imports, ir_version=10)


def tensors_in(message: Any) -> Iterator[TensorProto]:
    """Return all tensors below a message of protobuf, found by its fields."""
    for field, value in message.ListFields():
        if field.message_type is not None:
            for item in value if hasattr(value, "__len__") else [value]:
                yield from [item] if isinstance(item, TensorProto) else tensors_in(item)


def saved(model: onnx.ModelProto, folder: Path) -> Path:
    """Write a model whose float tensors are in a file next to it."""
    data = b""
    for item in tensors_in(model):
        if item.data_type == FLOAT:
            raw, offset = item.raw_data, len(data)
            data += raw
            item.ClearField("raw_data")
            item.data_location = TensorProto.EXTERNAL
            for key, value in {"location": "data.bin", "offset": offset, "length": len(raw)}.items():
                item.external_data.add(key=key, value=str(value))
    assert data
    (folder / "data.bin").write_bytes(data)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return folder / "model.onnx"


@pytest.mark.parametrize("place", PLACES)
def test_external_data_load_wherever_they_are(place: str, tmp_path: Path) -> None:
    model = model_with(place)
    expected = onnxruntime_outputs(model, {"x": X})
    path = saved(model, tmp_path)
    np.testing.assert_array_equal(load(path, "numpy").run({"x": X})["y"], expected[0])
    assert preview(path, Device("numpy")).weight_bytes >= 4
    checked = checking.check(path, Device("numpy"), {"x": X})
    assert checked.divergences == ()
    assert checked.compared >= 1
    for source in (path.read_bytes(), onnx.load(path, load_external_data=False)):
        with pytest.raises(ModelError, match=r"in an external file: pass the path of the model, not bytes"):
            load(source, "numpy")
    (tmp_path / "data.bin").write_bytes(b"abc")
    with pytest.raises(ModelError, match=r"bytes from byte \d+ on of data.bin, which has 3"):
        load(path, "numpy")


@pytest.mark.parametrize("place", ["if", "loop", "function"])
def test_external_data_are_mapped(place: str, tmp_path: Path) -> None:
    arrays = [item.array for item in read(saved(model_with(place), tmp_path)).weights.values()]
    mapped = [item for item in arrays if item is not None and item.dtype == np.float32]
    assert mapped
    for array in mapped:
        views = [array]
        while isinstance(views[-1].base, np.ndarray):
            views.append(views[-1].base)
        assert any(isinstance(item, np.memmap) for item in views)
