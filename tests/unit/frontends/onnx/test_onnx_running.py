"""Placement, folding and caching of ONNX models, and errors of hostile files; on the adapter numpy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from dmlgpu import Device, DmlError, InvalidArgument, ModelError, NotSupported, OutOfMemory
from dmlgpu.frontends.onnx import load
from tests.unit.frontends.onnx.onnx_against import model_of

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
PRODUCTS = [
    ("float32", 1, ([2, 3], []), True),
    ("float32", 1, ([2, 3], [1]), True),
    ("float32", 1, ([2, 3], [1, 1]), True),
    ("float16", 1, ([2, 3], [1]), True),
    ("float32", 1, ([0, 3], [1]), True),
    ("float32", 1, ([5], [1, 1, 1]), False),  # the result has more axes
    ("float32", 1, ([], [1]), False),
    ("float32", 1, ([2, 1], [1, 3]), False),  # several elements
    ("float32", 1.5, ([2, 3], []), False),
    ("int32", 1, ([2, 2], []), False),
    ("int32", 3, ([2, 2], []), False),
]
"""Types of factors, the second one, the shapes, and whether the product is omitted."""


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


# ---- placement


def test_placement_names_kernels_reads_and_bodies() -> None:
    body = helper.make_graph(
        [helper.make_node("Add", ["state", "x"], ["next"], name="step"), helper.make_node("Identity", ["c"], ["on"])],
        "body",
        [
            helper.make_tensor_value_info("number", INT64, []),
            helper.make_tensor_value_info("c", BOOL, []),
            helper.make_tensor_value_info("state", FLOAT, [3]),
        ],
        [helper.make_tensor_value_info("on", BOOL, []), helper.make_tensor_value_info("next", FLOAT, [3])],
    )
    nodes = [
        helper.make_node("Relu", ["x"], ["positive"], name="relu"),
        helper.make_node("NonZero", ["positive"], ["places"], name="places"),
        helper.make_node("Loop", ["count", "", "x"], ["last"], body=body, name="loop"),
        helper.make_node("Neg", ["positive"], ["unread"], name="dead"),
    ]
    model = model_of(nodes, {"x": (FLOAT, [3]), "count": (INT64, [])}, {"places": INT64, "last": FLOAT})
    session = load(model, "numpy")
    assert session.placement == ()
    for count in (1, 2):  # the second time from the cache
        session.run({"x": np.array([1, -1, 2], np.float32), "count": np.array(count)})
        where = {(node.node, node.where): node for node in session.placement}
        assert where["relu", "device"].kernels == ("dmlgpu.reference.activation.activation_relu",)
        places = [node.operators for node in session.placement if (node.node, node.where) == ("places", "device")]
        assert places == [("NONZERO_COORDINATES",), ("SLICE1", "CAST")]  # before and after the count was read
        assert "reads elements" in where["places", "read"].why
        assert where["loop", "host"].why == "the host controls the loop; its body is compiled"
        assert where["loop/step", "device"].operators == ("ELEMENT_WISE_ADD",)
        assert where["dead", "none"].why == "unused: no node reads it"
    model = model_of(nodes[:2], {"x": (FLOAT, [3])}, {"places": INT64})
    with pytest.raises(NotSupported, match="NonZero 'places': the host would have to read elements"):
        load(model, "numpy", strict=True).run({"x": normal(3)})


# ---- folding and caching


@pytest.mark.parametrize("has_bias", [True, False])
def test_normalizations_fold_into_convolutions(has_bias: bool) -> None:
    rng = np.random.default_rng(1)
    weights = {
        "w": normal(4, 3, 3, 3),
        **({"b": normal(4)} if has_bias else {}),
        **{name: rng.standard_normal(4).astype(np.float32) for name in ("scale", "offset", "mean")},
        "variance": rng.random(4).astype(np.float32) + 0.1,
    }
    nodes = [
        helper.make_node("Conv", ["x", "w", *(["b"] if has_bias else [])], ["c"], name="conv"),
        helper.make_node("BatchNormalization", ["c", "scale", "offset", "mean", "variance"], ["n"], name="norm"),
        helper.make_node("Relu", ["n"], ["y"]),
    ]
    model = model_of(nodes, {"x": (FLOAT, [1, 3, 6, 6])}, {"y": FLOAT}, weights)
    session, x = load(model, "numpy"), normal(1, 3, 6, 6)
    np.testing.assert_allclose(session.run({"x": x})["y"], ReferenceEvaluator(model).run(None, {"x": x})[0], atol=1e-5)
    assert {node.node: node.why for node in session.placement}["norm"] == "it is in the filter of Conv 'conv'"
    assert not any("BATCH" in name for placement in session.placement for name in placement.operators)
    both = model_of(nodes, {"x": (FLOAT, [1, 3, 6, 6])}, {"y": FLOAT, "c": FLOAT}, weights)
    session = load(both, "numpy")
    expected = ReferenceEvaluator(both).run(None, {"x": x})
    for result, reference in zip(session.run({"x": x}).values(), expected, strict=True):
        np.testing.assert_allclose(result, reference, atol=1e-5)


def test_initializers_that_are_inputs_may_be_replaced() -> None:
    nodes = [helper.make_node("Add", ["x", "w"], ["y"])]
    model = model_of(nodes, {"x": (FLOAT, [3]), "w": (FLOAT, [3])}, {"y": FLOAT}, {"w": normal(3)})
    session, x = load(model, "numpy"), np.ones(3, np.float32)
    for _ in range(2):
        np.testing.assert_array_equal(session.run({"x": x})["y"], 1 + normal(3))
        np.testing.assert_array_equal(session.run({"x": x, "w": x})["y"], 2 * x)
    with pytest.raises(InvalidArgument, match="'w' must have size 3"):
        session.run({"x": x, "w": normal(4)})


@pytest.mark.parametrize(("dtype", "number", "shapes", "is_omitted"), PRODUCTS)
@pytest.mark.parametrize("is_first", [False, True], ids=["x*w", "w*x"])
def test_products_by_1_are_omitted(
    dtype: str, number: float, shapes: tuple[list[int], list[int]], is_omitted: bool, is_first: bool
) -> None:
    shape, factor = shapes
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    x = np.resize(np.array([-3, 0, 2, 7] if dtype == "int32" else [np.nan, -np.inf, -0.0, 1e-7, 2.5], dtype), shape)
    w = np.full(factor, number, dtype)
    nodes = [
        helper.make_node("Mul", ["w", "x"] if is_first else ["x", "w"], ["p"], name="product"),
        helper.make_node("Neg", ["p"], ["y"], name="negative"),
    ]
    session = load(model_of(nodes, {"x": (kind, shape)}, {"p": kind, "y": kind}, {"w": w}), "numpy")
    expected = x * w
    for result, other in zip(session.run({"x": x}).values(), (expected, -expected), strict=True):
        assert (result.dtype, result.shape) == (other.dtype, other.shape)
        np.testing.assert_array_equal(result, other)
        np.testing.assert_array_equal(np.signbit(result), np.signbit(other))
    operators = [name for placement in session.placement for name in placement.operators]
    assert ("ELEMENT_WISE_MULTIPLY" not in operators) == is_omitted


def test_factors_of_1_may_be_replaced() -> None:
    model = model_of(
        [helper.make_node("Mul", ["x", "w"], ["y"])],
        {"x": (FLOAT, [3]), "w": (FLOAT, [])},
        {"y": FLOAT},
        {"w": np.float32(1)},
    )
    session, x = load(model, "numpy"), normal(3)
    for feeds, factor in (({}, 1), ({"w": np.float32(2)}, 2), ({}, 1)):
        np.testing.assert_array_equal(session.run({"x": x, **feeds})["y"], factor * x)


# ---- errors


def one_node(**changes: Any) -> onnx.ModelProto:
    return model_of([helper.make_node("Neg", ["x"], ["y"])], {"x": (FLOAT, [3])}, {"y": FLOAT}, **changes)


def test_no_truncated_or_altered_file_escapes_as_anything_but_our_errors() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Reshape", ["c", "s"], ["y"]),
    ]
    weights = {"w": normal(2, 1, 3, 3), "s": np.array([2, -1])}
    whole = model_of(nodes, {"x": (FLOAT, [1, 1, 4, 4])}, {"y": FLOAT}, weights).SerializeToString()
    rng = np.random.default_rng(0)
    for index in range(200):
        data = bytearray(whole)
        if index % 2:
            del data[rng.integers(len(data)) :]
        else:
            for place in rng.integers(len(data), size=3):
                data[place] = rng.integers(256)
        try:
            session = load(bytes(data), "numpy")
            session.run({info.name: normal(1, 1, 4, 4) for info in session.inputs})
        except DmlError as error:
            assert len(str(error)) < 2000
            assert "Traceback" not in str(error)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensor: tensor.dims.__setitem__(0, 2**40), "too small for the declared shape"),
        (lambda tensor: tensor.dims.__setitem__(0, -3), "Negative dimension"),
        (lambda tensor: tensor.dims.extend([2**31, 2**31, 2**31]), "overflow"),
        (lambda tensor: setattr(tensor, "raw_data", tensor.raw_data[:-1]), "data"),
        (lambda tensor: setattr(tensor, "data_type", 99), "type 99"),
        (lambda tensor: setattr(tensor, "data_type", TensorProto.STRING), "STRING data"),
    ],
)
def test_absurd_initializers(change: Any, message: str) -> None:
    model = model_of([helper.make_node("Add", ["x", "w"], ["y"])], {"x": (FLOAT, [3])}, {"y": FLOAT}, {"w": normal(3)})
    change(model.graph.initializer[0])
    with pytest.raises((ModelError, NotSupported), match=message):
        load(model, "numpy")


@pytest.mark.parametrize(
    ("node", "weights"),
    [
        (helper.make_node("Expand", ["x", "s"], ["y"]), {"s": np.array([2**40, 3])}),
        (helper.make_node("Tile", ["x", "s"], ["y"]), {"s": np.array([2**50])}),
        (helper.make_node("ConstantOfShape", ["s"], ["y"]), {"s": np.array([2**20, 2**20])}),
        (helper.make_node("Pad", ["x", "s"], ["y"]), {"s": np.array([2**45, 2**45])}),
        (helper.make_node("Range", ["z", "s", "o"], ["y"]), {"z": np.array(0), "s": np.array(2**60), "o": np.array(1)}),
        (
            helper.make_node("OneHot", ["i", "s", "v"], ["y"]),
            {"i": np.array([1]), "s": np.array(2**50), "v": normal(2)},
        ),
    ],
)
def test_absurd_sizes_are_rejected(node: Any, weights: dict[str, Any]) -> None:
    model = model_of([node], {"x": (FLOAT, [3])}, {"y": FLOAT}, weights)
    with pytest.raises(DmlError, match=r"\[|size|elements|bytes|memory"):
        load(model, "numpy").run({"x": normal(3)})


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"location": "missing.bin"}, "inside the model's folder"),
        ({"location": "../other.bin"}, "inside the model's folder"),
        ({"location": "/etc/passwd"}, "inside the model's folder"),
        ({"location": "w.bin", "offset": "4000000000000"}, "which has 12"),
        ({"location": "w.bin", "offset": "-4"}, "from byte -4"),
        ({"location": "w.bin", "length": "8"}, "12 bytes"),
        ({"location": "w.bin", "offset": "many"}, "cannot be read"),
    ],
)
def test_external_data_that_are_not_there(tmp_path: Path, entries: dict[str, str], message: str) -> None:
    (tmp_path / "w.bin").write_bytes(normal(3).tobytes())
    tensor = TensorProto(name="w", data_type=FLOAT, dims=[3], data_location=TensorProto.EXTERNAL)
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    model = model_of([helper.make_node("Add", ["x", "w"], ["y"])], {"x": (FLOAT, [3])}, {"y": FLOAT})
    model.graph.initializer.append(tensor)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match=message):
        load(tmp_path / "m.onnx", "numpy")


def test_wrong_requested_outputs_and_broken_wiring() -> None:
    session = load(one_node(), "numpy")
    with pytest.raises(InvalidArgument, match=r"unknown output 'z'; the model has: y$"):
        session.run({"x": normal(3)}, outputs=["z"])
    with pytest.raises(InvalidArgument, match="inputs must be a mapping"):
        session.run([normal(3)])  # type: ignore[arg-type]
    missing = model_of([helper.make_node("Neg", ["nothing"], ["y"])], {"x": (FLOAT, [3])}, {"y": FLOAT})
    with pytest.raises(ModelError, match="nothing"):
        load(missing, "numpy")
    clash = model_of([helper.make_node("Add", ["x", "w"], ["y"])], {"x": (FLOAT, [3])}, {"y": FLOAT}, {"w": normal(4)})
    with pytest.raises(DmlError, match=r"Add 'y'.*\[3\], \[4\]"):
        load(clash, "numpy").run({"x": normal(3)})


def test_models_larger_than_the_device_has_room_for() -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    model = model_of(nodes, {"x": (FLOAT, [1, 1024])}, {"y": FLOAT}, {"w": normal(1024, 1024)})
    session = load(model, Device("numpy", memory_budget=1 << 20))
    with pytest.raises(OutOfMemory, match=r"4,194,304 bytes"):
        session.run({"x": normal(1, 1024)})


@pytest.mark.parametrize("pads", [[2**33, 0], [2**21, 2**21]])
def test_empty_tensors_are_not_padded_without_end(pads: list[int]) -> None:
    weights = {"pads": np.array([*pads, 0, 0])}
    model = model_of([helper.make_node("Pad", ["x", "pads"], ["y"])], {"x": (FLOAT, [0, 3])}, {"y": FLOAT}, weights)
    with pytest.raises(DmlError, match="Pad 'y'"):
        load(model, "numpy").run({"x": np.zeros((0, 3), np.float32)})
