"""DxDispatch models with graphs: operators compiled as graphs, and graphs that were serialized."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dmlgpu
from dmlgpu.common.errors import ModelError
from dmlgpu.frontends import dxdispatch
from dmlgpu.frontends.dxdispatch.model import GraphDispatchable
from dmlgpu.frontends.dxdispatch.serialized_graph import read_graph
from tests.unit.frontends.dxdispatch import serialized_graphs as flat
from tests.unit.frontends.dxdispatch.dxdispatch_models import subtraction, values

WEIGHTS = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
BIAS = np.array([10, -100], np.float32)


def product(activation: flat.Part | None = None) -> bytes:
    """RELU(x W + bias) in two nodes: W in a file, the bias in the graph."""
    attributes = [
        flat.attribute("TransA", 3, flat.struct(0, dtype=np.uint32)),
        flat.attribute("TransB", 3, flat.struct(0, dtype=np.uint32)),
        flat.attribute("Alpha", 6, flat.struct(1, dtype=np.float32)),
        flat.attribute("Beta", 6, flat.struct(1, dtype=np.float32)),
        flat.attribute("") if activation is None else flat.attribute("FusedActivation", 1, activation),
    ]
    inputs = {
        "x": flat.tensor(1, 1, 2, 3),
        "weights": flat.tensor(1, 1, 3, 2),
        "bias": flat.tensor(1, 1, 2, 2, strides=(2, 2, 0, 1)),
    }
    gemm = flat.operator("DML_OPERATOR_GEMM", inputs, {"inner": flat.tensor(1, 1, 2, 2)}, attributes)
    relu = flat.operator(
        "DML_OPERATOR_ACTIVATION_RELU", {"inner": flat.tensor(1, 1, 2, 2)}, {"y": flat.tensor(1, 1, 2, 2)}
    )
    constants = [flat.constant("weights", "first/w"), flat.constant("bias", BIAS.tobytes())]
    return flat.graph([*constants, gemm, relu], ["x"], ["y"])


def model_of(folder: Path) -> dict[str, Any]:
    return {
        "resources": {"in": values(1, 2, 3, 4, 5, 6), "out": values(0, 0, 0, 0)},
        "dispatchables": {"net": {"type": "dmlSerializedGraph", "sourcePath": str(folder / "Partition_0.bin")}},
        "commands": [
            {"type": "dispatch", "dispatchable": "net", "bindings": {"x": "in", "y": "out"}},
            {"type": "print", "resource": "out"},
        ],
    }


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "w.bin").write_bytes(WEIGHTS.tobytes())
    (tmp_path / "Partition_0.bin").write_bytes(product())
    return tmp_path


def test_a_serialized_graph_runs(folder: Path) -> None:
    result = dxdispatch.run(model_of(folder), dmlgpu.Device("numpy"))
    expected = np.maximum(np.array([[1, 2, 3], [4, 5, 6]], np.float32) @ WEIGHTS + BIAS, 0)
    np.testing.assert_array_equal(result["out"].ravel(), expected.ravel())


def test_a_fused_activation_and_its_attributes() -> None:
    elu = flat.table(
        ("part", flat.text("DML_OPERATOR_ACTIVATION_ELU")),
        ("part", flat.parts([flat.attribute("Alpha", 6, flat.struct(0.25, dtype=np.float32))])),
    )
    result = read_graph(product(elu), "g", lambda name: WEIGHTS.tobytes())
    node = result.graph.nodes[2]
    assert node.desc.fused_activation.operator == "ACTIVATION_ELU"
    assert node.desc.fused_activation.alpha == 0.25
    assert [point.name for point in (*result.inputs, *result.outputs)] == ["x", "y"]


def test_attributes_of_each_kind() -> None:
    """A scalar, an enumeration, pairs, arrays and an absent optional tensor are converted to the JSON form."""
    fill = flat.operator(
        "DML_OPERATOR_FILL_VALUE_CONSTANT",
        {},
        {"y": flat.tensor(4)},
        [
            flat.attribute("ValueDataType", 3, flat.struct(1, dtype=np.uint32)),
            flat.attribute(
                "Value", 12, flat.table(("u8", 1), ("part", flat.struct(np.float32(2.5), 0, dtype=np.float32)))
            ),
        ],
    )
    (node,) = read_graph(flat.graph([fill], [], ["y"]), "g", lambda name: b"").graph.nodes
    assert (node.desc.value_data_type, node.desc.value) == (dmlgpu.DataType.FLOAT32, 2.5)
    reduce = flat.operator(
        "DML_OPERATOR_REDUCE",
        {"x": flat.tensor(1, 1, 2, 2)},
        {"y": flat.tensor(1, 1, 2, 1)},
        [
            flat.attribute("Function", 3, flat.struct(10, dtype=np.uint32)),
            flat.attribute("AxisCount", 3, flat.struct(1, dtype=np.uint32)),
            flat.attribute("Axes", 7, flat.table(("part", flat.numbers([3])))),
        ],
    )
    (node,) = read_graph(flat.graph([reduce], ["x"], ["y"]), "g", lambda name: b"").graph.nodes
    assert (node.desc.function.name, node.desc.axes) == ("SUM", (3,))
    linear = flat.operator(
        "DML_OPERATOR_ELEMENT_WISE_IDENTITY",
        {"x": flat.tensor(4)},
        {"y": flat.tensor(4)},
        [flat.attribute("ScaleBias", 10, flat.struct(2, 0.5, dtype=np.float32))],
    )
    (node,) = read_graph(flat.graph([linear], ["x"], ["y"]), "g", lambda name: b"").graph.nodes
    assert (node.desc.scale_bias.scale, node.desc.scale_bias.bias) == (2, 0.5)


def relu(inputs: str = "x", outputs: str = "y", attributes: tuple[flat.Part, ...] = ()) -> flat.Part:
    return flat.operator(
        "DML_OPERATOR_ACTIVATION_RELU", {inputs: flat.tensor(4)}, {outputs: flat.tensor(4)}, attributes
    )


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "g: is not a serialized DirectML graph, or is damaged: an offset leads to byte 0, outside its 0 bytes"),
        (b"\xff" * 64, "g: is not a serialized DirectML graph, or is damaged: an offset leads to byte 4294967295"),
        (
            flat.graph([relu("z")], ["x"], ["y"]),
            "g: node 0 reads 'z', which is neither an input nor an output of a node",
        ),
        (
            flat.graph([relu()], ["x"], ["z"]),
            "g: graph output reads 'z', which is neither an input nor an output of a node",
        ),
        (flat.graph([relu(), relu()], ["x"], ["y"]), "g.nodes[1]: writes 'y', as node 0 does"),
        (flat.graph([relu()], ["x", "x"], ["y"]), "g: the graph's inputs must have unique names"),
        (
            flat.graph([flat.operator("DML_OPERATOR_NONE", {}, {})], [], []),
            "g.nodes[0].type: DirectML has no operator 'NONE'",
        ),
        (
            flat.graph([relu(attributes=(flat.attribute("Beta", 6, flat.struct(1, dtype=np.float32)),))], ["x"], ["y"]),
            "g.nodes[0]: ACTIVATION_RELU has no field 'Beta'",
        ),
        (
            flat.graph([flat.constant("x", bytes(20)), relu()], [], ["y"]),
            "g.nodes[0]: the constant 'x' must have the 16 bytes of the tensor that it feeds, got 20",
        ),
    ],
    ids=["empty", "noise", "loose input", "loose output", "two writers", "one name", "type", "field", "constant"],
)
def test_malformed_graphs_are_rejected(data: bytes, complaint: str) -> None:
    with pytest.raises(ModelError) as caught:
        read_graph(data, "g", lambda name: b"")
    assert str(caught.value).startswith(complaint)


def test_an_activation_within_itself_ends() -> None:
    """Offsets may lead back: an attribute of another kind than the field's is rejected before it is followed."""
    inner = flat.table(
        ("part", flat.text("DML_OPERATOR_ACTIVATION_ELU")),
        ("part", flat.parts([flat.attribute("Alpha", 1, flat.table(None, None))])),
    )
    with pytest.raises(ModelError, match=r"nodes\[2\].FusedActivation.Alpha: must be FLOAT, got an attribute of kind"):
        read_graph(product(inner), "g", lambda name: WEIGHTS.tobytes())


@pytest.mark.slow
def test_every_damage_of_a_file_is_a_model_error_or_harmless() -> None:
    whole = product()
    rejected = 0
    for position in range(0, len(whole), 3):
        for byte in (0, 0x7F, 0xFF):
            damaged = whole[:position] + bytes([byte]) + whole[position + 1 :]
            try:
                read_graph(damaged, "g", lambda name: WEIGHTS.tobytes())
            except dmlgpu.DmlError:
                rejected += 1
    assert rejected > len(whole) / 4
    for length in range(len(whole) - 1):
        with pytest.raises(dmlgpu.DmlError):
            read_graph(whole[:length], "g", lambda name: WEIGHTS.tobytes())


def test_weights_lie_in_the_models_folder(folder: Path) -> None:
    (folder.parent / "file.bin").write_bytes(WEIGHTS.tobytes())
    (folder / "Partition_0.bin").write_bytes(product().replace(b"first/w", b"../file"))
    with pytest.raises(ModelError, match="lies outside the model's folder"):
        dxdispatch.load(model_of(folder))


def test_bindings_of_graphs_go_by_the_graphs_names(folder: Path) -> None:
    model = model_of(folder)
    assert isinstance(dxdispatch.load(model).dispatchables["net"], GraphDispatchable)
    model["commands"][0]["bindings"] = {"x": "in", "z": "out"}
    with pytest.raises(ModelError, match=r"\$.commands\[0\].bindings.z: the graph has no such tensor to bind here"):
        dxdispatch.load(model)
    model["commands"][0]["bindings"] = {"x": "in"}
    with pytest.raises(ModelError, match=r"\$.commands\[0\].bindings.y: y needs a resource, but none is bound"):
        dxdispatch.load(model)


def test_operators_compiled_as_graphs_give_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    device, compiled = dmlgpu.Device("numpy"), []
    compile_graph = device.compile_graph
    monkeypatch.setattr(device, "compile_graph", lambda *arguments: compiled.append(1) or compile_graph(*arguments))
    model = subtraction()
    for compile_type, count in (("DmlCompileOp", 0), ("DmlCompileGraph", 1)):
        model["dispatchables"]["subtract"]["dmlCompileType"] = compile_type
        result = dxdispatch.run(model, device, output_directory=tmp_path)
        np.testing.assert_array_equal(result["my out"], [-4, -6, 8])
        assert len(compiled) == count
