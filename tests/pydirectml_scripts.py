"""Complete scripts for PyDirectML: their weights, runners, and onnxruntime's results for the same networks."""

from __future__ import annotations

import contextlib
import io
import os
import runpy
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from dmlgpu.frontends import pydirectml

Array = NDArray[Any]

SCRIPTS = Path(__file__).parent / "data" / "pydirectml"


def run_here(script: Path, arguments: Sequence[object], adapter: str = "numpy") -> str:
    """Run a script in this process and return its output."""
    with (
        mock.patch.dict(os.environ, {"DMLGPU_ADAPTER": adapter}),
        mock.patch.dict(sys.modules, {"pydirectml": pydirectml}),
        mock.patch.object(sys, "argv", [str(script), *map(str, arguments)]),
        contextlib.redirect_stdout(io.StringIO()) as out,
    ):
        runpy.run_path(str(script), run_name="__main__")
    return out.getvalue()


def run_apart(*arguments: object, directory: Path | None = None, options: Sequence[str] = ("-a", "numpy")) -> Any:
    """Return the finished process of ``python -m dmlgpu.frontends.pydirectml ARGUMENTS``."""
    return run_python("-m", "dmlgpu.frontends.pydirectml", *options, *arguments, directory=directory)


def run_python(*arguments: object, directory: Path | None = None) -> Any:
    """Return the finished process of ``python ARGUMENTS``."""
    variables = {name: value for name, value in os.environ.items() if name != "DMLGPU_ADAPTER"}
    root = str(Path(pydirectml.__file__).parents[3])
    variables["PYTHONPATH"] = os.pathsep.join([root, *filter(None, [variables.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=directory,
        env=variables,
    )


# ---- networks in ONNX ------------------------------------------------------------------------------------------------


class Network:
    """A chain of ONNX nodes; each method adds one and returns the name of its output."""

    def __init__(self, weights: dict[str, Array]):
        self.weights, self.nodes, self.constants = weights, [], {}

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        output = f"{kind} {len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def constant(self, value: Any, kind: Any = np.float32) -> str:
        name = f"constant {len(self.constants)}"
        self.constants[name] = np.asarray(value, kind)
        return name

    def weight(self, name: str, *shape: int) -> str:
        return self.constant(self.weights[name].reshape(shape or self.weights[name].shape))

    def doubled(self, tensor: str) -> str:
        """Repeat rows and columns."""
        how = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        return self.node("Resize", tensor, "", self.constant([1, 1, 2, 2]), mode="nearest", **how)

    def run(self, *outputs: str) -> list[Array]:
        """Compute outputs by onnxruntime on the CPU."""
        graph = helper.make_graph(
            self.nodes,
            "network",
            [helper.make_tensor_value_info("image", TensorProto.FLOAT, self.weights["image"].shape)],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
            [numpy_helper.from_array(value, name) for name, value in self.constants.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        return session.run(list(outputs), {"image": self.weights["image"]})


def block_weights() -> dict[str, Array]:
    """Weights of ``block.py``, and its image."""
    rng = np.random.default_rng(17)
    shapes = {"image": (1, 3, 6, 5), "filter": (4, 3, 3, 3), "scale": (4,), "bias": (4,), "repeated": (2,)}
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def block_expected(weights: dict[str, Array]) -> Array:
    """Return the outputs of ``block.py`` by onnxruntime."""
    net = Network(weights)
    padded = net.node("Pad", "image", net.constant([0, 0, 1, 1, 0, 0, 1, 1], np.int64), mode="reflect")
    features = net.node("Tanh", net.node("Conv", padded, net.weight("filter")))
    normal = net.node("InstanceNormalization", features, net.weight("scale"), net.weight("bias"), epsilon=1e-5)
    larger = net.doubled(net.node("Relu", normal))
    repeated = net.node("Expand", net.weight("repeated", 1, 2, 1, 1), net.constant([1, 2, 12, 10], np.int64))
    return net.run(net.node("Concat", larger, repeated, axis=1))[0]


def style_weights() -> dict[str, Array]:
    """Weights of ``style.py``, and its image."""
    rng = np.random.default_rng(18)
    shapes: dict[str, tuple[int, ...]] = {"image": (1, 3, 16, 12)}
    for name, filters in {
        "stem": (4, 3, 5, 5),
        "down": (6, 4, 3, 3),
        "block1_a": (6, 6, 3, 3),
        "block1_b": (6, 6, 3, 3),
        "block2_a": (6, 6, 3, 3),
        "block2_b": (6, 6, 3, 3),
        "up": (6, 4, 3, 3),
        "last": (3, 4, 3, 3),
    }.items():
        channels = filters[1] if name == "up" else filters[0]
        shapes |= {f"{name}_filter": filters, f"{name}_bias": (1, channels, 1, 1)}
        if name != "last":
            shapes |= {f"{name}_norm_scale": (1, channels, 1, 1), f"{name}_norm_bias": (1, channels, 1, 1)}
    shapes |= {"factor": (1, 3, 1, 1), "offset": (1, 3, 1, 1)}
    return {name: rng.standard_normal(shape).astype(np.float32) * 0.5 for name, shape in shapes.items()}


def style_expected(weights: dict[str, Array]) -> Array:
    """Return the outputs of ``style.py`` by onnxruntime."""
    net = Network(weights)

    def norm(tensor: str, name: str, relu: bool = True) -> str:
        scale, bias = net.weight(f"{name}_scale", -1), net.weight(f"{name}_bias", -1)
        normalized = net.node("InstanceNormalization", tensor, scale, bias, epsilon=1e-5)
        return net.node("Relu", normalized) if relu else normalized

    def convolve(tensor: str, name: str, kind: str = "Conv", **attributes: Any) -> str:
        return net.node(kind, tensor, net.weight(f"{name}_filter"), net.weight(f"{name}_bias", -1), **attributes)

    bias = net.constant(np.reshape([-1.5, 0.25, 2.0], (1, 3, 1, 1)))
    scaled = net.node("Add", net.node("Mul", "image", net.constant(0.5)), bias)
    padded = net.node("Pad", scaled, net.constant([0, 0, 4, 4, 0, 0, 4, 4], np.int64), mode="reflect")
    features = norm(convolve(padded, "stem", pads=[2] * 4), "stem_norm")
    features = norm(convolve(features, "down", pads=[1] * 4, strides=[2, 2]), "down_norm")
    for block in ("block1", "block2"):
        second = norm(
            convolve(norm(convolve(features, f"{block}_a"), f"{block}_a_norm"), f"{block}_b"), f"{block}_b_norm", False
        )
        starts, ends = net.constant([2, 2], np.int64), net.constant([-2, -2], np.int64)
        crop = net.node("Slice", features, starts, ends, net.constant([2, 3], np.int64))
        features = net.node("Add", second, crop)
    up = norm(convolve(features, "up", "ConvTranspose", strides=[2, 2], output_padding=[1, 1]), "up_norm")
    larger = net.doubled(up)
    tanh = net.node("Tanh", convolve(larger, "last"))
    styled = net.node("Mul", tanh, net.constant(150))
    return net.run(net.node("Add", net.node("Mul", styled, net.weight("factor")), net.weight("offset")))[0]


def classifier_weights() -> dict[str, Array]:
    """Weights of ``classifier.py``, and its image."""
    rng = np.random.default_rng(19)
    shapes: dict[str, tuple[int, ...]] = {"image": (1, 3, 24, 24), "depthwise_filter": (8, 1, 3, 3)}
    for name, filters in {
        "stem": (6, 3, 3, 3),
        "fire1_squeeze": (3, 6, 1, 1),
        "fire1_one": (4, 3, 1, 1),
        "fire1_three": (4, 3, 3, 3),
        "fire2_squeeze": (3, 8, 1, 1),
        "fire2_one": (4, 3, 1, 1),
        "fire2_three": (4, 3, 3, 3),
        "point": (8, 8, 1, 1),
    }.items():
        shapes |= {f"{name}_filter": filters, f"{name}_bias": (1, filters[0], 1, 1)}
    for name in ("depthwise_norm", "norm"):
        shapes |= {f"{name}_{part}": (8,) for part in ("mean", "variance", "scale", "bias")}
    shapes |= {"matrix": (1, 1, 10, 16 * 5 * 5), "bias": (10,)}
    weights = {name: rng.standard_normal(shape).astype(np.float32) * 0.5 for name, shape in shapes.items()}
    positive = {name: np.abs(value) + np.float32(0.1) for name, value in weights.items() if name.endswith("_variance")}
    return {**weights, **positive, "matrix": weights["matrix"] * np.float32(0.1)}


def classifier_expected(weights: dict[str, Array]) -> tuple[Array, Array]:
    """Probabilities and features of ``classifier.py``, by onnxruntime."""
    net = Network(weights)

    def convolve(tensor: str, name: str, relu: bool = True, **attributes: Any) -> str:
        convolved = net.node("Conv", tensor, net.weight(f"{name}_filter"), net.weight(f"{name}_bias", -1), **attributes)
        return net.node("Relu", convolved) if relu else convolved

    def fire(tensor: str, name: str) -> str:
        squeezed = convolve(tensor, f"{name}_squeeze")
        three = convolve(squeezed, f"{name}_three", pads=[1] * 4)
        return net.node("Concat", convolve(squeezed, f"{name}_one"), three, axis=1)

    def norm(tensor: str, name: str) -> str:
        parts = [net.weight(f"{name}_{part}") for part in ("scale", "bias", "mean", "variance")]
        return net.node("BatchNormalization", tensor, *parts, epsilon=1e-5)

    stem = convolve("image", "stem", strides=[2, 2])
    pooled = net.node("MaxPool", stem, kernel_shape=[3, 3], strides=[2, 2], pads=[0, 0, 1, 1])
    joined = fire(fire(pooled, "fire1"), "fire2")
    responses = net.node("LRN", joined, size=3, alpha=0.02, beta=0.75, bias=1.5)
    depthwise = net.node("Conv", responses, net.weight("depthwise_filter"), group=8, pads=[1] * 4)
    point = convolve(net.node("Relu", norm(depthwise, "depthwise_norm")), "point", False)
    residual = net.node("Add", norm(point, "norm"), responses)
    pool = {"kernel_shape": [3, 3], "pads": [1] * 4}
    average = net.node("AveragePool", residual, count_include_pad=0, **pool)
    included = net.node("AveragePool", residual, count_include_pad=1, **pool)
    moved = net.node("Sub", net.node("Mul", included, net.constant(0.5)), net.constant(1))
    both = net.node("Concat", average, moved, axis=1)
    row = net.node("Reshape", both, net.constant([1, -1], np.int64))
    matrix, bias = net.weight("matrix", 10, -1), net.weight("bias")
    scores = net.node("Gemm", row, matrix, bias, transB=1, alpha=0.5, beta=2.0)
    probabilities, features = net.run(net.node("Softmax", scores, axis=-1), both)
    return probabilities, features
