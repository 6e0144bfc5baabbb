"""DirectML's enumerations, with the same numeric values (header DirectML.h, target version 6_4).

Members have the names of the header without the prefix: ``DML_TENSOR_DATA_TYPE_FLOAT32`` is ``DataType.FLOAT32``. A
unit test compares every enumeration with ``schema/enums.json``.
"""

from __future__ import annotations

import functools
from enum import IntEnum, IntFlag
from typing import Any, Final

import numpy as np

from dmlgpu.common.errors import InvalidArgument, NotSupported, shown


class DataType(IntEnum):
    """Data type of the elements of a tensor (DML_TENSOR_DATA_TYPE).

    ``BFLOAT16``, an extension that DirectML lacks, is a value of this type, but none of its members.
    """

    UNKNOWN = 0
    FLOAT32 = 1
    FLOAT16 = 2
    UINT32 = 3
    UINT16 = 4
    UINT8 = 5
    INT32 = 6
    INT16 = 7
    INT8 = 8
    FLOAT64 = 9
    UINT64 = 10
    INT64 = 11
    UINT4 = 12
    INT4 = 13

    @functools.cached_property
    def bits(self) -> int:
        """Bits per element; 0 for UNKNOWN."""
        return 0 if self is DataType.UNKNOWN else int(self.name.lstrip("BUINTFLOA"))

    @functools.cached_property
    def numpy(self) -> np.dtype[Any]:
        """NumPy dtype of the elements; 4-bit integers are stored one per byte.

        Raises:
            InvalidArgument: For UNKNOWN, which describes no element.
            NotSupported: For BFLOAT16, if the package ml_dtypes, which has NumPy's bfloat16, is not installed.
        """
        if self is DataType.UNKNOWN:
            raise InvalidArgument("DataType.UNKNOWN has no NumPy equivalent")
        if self is BFLOAT16:
            return _bfloat16()
        return np.dtype(self.name.lower().replace("int4", "int8") if self.bits == 4 else self.name.lower())

    @property
    def is_float(self) -> bool:
        """Whether elements are floating point."""
        return "FLOAT" in self.name

    @property
    def is_reduced_float(self) -> bool:
        """Whether elements are floats of 16 bits, FLOAT16 or BFLOAT16, which operators compute in float32."""
        return self.is_float and self.bits == 16

    @property
    def is_signed(self) -> bool:
        """Whether elements can be negative."""
        return not self.name.startswith("U")

    @classmethod
    def from_numpy(cls, dtype: Any) -> DataType:
        """Return the data type for a NumPy dtype.

        Raises:
            InvalidArgument: If DirectML has no such type (bool, complex, strings ...), or it is not a NumPy dtype.
        """
        if isinstance(dtype, np.dtype) and dtype in _OF_NUMPY:
            return _OF_NUMPY[dtype]
        try:
            name = "" if dtype is None else np.dtype(dtype).name.upper()  # None would be NumPy's default
        except Exception:  # foreign objects may raise any exception
            name = ""
        if not name:
            raise InvalidArgument(f"DataType.from_numpy: dtype must be a NumPy type, got {shown(dtype)}")
        if name == BFLOAT16.name:
            return BFLOAT16
        if name not in cls.__members__:
            raise InvalidArgument(f"NumPy type {name.lower()} has no DirectML data type")
        return cls[name]

    @classmethod
    def _missing_(cls, value: object) -> DataType | None:
        """Return BFLOAT16 for its value, which copying and unpickling look up."""
        return BFLOAT16 if value == BFLOAT16.value else None


BFLOAT16: Final = int.__new__(DataType, 0x10002)
"""Storage type that DirectML lacks: the upper half of a float32. Operators take it wherever they take FLOAT16, compute
in float32, and round to nearest even when they store."""

BFLOAT16._name_, BFLOAT16._value_ = "BFLOAT16", 0x10002  # not among the members of the enumeration


def data_type_named(name: str) -> DataType | None:
    """Return the data type of a name in upper case, BFLOAT16 included; None if there is none."""
    return BFLOAT16 if name == BFLOAT16.name else DataType.__members__.get(name)


@functools.cache
def _bfloat16() -> np.dtype[Any]:
    try:
        import ml_dtypes  # noqa: PLC0415 - optional
    except ImportError:
        raise NotSupported("arrays of bfloat16 need the package ml_dtypes: pip install ml_dtypes") from None
    return np.dtype(ml_dtypes.bfloat16)


def as_elements(data_type: DataType, values: Any) -> np.ndarray[Any, np.dtype[Any]]:
    """Return numbers, or a copy of an array, as elements of a type.

    Those of BFLOAT16 are rounded to float32 first, as by devices and PyTorch; ml_dtypes 0.7 rounds them once.
    """
    if data_type is not BFLOAT16:
        return np.array(values, data_type.numpy)
    array = np.asarray(values)
    with np.errstate(over="ignore"):
        return (array if array.dtype == data_type.numpy else array.astype(np.float32)).astype(data_type.numpy)


def float_limits(data_type: DataType) -> np.finfo[Any]:
    """Return the limits of a floating-point type, as ``np.finfo``, which knows no bfloat16."""
    if data_type is not BFLOAT16:
        return np.finfo(data_type.numpy)
    import ml_dtypes  # noqa: PLC0415 - optional

    return ml_dtypes.finfo(_bfloat16())


def holds_numbers(dtype: np.dtype[Any]) -> bool:
    """Return whether elements of a NumPy dtype are real numbers or booleans; those of bfloat16 are."""
    return dtype.kind in "biuf" or dtype.name == "bfloat16"


_OF_NUMPY = {member.numpy: member for member in DataType if member.bits >= 8}


class TensorType(IntEnum):
    """Kind of a tensor description (``DML_TENSOR_TYPE``)."""

    INVALID = 0
    BUFFER = 1


class TensorFlags(IntFlag):
    """Options of a tensor (``DML_TENSOR_FLAGS``)."""

    NONE = 0
    OWNED_BY_DML = 1


class ReduceFunction(IntEnum):
    """Function of REDUCE (``DML_REDUCE_FUNCTION``)."""

    ARGMAX = 0
    ARGMIN = 1
    AVERAGE = 2
    L1 = 3
    L2 = 4
    LOG_SUM = 5
    LOG_SUM_EXP = 6
    MAX = 7
    MIN = 8
    MULTIPLY = 9
    SUM = 10
    SUM_SQUARE = 11


class MatrixTransform(IntEnum):
    """Transform of a matrix operand (``DML_MATRIX_TRANSFORM``)."""

    NONE = 0
    TRANSPOSE = 1


class ConvolutionMode(IntEnum):
    """Whether the filter is flipped (DML_CONVOLUTION_MODE)."""

    CONVOLUTION = 0
    CROSS_CORRELATION = 1


class ConvolutionDirection(IntEnum):
    """Direction of a convolution (``DML_CONVOLUTION_DIRECTION``)."""

    FORWARD = 0
    BACKWARD = 1


class PaddingMode(IntEnum):
    """Elements of PADDING outside the input (``DML_PADDING_MODE``)."""

    CONSTANT = 0
    EDGE = 1
    REFLECTION = 2
    SYMMETRIC = 3
    WRAP = 4


class InterpolationMode(IntEnum):
    """Interpolation of RESAMPLE (DML_INTERPOLATION_MODE)."""

    NEAREST_NEIGHBOR = 0
    LINEAR = 1


class RecurrentNetworkDirection(IntEnum):
    """Direction of RNN, LSTM and GRU (``DML_RECURRENT_NETWORK_DIRECTION``)."""

    FORWARD = 0
    BACKWARD = 1
    BIDIRECTIONAL = 2


class RoundingMode(IntEnum):
    """Rounding of ELEMENT_WISE_ROUND (DML_ROUNDING_MODE)."""

    HALVES_TO_NEAREST_EVEN = 0
    TOWARD_ZERO = 1
    TOWARD_INFINITY = 2


class IsInfinityMode(IntEnum):
    """Signs that ELEMENT_WISE_IS_INFINITY detects (DML_IS_INFINITY_MODE)."""

    EITHER = 0
    POSITIVE = 1
    NEGATIVE = 2


class AxisDirection(IntEnum):
    """Direction along an axis (``DML_AXIS_DIRECTION``)."""

    INCREASING = 0
    DECREASING = 1


class DepthSpaceOrder(IntEnum):
    """Order of the elements of a block (``DML_DEPTH_SPACE_ORDER``)."""

    DEPTH_COLUMN_ROW = 0
    COLUMN_ROW_DEPTH = 1


class RandomGeneratorType(IntEnum):
    """Generator of RANDOM_GENERATOR (``DML_RANDOM_GENERATOR_TYPE``)."""

    PHILOX_4X32_10 = 0


class MultiheadAttentionMaskType(IntEnum):
    """Meaning of an attention mask (``DML_MULTIHEAD_ATTENTION_MASK_TYPE``)."""

    NONE = 0
    KEY_SEQUENCE_LENGTH = 1
    KEY_SEQUENCE_END_START = 2
    KEY_QUERY_SEQUENCE_LENGTH_START_END = 3
    BOOLEAN = 4


class QuantizationType(IntEnum):
    """Quantization tensors of an operator (``DML_QUANTIZATION_TYPE``)."""

    NONE = 0
    SCALE = 1
    SCALE_ZERO_POINT = 2


class FeatureLevel(IntEnum):
    """Version of the operator set (DML_FEATURE_LEVEL). Each level includes all earlier ones."""

    LEVEL_1_0 = 0x1000
    LEVEL_2_0 = 0x2000
    LEVEL_2_1 = 0x2100
    LEVEL_3_0 = 0x3000
    LEVEL_3_1 = 0x3100
    LEVEL_4_0 = 0x4000
    LEVEL_4_1 = 0x4100
    LEVEL_5_0 = 0x5000
    LEVEL_5_1 = 0x5100
    LEVEL_5_2 = 0x5200
    LEVEL_6_0 = 0x6000
    LEVEL_6_1 = 0x6100
    LEVEL_6_2 = 0x6200
    LEVEL_6_3 = 0x6300
    LEVEL_6_4 = 0x6400

    @property
    def label(self) -> str:
        """Text of the level, ``"6_4"``."""
        return self.name.removeprefix("LEVEL_")

    @classmethod
    def from_label(cls, label: str) -> FeatureLevel:
        """Return the level with a label such as ``"6_4"``.

        Raises:
            InvalidArgument: If there is no such level.
        """
        level = cls.__members__.get(f"LEVEL_{label}") if isinstance(label, str) else None
        if level is None:
            labels = ", ".join(member.label for member in cls)
            raise InvalidArgument(f"FeatureLevel.from_label: label must be one of {labels}, got {shown(label)}")
        return level


class Feature(IntEnum):
    """Queries of ``Device.check_feature_support`` (``DML_FEATURE``)."""

    TENSOR_DATA_TYPE_SUPPORT = 0
    FEATURE_LEVELS = 1


class ExecutionFlags(IntFlag):
    """Options of ``Device.compile_operator`` (``DML_EXECUTION_FLAGS``)."""

    NONE = 0
    ALLOW_HALF_PRECISION_COMPUTATION = 1
    DISABLE_META_COMMANDS = 2
    DESCRIPTORS_VOLATILE = 4


class CreateDeviceFlags(IntFlag):
    """Options of a device (``DML_CREATE_DEVICE_FLAGS``)."""

    NONE = 0
    DEBUG = 1


class BindingType(IntEnum):
    """Kind of a binding (``DML_BINDING_TYPE``)."""

    NONE = 0
    BUFFER = 1
    BUFFER_ARRAY = 2


class GraphEdgeType(IntEnum):
    """Kind of a graph edge (``DML_GRAPH_EDGE_TYPE``)."""

    INVALID = 0
    INPUT = 1
    OUTPUT = 2
    INTERMEDIATE = 3


class GraphNodeType(IntEnum):
    """Kind of a graph node (``DML_GRAPH_NODE_TYPE``)."""

    INVALID = 0
    OPERATOR = 1
    CONSTANT = 2
