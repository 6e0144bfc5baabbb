"""Preprocessing of features by ai.onnx.ml: selected columns, scales, norms, missing values, categories."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import numpy_helper

from dmlgpu.catalog.enums import DataType, ReduceFunction
from dmlgpu.frontends.onnx.expressions import cast, choose, multiply, number_like, reshaped, same, spread, subtract
from dmlgpu.frontends.onnx.node import OnnxNode
from dmlgpu.frontends.onnx.operators import ML
from dmlgpu.frontends.onnx.registry import PreparedAttributes, operator
from dmlgpu.frontends.onnx.scores import ordered
from dmlgpu.frontends.onnx.tensor_proto import STRINGS_ADVICE
from dmlgpu.frontends.onnx.values import OnnxValue
from dmlgpu.tensors import directml
from dmlgpu.tensors import directmlx as dml
from dmlgpu.tensors.tensor import Tensor

Array = NDArray[Any]


@operator("ArrayFeatureExtractor", domain=ML)
def array_feature_extractor(node: OnnxNode) -> OnnxValue:
    """Gather along the last axis; a list becomes a row."""
    shape = node.shape(0) if len(node.shape(0)) != 1 else (1, *node.shape(0))
    if not shape:
        raise node.rejection("input 0 must have at least 1 dimension")
    count = math.prod(node.shape(1))
    node.check_range(1, 0, shape[-1] - 1, "indices")
    where = reshaped(node.tensor(1), (*(1,) * (len(shape) - 1), count))
    x = reshaped(node.tensor(0), shape)
    gathered = directml.gather(x, where, axis=len(shape) - 1, index_dimensions=1)
    return node.valued(gathered, coded=node.value(0).coded)


def _column_floats(node: OnnxNode, name: str) -> Array:
    return np.array(node.attribute(name, ()), np.float32)


def _check_columns(node: OnnxNode, name: str, count: int) -> None:
    """Raise NotSupported unless there is one number per column of input 0, or a single one."""
    shape = node.shape(0)
    columns = shape[-1] if shape else 1
    if count not in (1, columns) or (count > 1 and len(shape) > 2):
        raise node.rejection(f"{name} must have 1 element or one for each column of {list(shape)}, got {count}")


def _scales(node: OnnxNode) -> PreparedAttributes:
    offset, scale = _column_floats(node, "offset"), _column_floats(node, "scale")
    if len(offset) and len(scale) and len(offset) != len(scale):
        raise node.rejection(f"offset and scale must have as many elements, got {len(offset)} and {len(scale)}")
    count = max(len(offset), len(scale), 1)
    return PreparedAttributes(
        {
            "offset": offset if len(offset) else np.zeros(count, np.float32),
            "scale": scale if len(scale) else np.ones(count, np.float32),
        },
        {},
    )


@operator("Scaler", domain=ML, prepare=_scales)
def scaler(node: OnnxNode) -> OnnxValue:
    """Subtract an offset from each column, and multiply by a scale."""
    _check_columns(node, "scale", node.arrays["scale"].shape[0])
    x = cast(node.tensor(0), DataType.FLOAT32)
    offset, scale = (_row(node.array(name), len(x.sizes)) for name in ("offset", "scale"))
    return node.valued(multiply(subtract(x, offset), scale), node.shape(0))


def _row(numbers: Tensor, rank: int) -> Tensor:
    """Return a list of numbers with leading dimensions of size 1."""
    return reshaped(numbers, (*(1,) * (rank - 1), numbers.sizes[-1]))


@operator("Normalizer", domain=ML)
def normalizer(node: OnnxNode) -> OnnxValue:
    """Divide each row by its maximum, sum of magnitudes or length, unless that is 0."""
    node.check_rank(0, 1, 2)
    x = cast(node.tensor(0), DataType.FLOAT32)
    functions = {"MAX": ReduceFunction.MAX, "L1": ReduceFunction.L1, "L2": ReduceFunction.L2}
    norm = node.text("norm", "MAX")
    if norm not in functions:
        raise node.rejection(f"norm must be among {', '.join(functions)}, got {norm!r}")
    size = dml.reduce(x, functions[norm], axes=(len(x.sizes) - 1,))
    divisor = choose(dml.equals(size, same(size, 0)), 1.0, size)
    return node.valued(spread(dml.divide, x, divisor), node.shape(0))


@operator("Binarizer", domain=ML)
def binarizer(node: OnnxNode) -> OnnxValue:
    """1 where elements are greater than a threshold, else 0."""
    x, threshold = node.tensor(0), node.number("threshold")
    if not x.data_type.is_float:
        limits = np.iinfo(x.data_type.numpy)
        threshold = min(max(math.floor(threshold), limits.min), limits.max)
    return node.valued(cast(dml.greater_than(x, same(x, threshold)), x.data_type), node.shape(0))


def _imputed(node: OnnxNode) -> PreparedAttributes:
    floats = _column_floats(node, "imputed_value_floats")
    integers = np.array(node.integers("imputed_value_int64s") or (), np.int64)
    if bool(len(floats)) == bool(len(integers)):
        raise node.rejection("either imputed_value_floats or imputed_value_int64s must be given")
    return PreparedAttributes({"floats": floats} if len(floats) else {"integers": integers}, {})


@operator("Imputer", domain=ML, prepare=_imputed)
def imputer(node: OnnxNode) -> OnnxValue:
    """Replace missing elements, which are NaN or equal a number, by a number of their column."""
    x = node.tensor(0)
    name = "floats" if x.data_type.is_float else "integers"
    if name not in node.arrays:
        raise node.rejection(f"imputed values must be of the input's type, got {x.data_type.name.lower()}")
    _check_columns(node, "imputed values", node.arrays[name].shape[0])
    missing = node.number("replaced_value_float") if name == "floats" else node.integer("replaced_value_int64")
    is_missing = dml.is_nan(x) if math.isnan(missing) else dml.equals(x, same(x, missing))
    imputed = cast(_row(node.array(name), len(x.sizes)), x.data_type)
    return node.valued(choose(is_missing, imputed, x), node.shape(0))


def _categories(node: OnnxNode) -> PreparedAttributes:
    if node.attribute("cats_strings"):
        raise node.rejection(f"strings are not supported; {STRINGS_ADVICE}")
    categories = np.array(node.integers("cats_int64s") or (), np.int64)
    if not len(categories) or len(np.unique(categories)) != len(categories):
        raise node.rejection(f"cats_int64s must be different integers, got {categories[:8].tolist()}")
    return PreparedAttributes({"categories": categories}, {})


@operator("OneHotEncoder", domain=ML, prepare=_categories)
def one_hot_encoder(node: OnnxNode) -> OnnxValue:
    """1 where an element is a category, along a new last axis; other elements give zeros."""
    shape = node.shape(0)
    x = cast(reshaped(node.tensor(0), (*shape, 1)), DataType.INT64)
    categories = _row(node.array("categories"), len(x.sizes))
    return node.valued(cast(spread(dml.equals, x, categories), DataType.FLOAT32))


@operator("FeatureVectorizer", domain=ML)
def feature_vectorizer(node: OnnxNode) -> OnnxValue:
    """Concatenate columns as floats, each input cut or padded with zeros to its number of columns."""
    counts = node.integers("inputdimensions", len(node))
    if counts is None or min(counts, default=0) < 1:
        raise node.rejection(f"inputdimensions must be {len(node)} positive integers, got {counts}")
    parts = []
    for index, count in enumerate(counts):
        x = node.tensor(index)
        rows = x.sizes[0] if len(node.shape(index)) > 1 else 1
        x = cast(reshaped(x, (rows, math.prod(x.sizes) // rows)), DataType.FLOAT32)
        columns = min(count, x.sizes[1])
        parts.append(dml.slice(x, (0, 0), (rows, columns)))
        if count > columns:
            parts.append(number_like(x, 0.0).broadcast_to((rows, count - columns)))
    return node.valued(parts[0] if len(parts) == 1 else dml.join(parts, 1))


_DEFAULTS = {"f": ("default_float", -0.0), "i": ("default_int64", -1)}


def _mapping(node: OnnxNode) -> PreparedAttributes:
    """Return keys in ascending order, a power of 2 of them, and their values; the default value is the last one."""
    parts = []
    for part in ("keys", "values"):
        if node.attribute(f"{part}_strings") or node.attribute("classes_strings"):
            raise node.rejection(f"strings are not supported; {STRINGS_ADVICE}")
        tensor = node.attribute(f"{part}_tensor")
        if tensor is not None:
            parts.append(_numbers(node, tensor).reshape(-1))
        elif node.attribute(f"{part}_floats"):
            parts.append(_column_floats(node, f"{part}_floats"))
        else:
            parts.append(np.array(node.integers(f"{part}_int64s") or (), np.int64))
    keys, values = parts
    if not len(keys) or len(keys) != len(values):
        raise node.rejection(f"there must be as many values as keys, got {len(values)} and {len(keys)}")
    name, usual = _DEFAULTS["f" if values.dtype.kind == "f" else "i"]
    tensor = node.attribute("default_tensor")
    default = node.attribute(name, usual) if tensor is None else _numbers(node, tensor).reshape(-1)[0]
    _, first = np.unique(keys, return_index=True)  # the first of equal keys counts; NaN is last
    keys, values = keys[first], values[first]
    arrays = {}
    if np.isnan(keys[-1]):
        arrays = {"of_nan": values[-1:]}
        keys, values = keys[:-1], values[:-1]
    if len(keys):
        padding = (1 << (len(keys) - 1).bit_length()) - len(keys)
        arrays |= {"keys": np.pad(keys, (0, padding), mode="edge"), "values": np.pad(values, (0, padding), mode="edge")}
    return PreparedAttributes({**arrays, "default": np.array([default], values.dtype)}, {})


def _numbers(node: OnnxNode, tensor: Any) -> Array:
    array = np.asarray(numpy_helper.to_array(tensor))
    if array.dtype.kind not in "fiu":
        raise node.rejection(f"strings are not supported; {STRINGS_ADVICE}")
    return array


@operator("LabelEncoder", domain=ML, since=2, prepare=_mapping)
def label_encoder(node: OnnxNode) -> OnnxValue:
    """Replace elements by the values of equal keys, found by binary search; others by a default."""
    x, shape = reshaped(node.tensor(0), (math.prod(node.shape(0)),)), node.shape(0)
    result = node.array("default").broadcast_to(x.sizes)
    is_double = x.data_type is DataType.FLOAT64
    searched = ordered(x) if is_double else x
    if "keys" in node.arrays:
        keys = cast(node.array("keys"), x.data_type)
        keys = ordered(keys) if is_double else keys
        position = node.constant([0], DataType.INT32).broadcast_to(x.sizes)
        for bit in reversed(range((keys.sizes[0] - 1).bit_length())):
            middle = position + (1 << bit)
            position = choose(dml.less_than_or_equal(_at(keys, middle), searched), middle, position)
        result = choose(dml.equals(_at(keys, position), searched), _at(node.array("values"), position), result)
    if "of_nan" in node.arrays and node.version >= 4 and x.data_type.is_float:
        is_nan = dml.equals(searched, same(searched, 2**63 - 1)) if is_double else dml.is_nan(x)
        result = choose(is_nan, node.array("of_nan"), result)
    return node.valued(result, shape)


def _at(table: Tensor, places: Tensor) -> Tensor:
    return directml.gather(table, places, axis=0, index_dimensions=1)
