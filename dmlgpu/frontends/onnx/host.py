"""Shape arithmetic: small results that are known at translation are computed on the host."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from dmlgpu.catalog.enums import BFLOAT16, as_elements
from dmlgpu.common.errors import ModelError
from dmlgpu.compiler.sizes.arithmetic import computed, is_symbolic, largest, needed, smallest
from dmlgpu.frontends.onnx.node import OnnxNode, slice_extent, slice_range, split_sizes
from dmlgpu.frontends.onnx.symbolic import array_of, has_symbols, plain_array
from dmlgpu.frontends.onnx.tensor_proto import CODED, data_type_of
from dmlgpu.frontends.onnx.values import OnnxValue, Recipe, Shape, Source

Array = NDArray[Any]

MAX_INTEGERS = 1024
"""Maximum number of elements of an integer tensor that counts as shape arithmetic."""

MAX_LATE = 16
"""Maximum number of integers of a tensor that the host computes during a run."""

MAX_DEEP = 64
"""Maximum depth of nodes that the host computes during a run."""

MAX_FLOATS = 16
"""As MAX_INTEGERS for floats: scales of dimensions."""


def compute(node: OnnxNode) -> list[OnnxValue | None] | None:
    """Return the outputs of a node of shape arithmetic; None for other nodes."""
    is_onnx = not node.proto.domain
    if is_onnx and node.op_type in _WITHOUT_INPUTS:
        return [_WITHOUT_INPUTS[node.op_type](node)]
    if (
        not is_onnx
        or node.op_type not in _FUNCTIONS
        or _has_codes(node)
        or not all(value is None or _is_small(value) for value in node.inputs)
    ):
        return None
    arrays = [None if value is None else value.host_array for value in node.inputs]
    if any(map(has_symbols, arrays)):
        return _symbolic_results(node, arrays)
    if node.op_type in _BOUNDED and not _is_bounded(node, arrays):
        return None
    return _known(node, _results(node, _FUNCTIONS[node.op_type], arrays))


def _results(node: OnnxNode, function: Function, arrays: Sequence[Any]) -> list[Any]:
    """Return the results of a node's function."""
    with np.errstate(all="ignore"):
        try:
            result = function(node, arrays)
        except (ArithmeticError, AttributeError, IndexError, TypeError, ValueError) as error:
            raise node.rejection(f"its inputs are invalid: {error}") from None
    return result if isinstance(result, list) else [result]


def _known(node: OnnxNode, results: Sequence[Any]) -> list[OnnxValue | None] | None:
    """Return outputs with known elements; None if there are too many."""
    outputs = [node.known(array) for array in results]
    return list(outputs) if all(map(_is_small, outputs)) else None


def _symbolic_results(node: OnnxNode, arrays: Sequence[Any]) -> list[OnnxValue | None] | None:
    """Return the outputs of a node whose inputs depend on symbolic sizes; None if the device has to compute them."""
    if node.op_type in _BOUNDED:
        return None
    if node.op_type == "Slice" and not has_symbols(arrays[0]) and _has_symbolic_extent(node, arrays):
        return None
    kinds = [array.dtype for array in arrays if array is not None and not _is_boolean(array)]
    dtype = _cast_type(node) if node.op_type == "Cast" else kinds[0]
    function = _elementwise if node.op_type == "Mod" else _SYMBOLIC.get(node.op_type)
    if any(kind.kind == "f" for kind in (dtype, *kinds)):
        is_elementwise = node.op_type in _ELEMENTWISE and dtype.kind != "b"
        function = _elementwise if is_elementwise else function if node.op_type in _MOVING else None
    if function is None:
        return _known(node, _results(node, _FUNCTIONS[node.op_type], [plain_array(array) for array in arrays]))
    objects = arrays if function is _elementwise else [_objects(array) for array in arrays]
    results = _results(node, function, objects)
    return _known(node, [result if _is_boolean(result) else array_of(result, dtype) for result in results])


def recipe_of(value: OnnxValue) -> Recipe | None:
    """Return how the host computes the elements of a value during a run; None if only the device can."""
    if value.array is not None:
        array = value.array
        return array.recipe() if has_symbols(array) else lambda slots: array
    if value.recipe is not None or value.slot is None:
        return value.recipe
    slot, shape, kind = value.slot, needed(value.shape), value.data_type.numpy
    return lambda slots: slots.array(slot).reshape(slots.numbers(shape)).astype(kind, copy=False)


def give_recipes(node: OnnxNode, results: Sequence[OnnxValue | None]) -> None:
    """Record how the host computes the results of a node of shape arithmetic on few integers."""
    if node.op_type not in _FUNCTIONS or node.proto.domain or node.op_type in _BOUNDED:
        return
    values = [value for value in (*node.inputs, *results) if value is not None]
    if any(value.data_type.is_float or value.has_codes or not _is_few(value.shape) for value in values):
        return
    depth = 1 + max((value.depth for value in values), default=0)
    recipes = [None if value is None else (value.is_bool, recipe_of(value)) for value in node.inputs]
    if depth > MAX_DEEP or any(recipe is not None and recipe[1] is None for recipe in recipes):
        return
    if node.op_type == "Split" and node.has(1) and has_symbols(node.value(1).array):
        return  # it reads the sizes of its pieces, which are unknown in a run
    function = _FUNCTIONS[node.op_type]
    node = node.alone()

    def computed_late(slots: Source) -> list[Array]:
        arrays: list[Array] | None = slots.late.get(computed_late)
        if arrays is None:
            inputs = [None if recipe is None else _elements(*recipe, slots) for recipe in recipes]
            with np.errstate(all="ignore"):
                result = function(node, inputs)
            arrays = slots.late[computed_late] = result if isinstance(result, list) else [result]
        return arrays

    for index, result in enumerate(results):
        if result is not None:
            result.recipe, result.depth = _output_of(computed_late, index, result.data_type.numpy), depth


def _elements(is_bool: bool, recipe: Recipe | None, slots: Source) -> Array:
    assert recipe is not None
    array = recipe(slots)
    return array.astype(np.bool_) if is_bool else array


def _is_few(shape: Shape) -> bool:
    """Return whether the host may compute elements of a shape in a run. Symbolic counts are many, without a guard."""
    count = math.prod(shape)
    return not is_symbolic(count) and count <= MAX_LATE


def _output_of(results: Callable[[Source], list[Array]], index: int, kind: Any) -> Recipe:
    return lambda slots: np.asarray(results(slots)[index]).astype(kind, copy=False)


def _is_small(value: OnnxValue) -> bool:
    if value.array is None:
        return False
    limit = MAX_FLOATS if value.data_type.is_float else MAX_INTEGERS
    return value.array.size <= limit and value.data_type.bits >= 8


def _has_codes(node: OnnxNode) -> bool:
    """Return whether a node reads, or casts to, a type that NumPy lacks."""
    if any(value is not None and value.has_codes for value in node.inputs):
        return True
    element = node.integer("to") if node.op_type == "Cast" else TensorProto.FLOAT
    return element in (TensorProto.INT4, TensorProto.UINT4) or (element in CODED and element != TensorProto.BOOL)


def _of_shape(node: OnnxNode) -> OnnxValue:
    shape = node.shape(0)
    if node.op_type == "Size":
        return node.known(array_of(math.prod(shape), np.int64))
    end = node.attribute("end")
    return node.known(array_of(shape[node.integer("start") : end], np.int64))


def constant(node: OnnxNode) -> OnnxValue:
    """Return the value of a Constant node.

    Raises:
        ModelError, NotSupported: If it is not a tensor of numbers.
    """
    proto = node.proto.attribute[0] if node.proto.attribute else None
    if proto is None:
        raise ModelError(str(node), "must have an attribute that holds its value")
    if proto.name == "value":
        return OnnxValue.of_tensor(proto.t, str(node))
    if proto.name not in ("value_float", "value_floats", "value_int", "value_ints"):
        raise node.rejection(f"a constant by {proto.name} is not supported")
    value = node.attribute(proto.name)
    return OnnxValue.of_array(np.array(value, np.float32 if "float" in proto.name else np.int64), is_weight=True)


_WITHOUT_INPUTS: Mapping[str, Callable[[OnnxNode], OnnxValue]] = {
    "Constant": constant,
    "Shape": _of_shape,
    "Size": _of_shape,
}
"""Functions of nodes that read no elements."""


def _is_bounded(node: OnnxNode, arrays: Sequence[Array | None]) -> bool:
    """Return whether a node that creates a tensor of a given shape has a small result."""
    if node.op_type == "Range":
        if any(array is None or array.size != 1 for array in arrays):
            return False
        start, limit, delta = (float(array.reshape(-1)[0]) for array in arrays if array is not None)
        return delta != 0 and -math.inf < (limit - start) / delta <= MAX_INTEGERS
    sizes = arrays[0] if node.op_type == "ConstantOfShape" else arrays[1]
    return sizes is not None and math.prod(max(int(size), 0) for size in sizes.reshape(-1)) <= MAX_INTEGERS


_BOUNDED = ("Range", "ConstantOfShape", "Expand", "Tile")

Function = Callable[[OnnxNode, Sequence[Any]], "Array | list[Array]"]


def _plain(function: Callable[..., Any]) -> Function:
    return lambda node, arrays: np.asarray(function(*arrays))


def _divide(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return np.asarray(a / b)
    return np.asarray(np.trunc(np.sign(a) * np.sign(b)) * (np.abs(a) // np.abs(b))).astype(a.dtype)


def _axes(node: OnnxNode, arrays: Sequence[Any]) -> tuple[int, ...] | None:
    if len(arrays) > 1 and arrays[1] is not None:
        return tuple(int(axis) for axis in arrays[1].reshape(-1))
    return node.integers("axes")


def _cast(node: OnnxNode, arrays: Sequence[Any]) -> Array:
    dtype = _cast_type(node)
    is_reduced = dtype.name == "bfloat16"
    return as_elements(BFLOAT16, arrays[0]) if is_reduced else np.asarray(arrays[0].astype(dtype))


def _cast_type(node: OnnxNode) -> np.dtype[Any]:
    element = node.integer("to")
    return np.dtype(np.bool_ if element == TensorProto.BOOL else data_type_of(element, str(node)).numpy)


def _gather(node: OnnxNode, arrays: Sequence[Any]) -> Array:
    return np.asarray(np.take(arrays[0], arrays[1].astype(np.int64), axis=node.integer("axis")))


def _slice(node: OnnxNode, arrays: Sequence[Any]) -> Array:
    data = arrays[0]
    for axis, start, end, step in _slices(node, arrays):
        data = data.take(np.asarray(slice_range(data.shape[axis], start, end, step), np.int64), axis)
    return np.asarray(data)


def _slices(node: OnnxNode, arrays: Sequence[Any]) -> Iterator[tuple[int, Any, Any, Any]]:
    """Yield axis, start, end and step of each slice of a Slice."""
    if node.version < 10:
        starts, ends, axes, steps = node.integers("starts"), node.integers("ends"), node.integers("axes"), None
    else:
        starts, ends, axes, steps = (
            None if index >= len(arrays) or arrays[index] is None else arrays[index].tolist() for index in range(1, 5)
        )
    assert starts is not None
    assert ends is not None
    axes = tuple(range(len(starts))) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    return zip(node.axes(axes, arrays[0].ndim), starts, ends, steps, strict=True)


def _split(node: OnnxNode, arrays: Sequence[Any]) -> list[Array]:
    axis = node.axis(node.integer("axis"), arrays[0].ndim)
    sizes = split_sizes(node, arrays[0].shape[axis])
    return list(np.split(arrays[0], np.cumsum(sizes)[:-1], axis))


def _squeeze(node: OnnxNode, arrays: Sequence[Any]) -> Array:
    return np.asarray(np.squeeze(arrays[0], _axes(node, arrays)))


def _unsqueeze(node: OnnxNode, arrays: Sequence[Any]) -> Array:
    return np.asarray(np.expand_dims(arrays[0], _axes(node, arrays) or ()))


def _reshape(node: OnnxNode, arrays: Sequence[Any]) -> Array:
    data, sizes = arrays[0], arrays[1].tolist() if len(arrays) > 1 else list(node.integers("shape") or ())
    if not node.flag("allowzero"):
        sizes = [data.shape[index] if size == 0 else size for index, size in enumerate(sizes)]
    return np.asarray(data.reshape(sizes))


def _constant_of_shape(node: OnnxNode, arrays: Sequence[Any]) -> Array:
    value = node.attribute("value")
    filler = np.zeros(1, np.float32) if value is None else _array(node, value)
    return np.full(arrays[0].tolist(), filler.reshape(-1)[0])


def _array(node: OnnxNode, proto: Any) -> Array:
    return OnnxValue.of_tensor(proto, str(node)).host_array


def _extreme(dtype: np.dtype[Any], sign: int) -> Any:
    """Return the largest number of a type for sign 1, the smallest for -1."""
    if dtype.kind == "f":
        return sign * np.inf
    if dtype.kind == "b":
        return sign > 0
    return np.iinfo(dtype).max if sign > 0 else np.iinfo(dtype).min


_NEUTRAL: Mapping[str, Callable[[np.dtype[Any]], Any]] = {
    "ReduceMax": lambda dtype: _extreme(dtype, -1),
    "ReduceMin": lambda dtype: _extreme(dtype, 1),
    "ReduceSum": lambda dtype: 0,
    "ReduceProd": lambda dtype: 1,
}
"""Results of reductions over no elements."""


def _reduce(function: Callable[..., Any]) -> Function:
    def reduced(node: OnnxNode, arrays: Sequence[Any]) -> Array:
        axes = _axes(node, arrays)
        if not axes and node.flag("noop_with_empty_axes"):
            return np.asarray(arrays[0])
        array, keeps = arrays[0], node.flag("keepdims", True)
        if array.size:
            reduced = function(array, axis=axes or None, keepdims=keeps)
        else:
            reduced = function(array, axis=axes or None, keepdims=keeps, initial=_NEUTRAL[node.op_type](array.dtype))
        return np.asarray(reduced).astype(arrays[0].dtype)

    return reduced


def _range(node: OnnxNode, arrays: Sequence[Any]) -> Array:
    start, limit, delta = (array.reshape(-1)[0] for array in arrays)
    count = max(math.ceil((limit.item() - start.item()) / delta.item()), 0)
    return np.asarray((start + np.arange(count) * delta).astype(arrays[0].dtype))


_FUNCTIONS: Mapping[str, Function] = {
    "Add": _plain(np.add),
    "Sub": _plain(np.subtract),
    "Mul": _plain(np.multiply),
    "Div": _plain(_divide),
    "Neg": _plain(np.negative),
    "Abs": _plain(np.abs),
    "Floor": _plain(np.floor),
    "Ceil": _plain(np.ceil),
    "Sqrt": _plain(np.sqrt),
    "Min": _plain(lambda *all_: np.minimum.reduce(np.broadcast_arrays(*all_))),
    "Max": _plain(lambda *all_: np.maximum.reduce(np.broadcast_arrays(*all_))),
    "Mod": lambda node, arrays: np.asarray(np.fmod(*arrays) if node.flag("fmod") else np.mod(*arrays)),
    "Equal": _plain(np.equal),
    "Less": _plain(np.less),
    "LessOrEqual": _plain(np.less_equal),
    "Greater": _plain(np.greater),
    "GreaterOrEqual": _plain(np.greater_equal),
    "And": _plain(np.logical_and),
    "Or": _plain(np.logical_or),
    "Xor": _plain(np.logical_xor),
    "Not": _plain(np.logical_not),
    "Where": _plain(np.where),
    "Identity": _plain(np.asarray),
    "Cast": _cast,
    "Gather": _gather,
    "Slice": _slice,
    "Split": _split,
    "Concat": lambda node, arrays: np.concatenate(arrays, node.integer("axis")),
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Reshape": _reshape,
    "Transpose": lambda node, arrays: np.transpose(arrays[0], node.integers("perm")),
    "Expand": _plain(lambda data, shape: np.broadcast_to(data, np.broadcast_shapes(data.shape, tuple(shape)))),
    "Tile": _plain(np.tile),
    "ConstantOfShape": _constant_of_shape,
    "Range": _range,
    "ReduceProd": _reduce(np.prod),
    "ReduceSum": _reduce(np.sum),
    "ReduceMax": _reduce(np.max),
    "ReduceMin": _reduce(np.min),
}


# ---- symbolic sizes


def _is_boolean(array: Any) -> bool:
    return array is not None and array.dtype == np.bool_


def _objects(array: Any) -> Any:
    """Convert numbers to Python objects, plain or symbolic, so that NumPy computes with Python's operators."""
    if array is None or _is_boolean(array):
        return array
    return array.numbers if has_symbols(array) else array.astype(object)


def _has_symbolic_extent(node: OnnxNode, arrays: Sequence[Any]) -> bool:
    """Return whether a Slice takes a symbolic number of elements, such as positions up to a sequence length."""
    shape, slices = arrays[0].shape, _slices(node, arrays)
    return any(is_symbolic(slice_extent(shape[axis], start, end, step)[1]) for axis, start, end, step in slices)


def _divide_symbolic(node: OnnxNode, arrays: Sequence[Any]) -> Array:
    """Return quotients, rounded towards zero. For positive integers, Python's ``//`` computes them."""
    a, b = np.broadcast_arrays(*arrays)
    if all(left >= 0 and right > 0 for left, right in zip(a.flat, b.flat, strict=True)):
        return np.asarray(a // b)
    return _divide(a.astype(np.int64), b.astype(np.int64))


def _cast_symbolic(node: OnnxNode, arrays: Sequence[Any]) -> Array:
    return np.asarray(np.not_equal(arrays[0], 0) if _cast_type(node).kind == "b" else arrays[0])


def _elementwise(node: OnnxNode, arrays: Sequence[Any]) -> Array:
    """Return the elements of a function, rounded as NumPy rounds them."""
    function: Any = _cast_type(node).type if node.op_type == "Cast" else _ELEMENTWISE[node.op_type]
    if node.op_type == "Mod" and node.flag("fmod"):
        function = np.fmod
    dtypes = tuple(array.dtype.type for array in arrays)
    operands = np.broadcast_arrays(*map(_objects, arrays))
    result = np.empty(operands[0].shape, object)
    for index in np.ndindex(result.shape):
        result[index] = computed(_element, function, dtypes, *(operand[index] for operand in operands))
    return result


def _element(function: Callable[..., Any], dtypes: Sequence[Any], *numbers: float) -> Any:
    """Return a number that a function of NumPy computes."""
    with np.errstate(all="ignore"):
        return function(*(dtype(number) for dtype, number in zip(dtypes, numbers, strict=True))).item()


_ELEMENTWISE: Mapping[str, Callable[..., Any]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
    "Neg": np.negative,
    "Abs": np.abs,
    "Floor": np.floor,
    "Ceil": np.ceil,
    "Sqrt": np.sqrt,
    "Mod": np.mod,
    "Min": lambda *numbers: np.minimum.reduce(numbers),
    "Max": lambda *numbers: np.maximum.reduce(numbers),
    "Cast": np.float32,
}
"""Functions that are computed by elements, some of which may depend on sizes: those of floats, and Mod."""

_MOVING: Final = (
    *("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Cast"),
    *("Where", "Identity", "Gather", "Slice", "Split", "Concat", "Squeeze", "Unsqueeze", "Reshape", "Transpose"),
)
"""Functions that compare or move numbers of any type."""

_SAME: Final = ("Add", "Sub", "Mul", "Neg", "Abs", "ReduceProd", "ReduceSum", "ReduceMax", "ReduceMin")

_LARGEST: Final = np.frompyfunc(largest, 2, 1)
_SMALLEST: Final = np.frompyfunc(smallest, 2, 1)

_SYMBOLIC: Mapping[str, Function] = {
    **{name: _FUNCTIONS[name] for name in (*_MOVING, *_SAME)},
    "Div": _divide_symbolic,
    "Max": _plain(lambda *arrays: functools.reduce(_LARGEST, arrays)),
    "Min": _plain(lambda *arrays: functools.reduce(_SMALLEST, arrays)),
    "Cast": _cast_symbolic,
}
"""Functions of nodes that compute with integers as objects, which may be symbolic."""
