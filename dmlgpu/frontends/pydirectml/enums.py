"""PyDirectML's enumerations, with the members, values and representations of its binding."""

from __future__ import annotations

from enum import IntEnum, IntFlag


class _Enumeration(IntEnum):
    """An enumeration whose members print under their names: ``TensorFlags.NONE``."""

    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"


class TensorDataType(_Enumeration):
    """Type of a tensor's elements (DML_TENSOR_DATA_TYPE)."""

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


class TensorFlags(_Enumeration):
    """OWNED_BY_DML: the data are constant, bound when a model is initialized (DML_TENSOR_FLAGS)."""

    NONE = 0
    OWNED_BY_DML = 1


class MatrixTransform(_Enumeration):
    """Whether a matrix of a product is transposed (DML_MATRIX_TRANSFORM)."""

    NONE = 0
    TRANSPOSE = 1


class RecurrentNetworkDirection(_Enumeration):
    """Order of the time steps of a recurrent network (DML_RECURRENT_NETWORK_DIRECTION)."""

    FORWARD = 0
    BACKWARD = 1
    BIDIRECTIONAL = 2


class OutputOptions(_Enumeration):
    """Outputs of ``gru`` (DirectMLX: GRUOutputOptions); its members do not equal numbers."""

    Both = 0
    Sequence = 1
    Single = 2

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    __hash__ = IntEnum.__hash__


class ConvolutionMode(_Enumeration):
    """Whether filters are flipped (DML_CONVOLUTION_MODE)."""

    CONVOLUTION = 0
    CROSS_CORRELATION = 1


class ConvolutionDirection(_Enumeration):
    """BACKWARD is the transposed convolution (DML_CONVOLUTION_DIRECTION)."""

    FORWARD = 0
    BACKWARD = 1


class InterpolationMode(_Enumeration):
    """Interpolation of new pixels by ``up_sample_2d`` (DML_INTERPOLATION_MODE)."""

    NEAREST_NEIGHBOR = 0
    LINEAR = 1


class PaddingMode(_Enumeration):
    """Values that ``padding`` adds around a tensor (DML_PADDING_MODE)."""

    CONSTANT = 0
    EDGE = 1
    REFLECTION = 2


class ExecutionFlags(IntFlag):
    """Options of compiling a model (DML_EXECUTION_FLAGS)."""

    NONE = 0
    ALLOW_HALF_PRECISION_COMPUTATION = 1
    DISABLE_META_COMMANDS = 2
    DESCRIPTORS_VOLATILE = 4

    def __str__(self) -> str:
        return f"ExecutionFlags.{self.name}"


class OperatorType(_Enumeration):
    """Operators; ``FusedActivation`` accepts activations (DML_OPERATOR_TYPE)."""

    INVALID = 0
    ELEMENT_WISE_IDENTITY = 1
    ELEMENT_WISE_ABS = 2
    ELEMENT_WISE_ACOS = 3
    ELEMENT_WISE_ADD = 4
    ELEMENT_WISE_ASIN = 5
    ELEMENT_WISE_ATAN = 6
    ELEMENT_WISE_CEIL = 7
    ELEMENT_WISE_CLIP = 8
    ELEMENT_WISE_COS = 9
    ELEMENT_WISE_DIVIDE = 10
    ELEMENT_WISE_EXP = 11
    ELEMENT_WISE_FLOOR = 12
    ELEMENT_WISE_LOG = 13
    ELEMENT_WISE_LOGICAL_AND = 14
    ELEMENT_WISE_LOGICAL_EQUALS = 15
    ELEMENT_WISE_LOGICAL_GREATER_THAN = 16
    ELEMENT_WISE_LOGICAL_LESS_THAN = 17
    ELEMENT_WISE_LOGICAL_NOT = 18
    ELEMENT_WISE_LOGICAL_OR = 19
    ELEMENT_WISE_LOGICAL_XOR = 20
    ELEMENT_WISE_MAX = 21
    ELEMENT_WISE_MEAN = 22
    ELEMENT_WISE_MIN = 23
    ELEMENT_WISE_MULTIPLY = 24
    ELEMENT_WISE_POW = 25
    ELEMENT_WISE_CONSTANT_POW = 26
    ELEMENT_WISE_RECIP = 27
    ELEMENT_WISE_SIN = 28
    ELEMENT_WISE_SQRT = 29
    ELEMENT_WISE_SUBTRACT = 30
    ELEMENT_WISE_TAN = 31
    ELEMENT_WISE_THRESHOLD = 32
    ELEMENT_WISE_QUANTIZE_LINEAR = 33
    ELEMENT_WISE_DEQUANTIZE_LINEAR = 34
    ACTIVATION_ELU = 35
    ACTIVATION_HARDMAX = 36
    ACTIVATION_HARD_SIGMOID = 37
    ACTIVATION_IDENTITY = 38
    ACTIVATION_LEAKY_RELU = 39
    ACTIVATION_LINEAR = 40
    ACTIVATION_LOG_SOFTMAX = 41
    ACTIVATION_PARAMETERIZED_RELU = 42
    ACTIVATION_PARAMETRIC_SOFTPLUS = 43
    ACTIVATION_RELU = 44
    ACTIVATION_SCALED_ELU = 45
    ACTIVATION_SCALED_TANH = 46
    ACTIVATION_SIGMOID = 47
    ACTIVATION_SOFTMAX = 48
    ACTIVATION_SOFTPLUS = 49
    ACTIVATION_SOFTSIGN = 50
    ACTIVATION_TANH = 51
    ACTIVATION_THRESHOLDED_RELU = 52
    CONVOLUTION = 53
    GEMM = 54
    REDUCE = 55
    AVERAGE_POOLING = 56
    LP_POOLING = 57
    MAX_POOLING = 58
    ROI_POOLING = 59
    SLICE = 60
    CAST = 61
    SPLIT = 62
    JOIN = 63
    PADDING = 64
    VALUE_SCALE_2D = 65
    UPSAMPLE_2D = 66
    GATHER = 67
    SPACE_TO_DEPTH = 68
    DEPTH_TO_SPACE = 69
    TILE = 70
    TOP_K = 71
    BATCH_NORMALIZATION = 72
    MEAN_VARIANCE_NORMALIZATION = 73
    LOCAL_RESPONSE_NORMALIZATION = 74
    LP_NORMALIZATION = 75
    RNN = 76
    LSTM = 77
    GRU = 78
    ELEMENT_WISE_SIGN = 79
    ELEMENT_WISE_IS_NAN = 80
    ELEMENT_WISE_ERF = 81
    ELEMENT_WISE_SINH = 82
    ELEMENT_WISE_COSH = 83
    ELEMENT_WISE_TANH = 84
    ELEMENT_WISE_ASINH = 85
    ELEMENT_WISE_ACOSH = 86
    ELEMENT_WISE_ATANH = 87
    ELEMENT_WISE_IF = 88
    ELEMENT_WISE_ADD1 = 89
    ACTIVATION_SHRINK = 90
    MAX_POOLING1 = 91
    MAX_UNPOOLING = 92
    DIAGONAL_MATRIX = 93
    SCATTER = 94
    ONE_HOT = 95
    RESAMPLE = 96


EXPORTED: dict[str, IntEnum | IntFlag] = {
    name: member
    for enumeration in (
        TensorDataType,
        TensorFlags,
        MatrixTransform,
        RecurrentNetworkDirection,
        ConvolutionMode,
        ConvolutionDirection,
        InterpolationMode,
        PaddingMode,
        ExecutionFlags,
        OperatorType,
    )
    for name, member in enumeration.__members__.items()
}
"""Members exported by the module; of equal names, the later one: ``NONE`` is ``ExecutionFlags.NONE``."""
