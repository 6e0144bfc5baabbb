"""Cases of matrix products. A key's sizes are those of A before it is transposed; the columns of B are drawn.

The error of a sum grows with the sum of the absolute values of its terms (``Accumulated``); later operations add their
own, element by element, in the unit of the magnitudes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import ClassVar

import numpy as np

from dmlgpu import reference
from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType, MatrixTransform
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.conformance.cases.case import Array, Arrays, Case
from dmlgpu.conformance.cases.keys import PLAIN, Key, SizesList, Types
from dmlgpu.conformance.cases.layouts import EDGE_SIZES, TensorLayout
from dmlgpu.conformance.cases.operator_cases import OperatorCases, cases, draw_tensors, register
from dmlgpu.conformance.cases.tolerance import EXACT, Accumulated, Bound, ulp

BARE = "bare"  # without optional tensors
FUSED = "fused"
SOFTMAX = "softmax"
SPECIAL = "special"  # infinities and NaN among the elements
SINGLE = "single"  # one scale and zero point for all rows and columns
TIES = "ties"  # many quotients are halves, a few saturate

Sizes = tuple[int, ...]
UNIT = 2.0**-24
FEW = 4096
"""Elements of A beyond which B gets few columns."""


def columns_of(key: Key, rng: np.random.Generator) -> int:
    """Return the number of columns of B."""
    most = 17 if math.prod(key.sizes) > FEW else 65
    return int(rng.choice([size for size in EDGE_SIZES if size <= most]))


class _MatrixCases(OperatorCases):
    """Matrices, and batches of them."""

    standard_count = 40
    ranks = (2, 3, 4)
    long_sizes: ClassVar[SizesList] = ((3, 70001), (1, 4096), (130, 70))
    large_sizes: ClassVar[SizesList] = ((2, 301, 1027), (1023, 513))


# ---- GEMM

ACTIVATIONS: tuple[OperatorDesc, ...] = (
    descs.ActivationRelu(),
    descs.ActivationIdentity(),
    descs.ActivationLeakyRelu(alpha=0.25),
    descs.ActivationLinear(alpha=-0.5, beta=0.25),
    descs.ActivationSigmoid(),
    descs.ActivationTanh(),
    descs.ElementWiseClip(scale_bias=None, min=-2.0, max=3.5),
)
"""Each changes no faster than its argument, and adds an error of a few units at most."""


def _transposed(sizes: Sizes, transform: MatrixTransform) -> Sizes:
    return (*sizes[:-2], sizes[-1], sizes[-2]) if transform is MatrixTransform.TRANSPOSE else sizes


def _matrix(array: Array, transform: MatrixTransform) -> Array:
    wide = np.abs(array.astype(np.float64))
    return wide.swapaxes(-1, -2) if transform is MatrixTransform.TRANSPOSE else wide


@cases(descs.Gemm)
class GemmCases(_MatrixCases):
    """GEMM."""

    type_fields = ("ATensor",)
    variant_names: ClassVar[tuple[str, ...]] = (PLAIN, BARE, FUSED, SOFTMAX, SPECIAL)

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        (data_type,), (*batch, rows, inner), columns = key.types, key.sizes, columns_of(key, rng)
        trans_a, trans_b = (MatrixTransform(int(which)) for which in rng.integers(0, 2, 2))
        a, b, c, output = draw_tensors(
            key,
            rng,
            (data_type, _transposed((*batch, rows, inner), trans_a), False),
            (data_type, _transposed((*batch, inner, columns), trans_b), False),
            (data_type, (*batch, rows, columns), False),
            (data_type, (*batch, rows, columns), True),
        )
        alpha, beta = (float(value) for value in rng.choice([1.0, 0.5, -1.25, 0.0, 0.1], 2))
        desc = descs.Gemm(
            a_tensor=a,
            b_tensor=b,
            c_tensor=None if key.variant == BARE else c,
            output_tensor=output,
            trans_a=trans_a,
            trans_b=trans_b,
            alpha=alpha if key.variant != SPECIAL else 1.0,
            beta=beta,
            fused_activation=_activation(key, rng),
        )

        def fill(contents: np.random.Generator) -> Arrays:
            tensors = (slot.tensor for slot in desc.inputs)
            return tuple(None if tensor is None else _floats(contents, tensor, key) for tensor in tensors)

        return Case(name, desc, fill, Accumulated(inner), magnitude=lambda inputs: _gemm_magnitude(desc, inputs, inner))


def _activation(key: Key, rng: np.random.Generator) -> OperatorDesc | None:
    if key.variant == FUSED:
        return ACTIVATIONS[rng.integers(len(ACTIVATIONS))]
    if key.variant != SOFTMAX:
        return None
    rank = len(key.sizes)
    if math.prod(key.sizes[:-2]) == 1 and rng.integers(2):
        return descs.ActivationSoftmax()
    return descs.ActivationSoftmax1(axes=tuple(int(axis) for axis in rng.permutation(rank)[: rng.integers(1, 3)]))


def _floats(rng: np.random.Generator, tensor: TensorDesc, key: Key) -> Array:
    values = rng.standard_normal(tensor.sizes)
    if key.variant == SOFTMAX:
        values = values / math.sqrt(key.sizes[-1])
    if key.variant == SPECIAL:
        for value in (math.inf, -math.inf, math.nan):
            values[rng.random(tensor.sizes) < 0.3 / values.size] = value
    return values.astype(tensor.data_type.numpy)


def _gemm_magnitude(desc: descs.Gemm, inputs: Arrays, terms: int) -> Bound:
    """Return the total error: of the sum, of its rounding before an activation, of the activation."""
    a, b, c = inputs
    assert a is not None and b is not None
    with np.errstate(invalid="ignore"):
        total = abs(desc.alpha) * (_matrix(a, desc.trans_a) @ _matrix(b, desc.trans_b))
        if c is not None and desc.beta != 0:
            total = total + abs(desc.beta) * np.abs(c.astype(np.float64))
    if desc.fused_activation is None:
        return total
    growth = Accumulated(terms).bound(np.zeros(1, np.float64), np.ones(1))[0] / 2.0**-53 * UNIT
    (plain,) = reference.evaluate(desc.replace(fused_activation=None), inputs)
    error = growth * total + (ulp(plain) if desc.output_tensor.data_type is DataType.FLOAT16 else 0)
    if desc.fused_activation.operator.startswith("ACTIVATION_SOFTMAX"):
        axes = getattr(desc.fused_activation, "axes", (plain.ndim - 1,))
        below = plain.astype(np.float64).max(axes, keepdims=True) - plain
        (weights,) = reference.evaluate(desc, inputs)
        error = weights.astype(np.float64) * (error + error.max(axes, keepdims=True) + (below + 16) * UNIT)
    return error / growth + 4


# ---- integers


def integers(rng: np.random.Generator, data_type: DataType, sizes: Sizes) -> Array:
    """Draw numbers of the whole range of a type."""
    limits = np.iinfo(data_type.numpy)
    return rng.integers(limits.min, limits.max, sizes, data_type.numpy, endpoint=True)


def _parameter_sizes(key: Key, rng: np.random.Generator, count: int, *, of_rows: bool, rank: int) -> Sizes:
    """Draw sizes of rank ``rank`` of one parameter for all, or one per row or column."""
    if key.variant == SINGLE or rng.integers(4) == 0:
        return (1,) * rank
    if rank == 1:
        return (count,)
    return (*(1,) * (rank - 2), count, 1) if of_rows else (*(1,) * (rank - 1), count)


class _IntegerMatrixCases(_MatrixCases):
    """Integers, with scales and zero points of one to four dimensions.

    Attributes:
        of_rows, of_columns: The parameters' fields, by whether there may be one per row or per column.
    """

    of_rows: ClassVar[tuple[str, ...]] = ("a_zero_point_tensor",)
    of_columns: ClassVar[tuple[str, ...]] = ("b_zero_point_tensor",)
    type_fields: ClassVar[tuple[str, ...]] = ("ATensor", "BTensor")
    variant_names: ClassVar[tuple[str, ...]] = (PLAIN, BARE, SINGLE)

    def types_of(self, key: Key) -> Mapping[str, DataType]:
        """Return the type of each tensor."""
        a, b = key.types
        return {
            "a_tensor": a,
            "a_zero_point_tensor": a,
            "b_tensor": b,
            "b_zero_point_tensor": b,
            "output_tensor": DataType.INT32,
        }

    def fields(self, key: Key, rng: np.random.Generator) -> dict[str, TensorDesc | None]:
        """Return all tensors."""
        (*batch, rows, inner), columns = key.sizes, columns_of(key, rng)
        rank, types = int(rng.integers(1, 5)), self.types_of(key)
        sizes: dict[str, Sizes] = {
            "a_tensor": (*batch, rows, inner),
            "b_tensor": (*batch, inner, columns),
            "output_tensor": (*batch, rows, columns),
            "bias_tensor": (*batch, rows, columns),
        }
        for field in self.of_rows:
            sizes[field] = _parameter_sizes(key, rng, rows, of_rows=True, rank=rank)
        for field in self.of_columns:
            sizes[field] = _parameter_sizes(key, rng, columns, of_rows=False, rank=rank)
        tensors = draw_tensors(key, rng, *((types[field], sizes[field], field == "output_tensor") for field in types))
        fields: dict[str, TensorDesc | None] = dict(zip(types, tensors, strict=True))
        if key.variant == BARE:
            fields |= {field: None for field in types if field.endswith("zero_point_tensor") or field == "bias_tensor"}
        return fields

    def draw(self, key: Key, field: str, tensor: TensorDesc, rng: np.random.Generator) -> Array:
        """Draw contents of a tensor."""
        return integers(rng, tensor.data_type, tensor.sizes)

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        desc = self.desc_class(**self.fields(key, rng))

        def fill(contents: np.random.Generator) -> Arrays:
            return tuple(
                None if slot.tensor is None else self.draw(key, slot.field, slot.tensor, contents)
                for slot in desc.inputs
            )

        return self.with_tolerance(Case(name, desc, fill, EXACT), key)

    def with_tolerance(self, case: Case, key: Key) -> Case:
        """Return the case with its tolerance."""
        return case


register(
    _IntegerMatrixCases,
    descs.MatrixMultiplyInteger,
    added_keys=(
        Key((DataType.UINT8, DataType.INT8), (2, 256, 64), TensorLayout.INTERLEAVED, BARE, 1),
        Key((DataType.UINT8, DataType.UINT8), (4, 130, 4), TensorLayout.PACKED, BARE, 2),
        Key((DataType.INT8, DataType.INT8), (64, 32), TensorLayout.PACKED, BARE),
    ),
)  # products in workgroup memory, four integers at a time, with and without middles to subtract, in aligned words


def scales(rng: np.random.Generator, tensor: TensorDesc, largest: int) -> Array:
    """Draw positive scales up to a power of two."""
    powers = 2.0 ** rng.integers(largest - 3, largest + 1, tensor.sizes)
    return (powers * (0.5 + rng.random(tensor.sizes) / 2)).astype(tensor.data_type.numpy)


def ties_and_saturation(rng: np.random.Generator, field: str, tensor: TensorDesc) -> Array:
    """Draw contents of a quantized product's tensor such that quotients are small multiples of 1/8, many of them
    float16 values, and a few far beyond the output's type."""
    if "scale" in field:
        powers = (
            rng.integers(2, 4, tensor.sizes) if field == "output_scale_tensor" else rng.integers(0, 2, tensor.sizes)
        )
        return (2.0**powers).astype(np.float32)
    if field == "output_zero_point_tensor":
        return rng.choice([1, 3], tensor.sizes).astype(tensor.data_type.numpy)  # added before, they would move ties
    small = rng.integers(0, 5, tensor.sizes)
    if "zero_point" not in field and field != "bias_tensor":
        largest = np.iinfo(tensor.data_type.numpy).max
        small = np.where(rng.random(tensor.sizes) < 0.02, largest, small)
    return small.astype(tensor.data_type.numpy)


def quantized_types(names: Iterable[str], types: Types) -> dict[str, DataType]:
    """Return the types of tensors with these names, of their scales and their zero points, by field."""
    types_by_field: dict[str, DataType] = {}
    for name, data_type in zip(names, types, strict=True):
        types_by_field[f"{name}_tensor"] = types_by_field[f"{name}_zero_point_tensor"] = data_type
        types_by_field[f"{name}_scale_tensor"] = DataType.FLOAT32
    return types_by_field


@cases(descs.QuantizedLinearMatrixMultiply)
class QuantizedLinearMatrixMultiplyCases(_IntegerMatrixCases):
    """QUANTIZED_LINEAR_MATRIX_MULTIPLY."""

    of_rows = ("a_scale_tensor", "a_zero_point_tensor", "output_scale_tensor", "output_zero_point_tensor")
    of_columns = ("b_scale_tensor", "b_zero_point_tensor")

    type_fields = ("ATensor", "BTensor", "OutputTensor")
    variant_names: ClassVar[tuple[str, ...]] = (PLAIN, BARE, SINGLE, TIES)
    added_keys: ClassVar[tuple[Key, ...]] = (Key((DataType.INT8,) * 3, (33, 1024), TensorLayout.INTERLEAVED),)
    """A long sum in workgroup memory, along rows that do not lie in one piece."""

    def types_of(self, key: Key) -> Mapping[str, DataType]:
        return quantized_types(("a", "b", "output"), key.types)

    def draw(self, key: Key, field: str, tensor: TensorDesc, rng: np.random.Generator) -> Array:
        """Outputs are to fill their range: the product's typical size is 2**13 for each square root of a term."""
        if key.variant == TIES:
            return ties_and_saturation(rng, field, tensor)
        if "scale" not in field:
            return super().draw(key, field, tensor, rng)
        largest = 8 + round(math.log2(key.sizes[-1]) / 2) if field == "output_scale_tensor" else 0
        return scales(rng, tensor, largest)


@cases(descs.MatrixMultiplyIntegerToFloat)
class MatrixMultiplyIntegerToFloatCases(_IntegerMatrixCases):
    """MATRIX_MULTIPLY_INTEGER_TO_FLOAT."""

    of_rows = ("a_scale_tensor", "a_zero_point_tensor")
    of_columns = ("b_scale_tensor", "b_zero_point_tensor")
    type_fields = ("ATensor", "OutputTensor")
    added_keys: ClassVar[tuple[Key, ...]] = (
        Key((DataType.INT8, DataType.FLOAT32), (64, 2048), TensorLayout.BROADCAST, BARE, 1),
    )
    """Few columns that GPUs stream."""

    def types_of(self, key: Key) -> Mapping[str, DataType]:
        integer, real = key.types
        integers = ("a_tensor", "a_zero_point_tensor", "b_tensor", "b_zero_point_tensor")
        reals = ("a_scale_tensor", "b_scale_tensor", "bias_tensor", "output_tensor")
        return dict.fromkeys(integers, integer) | dict.fromkeys(reals, real)

    def draw(self, key: Key, field: str, tensor: TensorDesc, rng: np.random.Generator) -> Array:
        """Draw scales that bring wide integers down to floats of any width; small zero points of those."""
        bits = key.types[0].bits
        if "scale" in field:
            return scales(rng, tensor, 4 - bits if key.types[1] is DataType.FLOAT32 else max(4 - bits, -12))
        if tensor.data_type.is_float:
            return rng.standard_normal(tensor.sizes).astype(tensor.data_type.numpy)
        values = super().draw(key, field, tensor, rng)
        return values // (1 << 16) if bits == 32 and key.types[1] is DataType.FLOAT16 else values

    def with_tolerance(self, case: Case, key: Key) -> Case:
        """Return the error of the sum, if it is not exact, and of four operations after it."""
        tolerance = Accumulated(1 if key.types[0].bits == 8 else key.sizes[-1])
        return Case(case.name, case.desc, case.fill, tolerance, magnitude=_dequantized_magnitude)


def _dequantized_magnitude(inputs: Arrays) -> Bound:
    a, a_scale, a_zero, b, b_scale, b_zero, bias = inputs
    assert a is not None and b is not None and a_scale is not None and b_scale is not None
    left = np.abs(a.astype(np.float64) - (0 if a_zero is None else a_zero.astype(np.float64).reshape(-1, 1)))
    right = np.abs(b.astype(np.float64) - (0 if b_zero is None else b_zero.astype(np.float64).reshape(1, -1)))
    scales = a_scale.astype(np.float64).reshape(-1, 1) * b_scale.astype(np.float64).reshape(1, -1)
    total = 4 * (left @ right) * np.abs(scales)
    return total if bias is None else total + np.abs(bias.astype(np.float64))
