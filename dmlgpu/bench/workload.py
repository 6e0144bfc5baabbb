"""Workloads: a description and the contents of its inputs, or an ONNX model. Plain data for other processes."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog import FieldSchema, descs, enums, operator
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.model import class_name
from dmlgpu.catalog.operator_desc import OperatorDesc, ScaleBias, Size2D
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.compiler.graph.description import GraphDesc
from dmlgpu.compiler.graph.resolve import resolve
from dmlgpu.conformance.cases.registry import case_by_name
from dmlgpu.conformance.samples import Contents
from dmlgpu.conformance.suites import graphs

Array: TypeAlias = NDArray[Any]
Arrays: TypeAlias = tuple[Array | None, ...]


@dataclass(frozen=True)
class KernelBuffer:
    """A storage buffer bound to a user-defined kernel.

    Attributes:
        name: Name of the binding.
        number: Number of the binding.
        tensor: Its elements.
        is_output: Whether the kernel may write it.
        file: NumPy file of its elements; empty for random ones, and zeros in outputs.
    """

    name: str
    number: int
    tensor: TensorDesc
    is_output: bool = False
    file: str = ""


@dataclass(frozen=True)
class OwnKernel:
    """A WGSL kernel with everything that a dispatch needs.

    Attributes:
        source: WGSL.
        entry_point: Name of the function.
        constants: Values of overrides by name.
        buffers: In ascending order of binding numbers.
        uniforms: Values of uniforms by name.
        grid: Number of workgroups.
        references: NumPy expressions by output, over the names of the bindings and ``np``.
        tolerance: Tolerance of floats, relative to the largest result; None for the default.
        operations: Floating-point operations of a dispatch, as the user counts them; 0 if they are unknown.
    """

    source: str
    entry_point: str
    constants: Mapping[str, float]
    buffers: tuple[KernelBuffer, ...]
    uniforms: Mapping[str, Array]
    grid: tuple[int, int, int]
    references: Mapping[str, str] = field(default_factory=dict)
    tolerance: float | None = None
    operations: int = 0


@dataclass(frozen=True)
class Workload:
    """Something to measure.

    Attributes:
        name: Name in tables; workloads of equal names in two files are compared with each other.
        operator: DirectML's name; ``GRAPH``, ``MODEL`` or ``KERNEL`` for others.
        desc: The description; None for a model in ONNX and a kernel.
        sizes: Sizes by name, if the workload is parametrized.
        data_type: Data type of the main tensors, in lower case; empty if they have several.
        layout: Memory layout of tensors: one of ``samples.LAYOUTS``, or empty.
        case: The conformance case with its contents and tolerance, or empty; for a map, a smaller case that checks a
            sample of the elements.
        contents: Contents of inputs by index, if they are not arbitrary numbers.
        is_map: Whether each element of the output depends only on the same element of the inputs.
        half_precision: Whether native 16-bit arithmetic is allowed.
        model: The file of a model in ONNX, or the folder of a language model, of which a token is measured.
        shapes: Shapes of its inputs, by name.
        schedule: The requested schedule; empty for the default choice.
        kernel: A user-defined kernel.
        cache: ``cold`` or ``warm`` caches; empty for a few sets of buffers in turn.
    """

    name: str
    operator: str
    desc: OperatorDesc | GraphDesc | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    data_type: str = ""
    layout: str = ""
    case: str = ""
    contents: Mapping[int, Contents] = field(default_factory=dict)
    is_map: bool = False
    half_precision: bool = False
    model: str = ""
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    schedule: str = ""
    kernel: OwnKernel | None = None
    cache: str = ""

    @property
    def input_tensors(self) -> tuple[TensorDesc | None, ...]:
        """The inputs of the operator or the graph, by index."""
        if isinstance(self.desc, GraphDesc):
            return resolve(self.desc).inputs
        return () if self.desc is None else tuple(slot.tensor for slot in self.desc.inputs)

    def inputs(self) -> Arrays:
        """Return the elements of every input; those of a graph's case in memory order, one-dimensional."""
        if self.case and isinstance(self.desc, GraphDesc):
            return tuple(graphs.example(self.case).inputs)
        arrays = case_by_name(self.case).inputs() if self.case else (None,) * len(self.input_tensors)
        if self.case and not self.is_map:
            return arrays
        rng = np.random.default_rng(zlib.crc32(self.name.encode()))
        return tuple(
            None
            if tensor is None
            # Not every integer is one that an operator takes; the case's are.
            else np.resize(known, tensor.sizes)
            if known is not None and not tensor.data_type.is_float
            else fill(rng, tensor, self.contents.get(index, Contents()))
            for index, (tensor, known) in enumerate(zip(self.input_tensors, arrays, strict=True))
        )


def fill(rng: np.random.Generator, tensor: TensorDesc, contents: Contents) -> Array:
    """Return elements of a tensor: floats of a normal distribution, small integers, or as ``contents`` specify; equal
    along axes of stride 0."""
    dtype, sizes = tensor.data_type.numpy, tensor.sizes
    stored = tuple(size if stride else 1 for size, stride in zip(sizes, tensor.element_strides, strict=True))
    if stored != sizes:
        return np.broadcast_to(fill(rng, TensorDesc(tensor.data_type, stored), contents), sizes)
    array = _particular(rng, sizes, contents)
    if array is not None:
        return array.astype(dtype, copy=False)
    if tensor.data_type.is_float:
        wide = np.float64 if tensor.data_type is DataType.FLOAT64 else np.float32
        return (rng.standard_normal(sizes, wide) * wide(contents.scale)).astype(dtype, copy=False)
    return rng.integers(-100 if tensor.data_type.is_signed else 0, 100, sizes).astype(dtype)


def _particular(rng: np.random.Generator, sizes: tuple[int, ...], contents: Contents) -> Array | None:
    """Return the numbers that ``contents`` specify; None for arbitrary ones."""
    array: Array | None = None
    if contents.constant is not None:
        array = np.full(sizes, contents.constant)
    elif contents.density < 1:
        array = rng.random(sizes) < contents.density
    elif contents.corners:
        corners = np.sort(rng.uniform(0, contents.corners, (*sizes[:-1], 2, 2)), -2).reshape(*sizes[:-1], 4)
        array = np.pad(corners, [(0, 0)] * (len(sizes) - 1) + [(sizes[-1] - 4, 0)])
    elif contents.distinct and contents.below >= sizes[0]:
        # Rows of indices that count up, each from its own place: any two rows differ everywhere.
        first = rng.permutation(contents.below)[: sizes[0]].reshape(-1, *(1,) * (len(sizes) - 1))
        along = np.arange(math.prod(sizes[1:])).reshape(1, *sizes[1:])
        array = (first + along) % contents.below
    elif contents.below:
        array = rng.integers(0, contents.below, sizes)
    return array


def byte_count(tensors: Sequence[TensorDesc | None]) -> int:
    """Return the bytes of the elements of tensors; broadcast elements count once, gaps do not count."""
    return sum(_elements(tensor) * tensor.data_type.bits // 8 for tensor in tensors if tensor is not None)


def _elements(tensor: TensorDesc) -> int:
    return math.prod(size for size, stride in zip(tensor.sizes, tensor.element_strides, strict=True) if stride)


_TENSOR_KEYS = ("sizes", "type", "strides")
_STRUCTURES = {"SIZE_2D": Size2D, "SCALE_BIAS": ScaleBias}


def read_desc(name: str, table: Mapping[str, Any]) -> OperatorDesc:
    """Return an operator's description; fields that are omitted have their defaults.

    Args:
        name: DirectML's name of the operator.
        table: Values by the fields' names in Python. A tensor is a list of sizes, for packed float32, or a table
            ``{sizes = [4, 8], type = "int8", strides = [0, 1]}``; a value of an enumeration is its name.

    Raises:
        InvalidArgument: For a field that the operator does not have, a value that it cannot hold, a missing tensor.
    """
    known = {field.python_name: field for field in operator(name).python_fields}
    values = {}
    for key, value in table.items():
        if key not in known:
            raise InvalidArgument(f"{name} has no field {key!r}; its fields are {', '.join(known)}")
        where, field = f"{name}: desc.{key}", known[key]
        if not field.is_array:
            values[key] = _value(where, field, value)
        elif isinstance(value, list):
            values[key] = tuple(_value(where, field, item) for item in value)
        else:
            raise InvalidArgument(f"{where} must be a list, got {value!r}")
    missing = [key for key, field in known.items() if field.is_tensor and not field.optional and key not in table]
    if missing:
        raise InvalidArgument(f"{name}: desc must have {', '.join(missing)}")
    return descs.by_name(name)(**values)


def _value(where: str, field: FieldSchema, value: Any) -> Any:
    if field.is_tensor:
        return _tensor(where, value)
    if field.type in _STRUCTURES:
        return _structure(where, _STRUCTURES[field.type], value)
    if field.type == "OPERATOR_DESC":
        raise InvalidArgument(f"{where} holds operators, which a suite does not describe; a Python file can")
    if field.type.startswith("DML_"):
        is_type = field.type == "DML_TENSOR_DATA_TYPE"
        kind = DataType if is_type else getattr(enums, class_name(field.type.removeprefix("DML_")))
        members = kind.__members__
        if value not in members:
            raise InvalidArgument(f"{where} must be one of {', '.join(members)}, got {value!r}")
        return members[value]
    return value


def _tensor(where: str, value: Any) -> TensorDesc:
    table = {"sizes": value} if isinstance(value, list) else value
    if not isinstance(table, dict) or "sizes" not in table or not set(table) <= set(_TENSOR_KEYS):
        raise InvalidArgument(
            f"{where} must be a list of sizes, or a table of {', '.join(_TENSOR_KEYS)}, got {value!r}"
        )
    name = table.get("type", "float32")
    if not isinstance(name, str) or name.upper() not in DataType.__members__:
        raise InvalidArgument(f"{where}: type must be a data type such as float16, got {name!r}")
    strides = table.get("strides")
    return TensorDesc(DataType[name.upper()], tuple(table["sizes"]), None if strides is None else tuple(strides))


def _structure(where: str, kind: type[Any], value: Any) -> Any:
    names = [field.name for field in fields(kind)]
    if not isinstance(value, dict) or set(value) != set(names):
        raise InvalidArgument(f"{where} must be a table of {', '.join(names)}, got {value!r}")
    return kind(**value)


def read_contents(where: str, entries: Mapping[str, Any]) -> dict[int, Contents]:
    """Return the contents of inputs, from tables by the inputs' indices: ``{1 = {below = 512, distinct = true}}``.

    Raises:
        InvalidArgument: For a number that is none, and for keys that ``Contents`` does not have.
    """
    names = [field.name for field in fields(Contents)]
    contents = {}
    for index, table in entries.items():
        if not index.isdecimal() or not isinstance(table, dict) or not set(table) <= set(names):
            raise InvalidArgument(
                f"{where}: contents must hold tables of {', '.join(names)} by the inputs' numbers, got"
                f" {index} = {table!r}"
            )
        contents[int(index)] = Contents(**table)
    return contents
