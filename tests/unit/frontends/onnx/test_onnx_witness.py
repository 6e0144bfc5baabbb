"""``--check`` if onnxruntime differs: ONNX's reference decides, and known causes are named."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper, numpy_helper

import dmlgpu
from dmlgpu.frontends.onnx import checking
from dmlgpu.frontends.onnx.checking import ModelCheck
from dmlgpu.frontends.onnx.operators import elementwise
from tests.unit.cli.cli_process import run_here

X = np.full((2, 4), 255, np.uint8)


def quantized(weight_type: Any = np.int8) -> ModelProto:
    """A product of 8 bits, cast and scaled."""
    weights = numpy_helper.from_array(np.full((4, 3), 127, weight_type), "weights")
    scale = numpy_helper.from_array(np.array(0.01, np.float32), "scale")
    graph = helper.make_graph(
        [
            helper.make_node("MatMulInteger", ["x", "weights"], ["product"], name="quantized"),
            helper.make_node("Cast", ["product"], ["cast"], name="cast", to=TensorProto.FLOAT),
            helper.make_node("Mul", ["cast", "scale"], ["y"], name="scaled"),
        ],
        "quantized",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, [2, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])],
        [weights, scale],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def saturated(model: ModelProto, inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the results of onnxruntime without VNNI, which adds pairs of products in 16 bits."""
    product = np.full((2, 3), 2 * 32767, np.int32)
    cast = product.astype(np.float32)
    return {"product": product, "cast": cast, "y": cast * np.float32(0.01)}


@pytest.fixture
def onnxruntime(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Return a function that replaces onnxruntime."""

    def replace(run: Any) -> None:
        monkeypatch.setattr(checking, "other_implementation", lambda: ("onnxruntime", run))

    replace(saturated)
    return replace


def check(model: ModelProto) -> ModelCheck:
    return dmlgpu.load(model, "numpy").check({"x": X})


def test_the_witness_agrees_with_dmlgpu(onnxruntime: Any) -> None:
    result = check(quantized())
    assert [divergence.witness for divergence in result.divergences] == ["dmlgpu"] * 4
    assert result.faults == ()
    assert repr(result).splitlines() == [
        "compared with reference",
        "compared with onnxruntime",
        "compared with onnx",
        "MatMulInteger 'quantized': output 'product' differs from onnxruntime by up to 6.4e+04; ONNX's reference "
        "agrees with dmlgpu; known cause: onnxruntime's kernels for CPUs without VNNI add pairs of uint8 x int8 "
        "products in 16 bits, which saturates; weights quantized with reduce_range=True avoid it",
        "3 of 3 node outputs differ from onnxruntime's; in all of them ONNX's reference agrees with dmlgpu",
    ]


def test_causes_depend_on_types(onnxruntime: Any) -> None:
    assert [divergence.cause for divergence in check(quantized(np.uint8)).divergences] == [""] * 4


def test_the_witness_agrees_with_onnxruntime(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    node = helper.make_node("Tanh", ["x"], ["y"], name="bounded")
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("x", "y")]
    model = helper.make_model(helper.make_graph([node], "m", infos[:1], infos[1:]), ir_version=9)
    monkeypatch.setitem(elementwise.UNARY, "Tanh", lambda x: x * 2)
    result = dmlgpu.load(model, "numpy").check({"x": np.ones(2, np.float32)})
    assert [(fault.node, fault.witness) for fault in result.faults] == [("bounded", "onnxruntime"), ("", "onnxruntime")]
    assert "output 'y' differs from onnxruntime by up to 1.24; ONNX's reference agrees with onnxruntime" in repr(result)


def test_witnesses_that_agree_with_neither_side_or_fail(onnxruntime: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "compute_by_onnx", lambda model, inputs: {"product": np.zeros((2, 3), np.int32)})
    result = check(quantized())
    assert [divergence.witness for divergence in result.divergences] == ["neither", "", "", ""]

    def rejected(model: ModelProto, inputs: Any) -> Any:
        raise NotImplementedError("no such operator")

    monkeypatch.setattr(checking, "compute_by_onnx", rejected)
    result = check(quantized())
    assert result.against["onnx"] == "no such operator" and len(result.faults) == 4
    assert "onnx cannot run the model: no such operator" in repr(result)


def test_the_command_line_does_not_blame_dmlgpu(
    onnxruntime: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    onnx.save(quantized(), tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", X)
    command = ("run", tmp_path / "m.onnx", "--adapter", "numpy", "--input", f"x={tmp_path / 'x.npy'}", "--check")
    done = run_here(*command)
    assert (done.returncode, done.stderr) == (0, "")
    assert "in all of them ONNX's reference agrees with dmlgpu" in done.stdout
    onnxruntime(lambda model, inputs: {"product": np.zeros((2, 3), np.int32)})
    monkeypatch.setattr(checking, "compute_by_onnx", saturated)
    done = run_here(*command, "-o", tmp_path)
    assert done.returncode == 1
    assert "MatMulInteger 'quantized': output 'product' differs from onnxruntime" in done.stderr
    assert "agrees with neither" in done.stderr and "1 of 3 node outputs differ" in done.stderr
    assert "divergent" in done.stdout
