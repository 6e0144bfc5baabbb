"""Matrix products: of floats, of integers, of quantized numbers.

All are a ``Contract`` (schedule/gemm.py): the operands are tensors or integers less their zero points, everything after
the sum is the epilogue of the same kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType, FeatureLevel, MatrixTransform
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.common.errors import InvalidDescription
from dmlgpu.compiler.operators.activation import ActivationSoftmax, ActivationSoftmax1
from dmlgpu.compiler.operators.elementwise import activated, check_activation_level
from dmlgpu.compiler.operators.lowering import Lowering, check_sizes, input_tensor, invalid, lowering, output_tensor
from dmlgpu.compiler.operators.quantization import (
    DIFFERENCE,
    GATHERED,
    check_per_channel,
    difference,
    gather,
    no_zero_point,
    parameters_of,
    per_channel,
)
from dmlgpu.compiler.plan import (
    Body,
    Contract,
    Plan,
    PlanTensor,
    Product,
    RegisterValue,
    Sizes,
    Source,
    Space,
    apply,
    constants,
    portable,
)
from dmlgpu.compiler.rewrites.sources import CONVERT, cast

FLOAT32, INT32 = DataType.FLOAT32, DataType.INT32
QUANTIZED_PRODUCT = "quantization/quantized_product"
SOFTMAX = ("ACTIVATION_SOFTMAX", "ACTIVATION_SOFTMAX1")
"""Activations that need whole rows."""


# ---- sizes


@dataclass(frozen=True)
class _Matrices:
    """Sizes of a product in its description: A is batch x rows x inner, B is batch x inner x columns."""

    a: Sizes
    b: Sizes

    @classmethod
    def of(cls, desc: Any) -> _Matrices:
        """Read the sizes of the matrices of a description, transposed if it says so."""
        a, b = desc.a_tensor.sizes, desc.b_tensor.sizes
        if getattr(desc, "trans_a", None) is MatrixTransform.TRANSPOSE:
            a = _turned(a)
        if getattr(desc, "trans_b", None) is MatrixTransform.TRANSPOSE:
            b = _turned(b)
        return cls(a, b)

    @property
    def output(self) -> Sizes:
        """The sizes of the product."""
        return (*self.a[:-1], self.b[-1])

    @property
    def space(self) -> Space:
        """Return the dimensions of the sums."""
        return Space(self.a[:-2], self.a[-2:-1], self.b[-1:], self.a[-1:])


def _turned(values: Sizes) -> Sizes:
    """Exchange the last two dimensions."""
    return (*values[:-2], values[-1], values[-2])


class _MatrixProduct(Lowering):
    """Base of all matrix products: the last two dimensions are matrices, those before them number products."""

    @classmethod
    def output_sizes(cls, desc: Any) -> Mapping[str, Sizes]:
        return {"output_tensor": _Matrices.of(desc).output}

    @classmethod
    def check(cls, desc: Any) -> None:
        """Check that A and B have the same batch and inner size, and the output the rows of A and the columns of B."""
        matrices = _Matrices.of(desc)
        (*batch, rows, inner), b = matrices.a, matrices.b
        expected = (*batch, inner, b[-1])
        if b != expected:
            transposed = getattr(desc, "trans_b", None) is MatrixTransform.TRANSPOSE
            sizes = _turned(expected) if transposed else expected
            check_sizes(desc, "b_tensor", sizes, f"a_tensor has batch sizes {batch} and inner size {inner}")
        check_sizes(desc, "output_tensor", matrices.output, f"{rows} rows of a_tensor, {b[-1]} columns of b_tensor")


def _owned(desc: Any, *fields: str) -> bool:
    """Return whether all present tensors are OWNED_BY_DML."""
    tensors = [getattr(desc, field) for field in fields]
    return all(tensor is None or tensor.owned_by_dml for tensor in tensors)


# ---- GEMM


class Gemm(_MatrixProduct):
    """alpha * (A x B) + beta * C, then an activation, all in the kernel that multiplies; softmax in one of its own.

    Sums and everything up to the activation are float32, also of float16. The result is rounded to the output's type
    before the activation, as if that were a separate operator. A beta that is 0 in float32 drops C, even if C contains
    NaN, as BLAS and onnxruntime do; an alpha of 0 is multiplied as usual, so that NaN and infinite products give NaN
    (the page is silent on both). C has the output's sizes; strides of 0 broadcast it. A softmax after GEMM takes its
    axes, or the last one, of the output; the older SOFTMAX's limit to two dimensions larger than 1 applies as well.
    """

    desc = descs.Gemm
    shaders = ("matrix/gemm", "matrix/scaled_product")

    @classmethod
    def check(cls, desc: descs.Gemm) -> None:
        super().check(desc)
        inner = desc.fused_activation
        if inner is not None and inner.operator in SOFTMAX:
            try:
                lowering(inner.operator).check(_standing_alone(desc))
            except InvalidDescription as error:
                raise invalid(desc, f"fused_activation.{error.field}", error.reason) from None

    @classmethod
    def check_level(cls, desc: descs.Gemm, level: FeatureLevel) -> None:
        check_activation_level(desc, level)

    @classmethod
    def lower(cls, desc: descs.Gemm) -> Plan:
        """Lower to the product with its epilogue; before a softmax it writes a temporary tensor."""
        a, b = input_tensor(desc, "a_tensor"), input_tensor(desc, "b_tensor")
        if desc.trans_a is MatrixTransform.TRANSPOSE:
            a = replace(a, sizes=_turned(a.sizes), strides=_turned(a.strides))
        if desc.trans_b is MatrixTransform.TRANSPOSE:
            b = replace(b, sizes=_turned(b.sizes), strides=_turned(b.strides))
        owned = _owned(desc, "a_tensor"), _owned(desc, "b_tensor")
        product = Product(_Matrices.of(desc).space, a, b, FLOAT32, *owned)
        output = output_tensor(desc)
        if desc.fused_activation is None or desc.fused_activation.operator not in SOFTMAX:
            body = activated(cls._epilogue(desc, output), desc.fused_activation)
            return Plan(desc.operator, (Contract("", product, body, output),))
        return cls._softmax(desc, product, output)

    @classmethod
    def _epilogue(cls, desc: descs.Gemm, output: PlanTensor) -> Body:
        held = RegisterValue.product(FLOAT32, output.sizes)
        if desc.c_tensor is None or np.float32(desc.beta) == 0:
            values = constants(compute=FLOAT32, alpha=desc.alpha)
            return portable(cls.shaders[1], output, values=values, product=held)
        values = constants(compute=FLOAT32, alpha=desc.alpha, beta=desc.beta)
        c = input_tensor(desc, "c_tensor")
        return portable(cls.shaders[0], output, values=values, product=held, c=c)

    @classmethod
    def _softmax(cls, desc: descs.Gemm, product: Product, output: PlanTensor) -> Plan:
        """Return the product, in a temporary tensor of the output's type, and the softmax of its rows."""
        values = PlanTensor.temporary("product", output.data_type, output.sizes)
        contract = Contract("", product, cls._epilogue(desc, values), values)
        softmax = _standing_alone(desc)
        if isinstance(softmax, descs.ActivationSoftmax):
            softmax = ActivationSoftmax.upgrade(softmax)
        assert isinstance(softmax, descs.ActivationSoftmax1)
        return Plan(desc.operator, (contract, ActivationSoftmax1.of_rows(values, softmax.axes, output)))


def _standing_alone(desc: descs.Gemm) -> OperatorDesc:
    """Return the fused activation as a separate operator."""
    assert desc.fused_activation is not None
    tensor = replace(desc.output_tensor, strides=None, total_tensor_size_in_bytes=None)
    return desc.fused_activation.replace(input_tensor=tensor, output_tensor=tensor)


# ---- integers


def _differences(desc: Any, name: str, sizes: Sizes, own: int, data_type: DataType) -> Source:
    """Return A or B less its zero point, in the data type of the sums."""
    values = input_tensor(desc, f"{name}_tensor")
    if getattr(desc, f"{name}_zero_point_tensor") is None:
        return cast(values, data_type)
    zero = per_channel(input_tensor(desc, f"{name}_zero_point_tensor"), sizes, own)
    return difference(values, zero, data_type)


ROWS, COLUMNS = -2, -1
"""Dimension, counted from the last, along which there may be several scales and zero points."""


class _IntegerProduct(_MatrixProduct):
    """Base of the products of integers.

    Scales and zero points of A (and of the output) come one for all or one per row, those of B one per column: all
    their dimensions have size 1 but the last but one, or the last; with a single dimension that one counts. Scale and
    zero point of a tensor need not be equally many. 8-bit numbers are summed in INT32, which wraps around beyond
    2**31 (as onnxruntime's does), the earliest after 33,025 products.
    """

    parameters: ClassVar[Mapping[str, int]] = {"a_zero_point_tensor": ROWS, "b_zero_point_tensor": COLUMNS}

    @classmethod
    def check(cls, desc: Any) -> None:
        super().check(desc)
        output = _Matrices.of(desc).output
        for field, own in cls.parameters.items():
            check_per_channel(desc, field, output[own], "row" if own == ROWS else "column", own)

    @classmethod
    def operands(cls, desc: Any, accumulator: DataType) -> tuple[Source, Source]:
        """Return A and B less their zero points."""
        a, b = desc.a_tensor.sizes, desc.b_tensor.sizes
        return _differences(desc, "a", a, ROWS, accumulator), _differences(desc, "b", b, COLUMNS, accumulator)

    @classmethod
    def product(cls, desc: Any, a: Source, b: Source, owned: tuple[bool, bool]) -> Product:
        """Return the product of two operands."""
        return Product(_Matrices.of(desc).space, a, b, a.data_type, *owned)

    @classmethod
    def owned(cls, desc: Any) -> tuple[bool, bool]:
        """Return whether A and its zero point, and B and its zero point, are bound at initialization."""
        return _owned(desc, "a_tensor", "a_zero_point_tensor"), _owned(desc, "b_tensor", "b_zero_point_tensor")


class MatrixMultiplyInteger(_IntegerProduct):
    """The plain sums. A missing zero point is 0."""

    desc = descs.MatrixMultiplyInteger
    shaders = ("matrix/matrix_multiply_integer", DIFFERENCE, CONVERT)

    @classmethod
    def lower(cls, desc: descs.MatrixMultiplyInteger) -> Plan:
        product = cls.product(desc, *cls.operands(desc, INT32), cls.owned(desc))
        output = output_tensor(desc)
        body = apply(
            cls.shaders[0], INT32, output.sizes, portable=True, product=RegisterValue.product(INT32, output.sizes)
        )
        return Plan(desc.operator, (Contract("", product, body, output),))


class MatrixMultiplyIntegerToFloat(_IntegerProduct):
    """sum * (scale of A * scale of B) + bias, each step in float32, rounded to the output's type at the end.

    Sums of 8-bit numbers are exact. Wider numbers, less their zero points, become float32 and are summed in it, since
    their products fit no integer that every adapter has (the page is silent).
    """

    desc = descs.MatrixMultiplyIntegerToFloat
    shaders = ("matrix/dequantized_product", "matrix/dequantized_product_with_bias", DIFFERENCE, CONVERT)
    parameters: ClassVar[Mapping[str, int]] = {
        "a_scale_tensor": ROWS,
        "a_zero_point_tensor": ROWS,
        "b_scale_tensor": COLUMNS,
        "b_zero_point_tensor": COLUMNS,
    }

    @classmethod
    def lower(cls, desc: descs.MatrixMultiplyIntegerToFloat) -> Plan:
        accumulator = INT32 if desc.a_tensor.data_type.bits == 8 else FLOAT32
        product = cls.product(desc, *cls.operands(desc, accumulator), cls.owned(desc))
        output = output_tensor(desc)
        inputs: dict[str, Source] = {
            "product": RegisterValue.product(accumulator, output.sizes),
            "a_scale": per_channel(input_tensor(desc, "a_scale_tensor"), output.sizes, ROWS),
            "b_scale": per_channel(input_tensor(desc, "b_scale_tensor"), output.sizes, COLUMNS),
        }
        if desc.bias_tensor is not None:
            inputs["bias"] = input_tensor(desc, "bias_tensor")
        file = cls.shaders[0] if desc.bias_tensor is None else cls.shaders[1]
        values = constants(compute=FLOAT32)
        body = portable(file, output, values=values, **inputs)
        return Plan(desc.operator, (Contract("", product, body, output),))


class QuantizedLinearMatrixMultiply(_IntegerProduct):
    """clamp(round(sum * (scale of A * scale of B) / scale of the output) + its zero point), each step in float32.

    The quotient is rounded once to an integer with ties to even, and the zero point is added in integers (the page is
    silent on both; so does onnxruntime). A missing zero point is 0. Nine tensors exceed the bindings of a kernel, so a
    first, small kernel packs scales and zero points into one tensor.
    """

    desc = descs.QuantizedLinearMatrixMultiply
    shaders = (QUANTIZED_PRODUCT, GATHERED, DIFFERENCE, CONVERT)
    parameters: ClassVar[Mapping[str, int]] = {
        "a_scale_tensor": ROWS,
        "a_zero_point_tensor": ROWS,
        "b_scale_tensor": COLUMNS,
        "b_zero_point_tensor": COLUMNS,
        "output_scale_tensor": ROWS,
        "output_zero_point_tensor": ROWS,
    }
    gathered: ClassVar[tuple[str, ...]] = (
        "a_scale_tensor",
        "b_scale_tensor",
        "output_scale_tensor",
        "output_zero_point_tensor",
    )

    @classmethod
    def lower(cls, desc: descs.QuantizedLinearMatrixMultiply) -> Plan:
        """Lower to a copy of the parameters into one tensor, and the product with an epilogue."""
        output = output_tensor(desc)
        parameters = parameters_of(desc, cls.gathered)
        step, gathered = gather(parameters)
        inputs: dict[str, Source] = {"product": RegisterValue.product(INT32, output.sizes)}
        inputs |= {
            parameter.name: per_channel(parameter.view(gathered), output.sizes, cls.parameters[parameter.field])
            for parameter in parameters
        }
        if desc.output_zero_point_tensor is None:
            inputs["zero_point"] = no_zero_point(output.sizes)
        limits = np.iinfo(output.data_type.numpy)
        values = constants(compute=FLOAT32, low=int(limits.min), high=int(limits.max))
        body = portable(cls.shaders[0], output, values=values, **inputs)
        product = cls.product(desc, *cls.operands(desc, INT32), cls.owned(desc))
        return Plan(desc.operator, (step, Contract("", product, body, output)))
