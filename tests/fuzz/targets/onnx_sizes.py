"""Models that compute with sizes, run for several shapes: as recorded ones, and as translated for each shape."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from dmlgpu.common.errors import DmlError
from dmlgpu.frontends.onnx import Session, load
from dmlgpu.frontends.onnx.session import runner_of
from tests.fuzz.devices import shared_device
from tests.fuzz.monitor import Monitor
from tests.fuzz.onnx_nodes.draw import Array

RUNS = 8
"""Runs of a model; the first shape comes again at the end. Most sizes are alike, so that recordings are used again."""

CHANNELS = 4

_TOLERANCE = 1e-4
"""On adapters whose kernels depend on shapes: kernels that shapes share take other tiles."""

_FLOAT, _INT64, _BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


class SizedModel:
    """A model under construction: a chain of images {batch, CHANNELS, height, width}, and sizes computed from theirs.

    Args:
        rng: Source of all choices.
    """

    def __init__(self, rng: random.Random):
        self.rng = rng
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, Array] = {}

    def op(self, op_type: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        """Add a node and return the name of its first output."""
        names = [f"{op_type.lower()}{len(self.nodes)}_{index}" for index in range(outputs)]
        self.nodes.append(helper.make_node(op_type, inputs, names, **attributes))
        return names[0]

    def constant(self, values: Any, dtype: Any = np.int64) -> str:
        """Return the name of a constant."""
        name = f"constant{len(self.weights)}"
        self.weights[name] = np.array(values, dtype)
        return name

    def random_floats(self, *shape: int) -> str:
        """Return the name of a weight."""
        numbers = np.random.default_rng(self.rng.getrandbits(32)).uniform(-1, 1, shape)
        return self.constant(numbers, np.float32)

    # ---- integers -------------------------------------------------------------------------------------------------

    def size(self, x: str, axis: int) -> str:
        """Return a size of an image {1}, computed in one of the ways of exporters."""
        shape = self.op("Shape", x)
        if self.rng.random() < 0.5:
            return self.op("Slice", shape, self.constant([axis]), self.constant([axis + 1]))
        return self.op("Unsqueeze", self.op("Gather", shape, self.constant(axis)), self.constant([0]))

    def other_size(self, x: str, axis: int) -> str:
        """Return a positive size {1} that is computed from those of an image."""
        size, number = self.size(x, axis), self.constant([self.rng.randint(2, 5)])
        match self.rng.randrange(9):
            case 0:
                result = self.op("Add", size, number)
            case 1:
                result = self.op("Div", size, number)
            case 2:
                result = self.op("Mul", size, self.constant([2]))
            case 3:
                result = self.op("Mod", size, number)
            case 4:
                result = self.op("Min", size, number)
            case 5:
                result = self.op("Where", self.op("Less", size, self.size(x, 5 - axis)), number, size)
            case 6:
                result = self.op("Sub", size, number)
            case 7:
                factor = self.constant([self.rng.choice((0.5, 0.7, 1.5, 2.0))], np.float32)
                product = self.op("Mul", self.op("Cast", size, to=_FLOAT), factor)
                result = self.op("Cast", self.op(self.rng.choice(("Ceil", "Floor")), product), to=_INT64)
            case _:
                result = self.op("Abs", self.op("Sub", number, size))
        return self.op("Max", result, self.constant([1]))

    # ---- images ---------------------------------------------------------------------------------------------------

    def step(self, x: str) -> str:
        """Return an image that is computed from one in a way drawn at random."""
        return self.rng.choice(_STEPS)(self, x)

    def pointwise(self, x: str) -> str:
        """Apply a function of an element."""
        return self.op(self.rng.choice(("Relu", "Tanh", "Sigmoid", "Abs", "Neg")), x)

    def convolved(self, x: str) -> str:
        """Convolve with padding."""
        kernel, stride = self.rng.choice((1, 3)), self.rng.choice((1, 1, 2))
        weights = self.random_floats(CHANNELS, CHANNELS, kernel, kernel)
        return self.op("Conv", x, weights, pads=[kernel // 2] * 4, strides=[stride] * 2)

    def pooled(self, x: str) -> str:
        """Pool."""
        kind = self.rng.choice(("MaxPool", "AveragePool"))
        return self.op(kind, x, kernel_shape=[3, 3], pads=[1] * 4, strides=[self.rng.choice((1, 2))] * 2)

    def normalized(self, x: str) -> str:
        """Divide by a sum, or subtract a mean."""
        if self.rng.random() < 0.5:
            return self.op("Softmax", x, axis=self.rng.choice((-1, 1, 2)))
        axes = self.rng.choice(([2, 3], [3], [1], [0]))
        return self.op("Sub", x, self.op("ReduceMean", x, self.constant(axes), keepdims=1))

    def resized(self, x: str) -> str:
        """Resize by sizes or scales."""
        mode = self.rng.choice(("nearest", "linear", "cubic"))
        options: dict[str, Any] = {"mode": mode}
        options["coordinate_transformation_mode"] = self.rng.choice(
            ("half_pixel", "half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric")
        )
        if mode == "nearest":
            options["nearest_mode"] = self.rng.choice(("round_prefer_floor", "floor", "ceil", "round_prefer_ceil"))
        elif self.rng.random() < 0.3:
            options["antialias"] = 1
        pixels = self.op("Concat", self.other_size(x, 2), self.other_size(x, 3), axis=0)
        if self.rng.random() < 0.5:
            policy = self.rng.choice(("stretch", "stretch", "not_larger", "not_smaller"))
            options["keep_aspect_ratio_policy"] = policy
            return self.op("Resize", x, "", "", pixels, axes=[2, 3], **options)
        old = self.op("Concat", self.size(x, 2), self.size(x, 3), axis=0)
        floats = [self.op("Cast", each, to=_FLOAT) for each in (pixels, old)]
        return self.op("Resize", x, "", self.op("Div", *floats), axes=[2, 3], **options)

    def sliced(self, x: str) -> str:
        """Take a part, at least one element."""
        axis = self.rng.choice((2, 3))
        if self.rng.random() < 0.5:
            start, end = self.constant([0]), self.other_size(x, axis)
        else:
            start, end = self.constant([-self.rng.randint(1, 9)]), self.constant([2**62])
        return self.op("Slice", x, start, end, self.constant([axis]))

    def joined(self, x: str) -> str:
        """Append it to itself, or tile it."""
        if self.rng.random() < 0.5:
            return self.op("Concat", x, self.pointwise(x), axis=self.rng.choice((0, 2, 3)))
        return self.op("Tile", x, self.constant([1, 1, *self.rng.choice(((1, 2), (2, 1)))]))

    def padded(self, x: str) -> str:
        """Pad by sizes."""
        end = self.rng.choice((self.constant([1]), self.op("Mod", self.size(x, 2), self.constant([3]))))
        zeros = self.constant([0] * 6)
        return self.op("Pad", x, self.op("Concat", zeros, end, self.constant([2]), axis=0))

    def turned(self, x: str) -> str:
        """Exchange height and width."""
        return self.op("Transpose", x, perm=[0, 1, 3, 2])

    def attended(self, x: str) -> str:
        """Multiply rows of pixels with themselves."""
        rows = self.op("Reshape", x, self.constant([0, CHANNELS, -1]))
        scores = self.op("MatMul", rows, self.op("Transpose", rows, perm=[0, 2, 1]))
        result = self.op("MatMul", self.op("Softmax", scores), rows)
        return self.op("Reshape", result, self.op("Shape", x))

    def counted(self, x: str) -> str:
        """Add positions along the width."""
        width = self.op("Squeeze", self.size(x, 3), self.constant([0]))
        numbers = self.op("Range", self.constant(0), width, self.constant(1))
        return self.op("Add", x, self.op("Cast", numbers, to=_FLOAT))

    def expanded(self, x: str) -> str:
        """Add a tensor of a computed shape."""
        ones = self.op("ConstantOfShape", self.op("Shape", x), value=numpy_helper.from_array(np.ones(1, np.float32)))
        scale = self.op("Cast", self.other_size(x, 2), to=_FLOAT)
        return self.op("Add", x, self.op("Div", ones, scale))

    def gathered(self, x: str) -> str:
        """Take the rows whose sums are positive, and one more: the host reads how many."""
        sums = self.op("ReduceSum", x, self.constant([0, 1, 3]), keepdims=0)
        places = self.op("Squeeze", self.op("NonZero", self.op("Greater", sums, self.constant(0, np.float32))))
        places = self.op("Reshape", places, self.constant([-1]))
        return self.op("Gather", x, self.op("Concat", self.constant([0]), places, axis=0), axis=2)

    def ranked(self, x: str) -> str:
        """Take the largest columns, as many as a size says."""
        return self.op("TopK", x, self.op("Min", self.other_size(x, 3), self.size(x, 3)), outputs=2)

    def looped(self, x: str) -> str:
        """Repeat a body that reads a size around it."""
        info = helper.make_tensor_value_info
        size, count = self.size(x, 2), len(self.nodes)
        body = helper.make_graph(
            [
                helper.make_node("Cast", [size], [f"rows{count}"], to=_FLOAT),
                helper.make_node("Div", [f"state{count}", f"rows{count}"], [f"less{count}"]),
                helper.make_node("Tanh", [f"less{count}"], [f"next{count}"]),
                helper.make_node("Identity", [f"on{count}"], [f"still{count}"]),
            ],
            "body",
            [info(f"trip{count}", _INT64, []), info(f"on{count}", _BOOL, []), info(f"state{count}", _FLOAT, None)],
            [info(f"still{count}", _BOOL, []), info(f"next{count}", _FLOAT, None)],
        )
        return self.op("Loop", self.constant(self.rng.randint(1, 3)), self.constant(True, np.bool_), x, body=body)

    def noisy(self, x: str) -> str:
        """Add random numbers."""
        kind = self.rng.choice(("RandomUniformLike", "RandomNormalLike"))
        return self.op("Add", x, self.op(kind, x, seed=float(self.rng.randrange(100))))

    def proto(self, y: str) -> onnx.ModelProto:
        """Return the model that computes an image, and its shape."""
        names = ["batch", "height", "width"]
        if self.rng.random() < 0.2:
            names[2] = "height"
        shape = [names[0], CHANNELS, *names[1:]] if self.rng.random() < 0.8 else [2, CHANNELS, 7, 9]
        graph = helper.make_graph(
            [*self.nodes, helper.make_node("Shape", [y], ["sizes"])],
            "sizes",
            [helper.make_tensor_value_info("x", _FLOAT, shape)],
            [helper.make_empty_tensor_value_info(y), helper.make_tensor_value_info("sizes", _INT64, None)],
            [numpy_helper.from_array(array, name) for name, array in self.weights.items()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


_STEPS: Sequence[Callable[[SizedModel, str], str]] = (
    *(SizedModel.pointwise, SizedModel.convolved, SizedModel.pooled, SizedModel.normalized, SizedModel.sliced),
    *(SizedModel.resized, SizedModel.resized, SizedModel.resized),
    *(SizedModel.joined, SizedModel.padded, SizedModel.turned, SizedModel.attended, SizedModel.counted),
    *(SizedModel.expanded, SizedModel.gathered, SizedModel.ranked, SizedModel.looped, SizedModel.noisy),
)


def model_of(rng: random.Random) -> onnx.ModelProto:
    """Return a model that is drawn at random."""
    model, image = SizedModel(rng), "x"
    for _ in range(rng.randint(1, 6)):
        image = model.step(image)
    return model.proto(image)


def shapes_of(model: onnx.ModelProto, rng: random.Random) -> list[tuple[int, ...]]:
    """Return shapes of the input, which agree with the model."""
    declared = [size.dim_param or size.dim_value for size in model.graph.input[0].type.tensor_type.shape.dim]
    shapes = []
    for _ in range(RUNS - 1):
        sizes = {
            name: rng.randint(least, most) if rng.random() < 0.9 else rng.choice((1, 2, 40))
            for name, (least, most) in {"batch": (2, 3), "height": (9, 24), "width": (9, 24)}.items()
        }
        shapes.append(tuple(sizes.get(size, size) for size in declared))
    return [*shapes, shapes[0]]


def run(seed: int, monitor: Monitor) -> None:
    """Compare the runs of one model."""
    rng = random.Random(f"onnx sizes {seed}")
    model, device = model_of(rng), shared_device(monitor.adapter)
    sessions = load(model, device), load(model, device)
    runner_of(sessions[1]).recorded = None
    for index, shape in enumerate(shapes_of(model, rng)):
        x = np.random.default_rng((seed, index)).standard_normal(shape).astype(np.float32)
        monitor.subject = lambda shape=shape: f"{list(shape)}\n{onnx.printer.to_text(model.graph)}"  # type: ignore[misc]
        results = [monitor.call(_result, session, x) for session in sessions]
        if all(isinstance(result, str | list) for result in results):
            difference = _difference(*results, exact=monitor.adapter == "numpy")
            monitor.check(not difference, "wrong result", "recorded sizes", difference)


def _result(session: Session, x: Array) -> list[Array] | str:
    """Return the outputs, or an error."""
    try:
        return [*session.run({"x": x}).values()]
    except DmlError as error:
        return f"{type(error).__name__}: {error}"


def _difference(results: list[Array] | str, expected: list[Array] | str, *, exact: bool) -> str:
    """Return how results differ; empty if they do not."""
    if isinstance(results, str) or isinstance(expected, str):
        return "" if results == expected else f"{results}\n{expected}"
    for result, other in zip(results, expected, strict=True):
        if (result.dtype, result.shape) != (other.dtype, other.shape):
            return f"{result.dtype} {result.shape}, translated {other.dtype} {other.shape}"
        tolerance = 0.0 if exact else _TOLERANCE
        if not np.allclose(result, other, rtol=tolerance, atol=tolerance, equal_nan=True):
            return f"{np.nanmax(np.abs(result - other))} apart at most"
    return ""
