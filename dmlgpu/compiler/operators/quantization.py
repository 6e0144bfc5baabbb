"""Quantization to small integers with a scale and a zero point, and dequantization.

Quotients and products are float32, rounded once each; a quotient is rounded to an integer with ties to even; zero
points are added and subtracted as integers; values out of range saturate; NaN counts as 0. A missing zero point is 0.
(The pages specify none of this; onnxruntime does the same. A scale of 0 is undefined there; here the quotient is
infinite or NaN.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType, QuantizationType
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import TENSOR_ALIGNMENT, WORD_BITS, TensorDesc
from dmlgpu.compiler.operators.lowering import (
    Lowering,
    check_sizes,
    everywhere,
    input_tensor,
    invalid,
    output_tensor,
)
from dmlgpu.compiler.plan import (
    Body,
    Constants,
    Map,
    Plan,
    PlanTensor,
    Reduce,
    Reduction,
    Role,
    Sizes,
    Source,
    apply,
    constants,
    element,
    in_float32,
    portable,
)

QUANTIZE = "quantization/quantize"
DEQUANTIZE = "quantization/dequantize"
NO_ZERO_POINT = "quantization/no_zero_point"
FLOAT32, INT32 = DataType.FLOAT32, DataType.INT32


def limits(data_type: DataType) -> tuple[int, int]:
    """Return the smallest and the largest number of an integer type."""
    low = -(1 << (data_type.bits - 1)) if data_type.is_signed else 0
    return low, low + (1 << data_type.bits) - 1


def _quantizing(data_type: DataType) -> Constants:
    low, high = limits(data_type)
    return constants(compute=FLOAT32, low=low, high=high)


def _linear(
    file: str,
    output: PlanTensor,
    quantized: DataType,
    values: Constants,
    *,
    zero_point: Source | None,
    **inputs: Source,
) -> Map:
    """Return the map of one of the two bodies over elements with their scales and zero points."""
    inputs["zero_point"] = zero_point or no_zero_point(output.sizes, quantized)
    return Map("map", portable(file, output, values=values, **inputs), output)


def _quantize(output: PlanTensor, source: Source, scale: Source, zero_point: Source | None) -> Map:
    """Return the map that quantizes a tensor; without a zero point it is 0."""
    values = _quantizing(output.data_type)
    return _linear(QUANTIZE, output, output.data_type, values, input=source, scale=scale, zero_point=zero_point)


def _dequantize(output: PlanTensor, source: Source, scale: Source, zero_point: Source | None) -> Map:
    """Return the map that dequantizes a tensor; without a zero point it is 0."""
    # The narrowest type that has all differences; those of INT16 become float32 in one instruction.
    integer = {32: DataType.INT64, 16: INT32}.get(source.data_type.bits, DataType.INT16)
    values = constants(compute=FLOAT32, integer=integer)
    return _linear(DEQUANTIZE, output, source.data_type, values, input=source, scale=scale, zero_point=zero_point)


class _Linear(Lowering):
    """Base of operators with a scale and an optional zero point for every element.

    Class attributes:
        step: the map over output, input, scale and zero point of equal sizes.
    """

    step: ClassVar[staticmethod[[PlanTensor, Source, Source, Source | None], Map]]

    @classmethod
    def tensors(cls, desc: Any) -> tuple[PlanTensor, PlanTensor, PlanTensor, PlanTensor | None]:
        """Return output, input, scale and zero point, of equal sizes, broadcast by their strides."""
        zero_point = None if desc.zero_point_tensor is None else input_tensor(desc, "zero_point_tensor")
        return output_tensor(desc), input_tensor(desc, "input_tensor"), input_tensor(desc, "scale_tensor"), zero_point

    @classmethod
    def lower(cls, desc: Any) -> Plan:
        return Plan(desc.operator, (cls.step(*cls.tensors(desc)),))


# ---- a scale for every element (broadcast by strides)


class ElementWiseQuantizeLinear(_Linear):
    """clamp(round(x / scale) + zero point); INT32 becomes float32 first."""

    desc = descs.ElementWiseQuantizeLinear
    shaders = (QUANTIZE, NO_ZERO_POINT)
    step = staticmethod(_quantize)

    @classmethod
    def check(cls, desc: descs.ElementWiseQuantizeLinear) -> None:
        real, scale = desc.input_tensor.data_type, desc.scale_tensor.data_type
        expected = real if real.is_float else FLOAT32
        if scale is not expected:
            reason = f"must be {expected.name} for an input of {real.name}, got {scale.name}"
            raise invalid(desc, "scale_tensor.data_type", reason)


class ElementWiseDequantizeLinear(_Linear):
    """(x - zero point) * scale; 32-bit differences are exact too, before they become float32."""

    desc = descs.ElementWiseDequantizeLinear
    shaders = (DEQUANTIZE, NO_ZERO_POINT)
    step = staticmethod(_dequantize)


# ---- a scale for every block


class _InBlocks(_Linear):
    """Base of QUANTIZE and DEQUANTIZE, whose pages list only types.

    The quantization tensors are the scale and, for SCALE_ZERO_POINT, the zero point, of equal sizes. In each dimension
    their size divides the input's, and element i takes entry i div (input size / scale size).
    """

    same_sizes: ClassVar[Mapping[str, str]] = {"output_tensor": "input_tensor"}
    typed: ClassVar[tuple[str, str]]
    """The fields whose data types the scale and the zero point have."""

    @classmethod
    def check(cls, desc: Any) -> None:
        kind, tensors = desc.quantization_type, desc.quantization_tensors
        if kind is QuantizationType.NONE:
            raise invalid(desc, "quantization_type", "must be SCALE or SCALE_ZERO_POINT, got NONE")
        expected, named = (1, "[scale]") if kind is QuantizationType.SCALE else (2, "[scale, zero point]")
        if len(tensors) != expected:
            raise invalid(desc, "quantization_tensors", f"must be {named} for type {kind.name}, got {len(tensors)}")
        cls.check_output(desc, "input_tensor.sizes")
        scale, *zero = tensors
        for axis, (size, blocks) in enumerate(zip(desc.input_tensor.sizes, scale.sizes, strict=True)):
            if size % blocks:
                reason = f"must divide input_tensor.sizes[{axis}] ({size}), got {blocks}"
                raise invalid(desc, f"quantization_tensors[0].sizes[{axis}]", reason)
        if zero and zero[0].sizes != scale.sizes:
            reason = f"must be {list(scale.sizes)} (the scale's), got {list(zero[0].sizes)}"
            raise invalid(desc, "quantization_tensors[1].sizes", reason)
        for index, (field, tensor) in enumerate(zip(cls.typed, tensors, strict=False)):
            expected = getattr(desc, field).data_type
            if tensor.data_type is not expected:
                reason = f"must equal {field}.data_type ({expected.name}), got {tensor.data_type.name}"
                raise invalid(desc, f"quantization_tensors[{index}].data_type", reason)

    @classmethod
    def tensors(cls, desc: Any) -> tuple[PlanTensor, PlanTensor, PlanTensor, PlanTensor | None]:
        """Return the tensors as views of equal sizes, whose split dimensions represent blocks."""
        blocks = tuple(
            size // count
            for size, count in zip(desc.input_tensor.sizes, desc.quantization_tensors[0].sizes, strict=True)
        )
        whole = (output_tensor(desc), input_tensor(desc, "input_tensor"))
        output, values = (_split(tensor, blocks) for tensor in whole)
        scale, *zero = (
            _repeat(PlanTensor.of(Role.INPUT, 1 + index, tensor), blocks)
            for index, tensor in enumerate(desc.quantization_tensors)
        )
        return output, values, scale, zero[0] if zero else None


def _split(tensor: PlanTensor, blocks: Sequence[int]) -> PlanTensor:
    """Split every dimension in two: the index of the block, and the index within it."""
    dimensions = list(zip(tensor.sizes, tensor.strides, blocks, strict=True))
    sizes = tuple(part for size, _, block in dimensions for part in (size // block, block))
    strides = tuple(part for _, stride, block in dimensions for part in (stride * block, stride))
    return replace(tensor, sizes=sizes, strides=strides)


def _repeat(tensor: PlanTensor, blocks: Sequence[int]) -> PlanTensor:
    """Repeat a tensor with one element per block for all elements of the block."""
    sizes = tuple(part for size, block in zip(tensor.sizes, blocks, strict=True) for part in (size, block))
    strides = tuple(part for stride in tensor.strides for part in (stride, 0))
    return replace(tensor, sizes=sizes, strides=strides)


class Quantize(_InBlocks):
    """clamp(round(x / scale) + zero point), scales by blocks; the scale has the input's type."""

    desc = descs.Quantize
    shaders = (QUANTIZE, NO_ZERO_POINT)
    step = staticmethod(_quantize)
    typed = ("input_tensor", "output_tensor")


class Dequantize(_InBlocks):
    """(q - zero point) * scale, scales by blocks; the output has the scale's type."""

    desc = descs.Dequantize
    shaders = (DEQUANTIZE, NO_ZERO_POINT)
    step = staticmethod(_dequantize)
    typed = ("output_tensor", "input_tensor")


# ---- arithmetic


def _one_element(desc: OperatorDesc, *fields: str) -> None:
    """Raise InvalidDescription unless each present tensor holds one element."""
    for field in fields:
        tensor = getattr(desc, field)
        if tensor is not None and tensor.element_count != 1:
            raise invalid(desc, f"{field}.sizes", f"must hold 1 element, got {list(tensor.sizes)}")


class ElementWiseQuantizedLinearAdd(Lowering):
    """Dequantizes A and B, adds them in float32, quantizes the sum.

    Nine tensors are more than a kernel may bind: a first, tiny kernel packs the scales and zero points into one tensor.
    """

    desc = descs.ElementWiseQuantizedLinearAdd
    shaders = (
        "quantization/element_wise_quantized_linear_add",
        "quantization/parameters",
        NO_ZERO_POINT,
    )
    scalars = ("a_scale", "a_zero_point", "b_scale", "b_zero_point", "output_scale", "output_zero_point")
    same_sizes: ClassVar[Mapping[str, str]] = {"output_tensor": "a_tensor"}

    @classmethod
    def check(cls, desc: descs.ElementWiseQuantizedLinearAdd) -> None:
        for field in ("b_tensor", "output_tensor"):
            check_sizes(desc, field, desc.a_tensor.sizes, "a_tensor.sizes")
        _one_element(desc, *(f"{name}_tensor" for name in cls.scalars))

    @classmethod
    def lower(cls, desc: descs.ElementWiseQuantizedLinearAdd) -> Plan:
        """Lower to a map that gathers the parameters and one that computes."""
        output, count = output_tensor(desc), len(cls.scalars)
        parameters = PlanTensor.temporary("parameters", FLOAT32, (count,))
        sources = {name: cls._scalar(desc, name) for name in cls.scalars}
        names = constants(names=cls.scalars)
        gather = element(cls.shaders[1], FLOAT32, parameters.sizes, portable=True, values=names, **sources)
        scalars = {name: everywhere(parameters, output.sizes, index) for index, name in enumerate(cls.scalars)}
        body = portable(
            cls.shaders[0],
            output,
            values=_quantizing(output.data_type),
            a=input_tensor(desc, "a_tensor"),
            b=input_tensor(desc, "b_tensor"),
            **scalars,
        )
        steps = (Map("parameters", gather, parameters), Map("map", body, output))
        return Plan(desc.operator, steps)

    @classmethod
    def _scalar(cls, desc: descs.ElementWiseQuantizedLinearAdd, name: str) -> Source:
        tensor: TensorDesc | None = getattr(desc, f"{name}_tensor")
        if tensor is None:
            return no_zero_point((1,) * desc.a_tensor.dimension_count, DataType.UINT8)
        return input_tensor(desc, f"{name}_tensor")


class DynamicQuantizeLinear(Lowering):
    """The scale maps the input's range, widened to contain 0, to the output type; then as QUANTIZE.

    The zero point is round(lowest - smallest / scale) with ties to even, clamped. An empty range gives scale 1. NaN is
    ignored for the range and becomes the zero point; an infinite range gives an infinite scale.
    """

    desc = descs.DynamicQuantizeLinear
    shaders = (
        QUANTIZE,
        "quantization/range",
        "quantization/dynamic_scale",
        "quantization/dynamic_zero_point",
    )

    @classmethod
    def output_sizes(cls, desc: descs.DynamicQuantizeLinear) -> Mapping[str, tuple[int, ...]]:
        """Return the sizes: the output has the input's, scale and zero point have one element."""
        sizes = desc.input_tensor.sizes
        ones = (1,) * len(sizes)
        return {"output_tensor": sizes, "output_scale_tensor": ones, "output_zero_point_tensor": ones}

    @classmethod
    def check(cls, desc: descs.DynamicQuantizeLinear) -> None:
        check_sizes(desc, "output_tensor", desc.input_tensor.sizes, "input_tensor.sizes")
        _one_element(desc, "output_scale_tensor", "output_zero_point_tensor")

    @classmethod
    def lower(cls, desc: descs.DynamicQuantizeLinear) -> Plan:
        """Lower to one or two reductions of the range into a temporary, and maps for scale, zero point and elements."""
        values, output = input_tensor(desc, "input_tensor"), output_tensor(desc)
        scale, zero = output_tensor(desc, "output_scale_tensor"), output_tensor(desc, "output_zero_point_tensor")
        ones = scale.sizes
        span = PlanTensor.temporary("range", FLOAT32, ones, lanes=2)
        reduction = Reduction(cls.shaders[1], FLOAT32, 2, portable=True)
        find_range = Reduce("", reduction, values, tuple(range(values.rank)), span)
        smallest, largest = (everywhere(replace(span, lanes=1), ones, element) for element in (0, 1))
        low, high = limits(output.data_type)
        steps_of_scale = constants(steps=high - low)
        find_scale = in_float32(cls.shaders[2], ones, values=steps_of_scale, smallest=smallest, largest=largest)
        find_zero = apply(
            cls.shaders[3],
            output.data_type,
            ones,
            portable=True,
            values=_quantizing(output.data_type),
            smallest=smallest,
            scale=scale,
        )
        repeated = (everywhere(tensor, output.sizes) for tensor in (scale, zero))
        maps = (Map("scale", find_scale, scale), Map("zero point", find_zero, zero))
        return Plan(desc.operator, (find_range, *maps, _quantize(output, values, *repeated)))


DIFFERENCE = "matrix/difference"
GATHERED = "quantization/gathered"


def difference(values: Source, zero_point: Source, data_type: DataType) -> Body:
    """Subtract zero points from integers in the type of the sums; 32-bit ones take 33 bits, then float32."""
    integer = DataType.INT64 if values.data_type.bits == 32 else INT32
    return apply(
        DIFFERENCE,
        data_type,
        values.sizes,
        portable=True,
        values=constants(integer=integer),
        input=values,
        zero_point=zero_point,
    )


# ---- one for all, or one per channel


def check_per_channel(desc: Any, field: str, count: int, what: str = "channel", dimension: int = 1) -> None:
    """Check that an optional tensor holds one element for all, or one per channel or place along another dimension."""
    if getattr(desc, field) is None:
        return
    sizes = getattr(desc, field).sizes
    axis = dimension % len(sizes) if len(sizes) > 1 else 0
    ones = [1] * len(sizes)
    several = [*ones[:axis], count, *ones[axis + 1 :]]
    if list(sizes) not in (ones, several):
        reason = f"must be {ones} (one for all) or {several} (one per {what}), got {list(sizes)}"
        raise invalid(desc, f"{field}.sizes", reason)


def per_channel(tensor: PlanTensor, sizes: Sizes, dimension: int = 1) -> PlanTensor:
    """View a tensor with one element for all, or one per place along a dimension, in other sizes."""
    count = max(tensor.sizes)
    stride = tensor.strides[tensor.sizes.index(count)] if count > 1 else 0
    strides = tuple(stride if other == dimension % len(sizes) else 0 for other in range(len(sizes)))
    return replace(tensor, sizes=sizes, strides=strides)


def no_zero_point(sizes: Sizes, data_type: DataType = INT32) -> Body:
    """Return zeros for a missing zero point."""
    return apply(NO_ZERO_POINT, data_type, sizes, portable=True)


# ---- many in one buffer


@dataclass(frozen=True)
class QuantizationParameter:
    """A scale (float32), zero point or bias (integers) among others in one buffer, where kernels would bind too many.

    Attributes:
        field: field of the description.
        source: the parameter as the caller passes it; all dimensions but one have size 1.
        first: the index of its first number in the common tensor.
    """

    field: str
    source: PlanTensor
    first: int

    @property
    def name(self) -> str:
        """Name in bodies."""
        return self.field.removesuffix("_tensor").removeprefix("output_")

    @property
    def count(self) -> int:
        """Element count."""
        return max(self.source.sizes)

    @property
    def along(self) -> int:
        """Dimension along which the elements lie."""
        return self.source.sizes.index(self.count)

    def view(self, gathered: PlanTensor) -> PlanTensor:
        """Return the parameter as a part of the common tensor."""
        data_type = FLOAT32 if self.source.data_type.is_float else INT32
        return replace(gathered, data_type=data_type, sizes=(self.count,), offset=self.first)


def parameters_of(desc: Any, fields: Iterable[str]) -> tuple[QuantizationParameter, ...]:
    """Return the present parameters, each at an aligned offset."""
    parameters: list[QuantizationParameter] = []
    end, alignment = 0, 8 * TENSOR_ALIGNMENT // WORD_BITS
    for field in fields:
        if getattr(desc, field) is not None:
            parameters.append(QuantizationParameter(field, input_tensor(desc, field), end))
            end += -(-parameters[-1].count // alignment) * alignment
    return tuple(parameters)


def gather(parameters: tuple[QuantizationParameter, ...]) -> tuple[Map, PlanTensor]:
    """Return the step that copies parameters into one tensor, and that tensor."""
    size = parameters[-1].first + parameters[-1].count
    gathered = PlanTensor.temporary("parameters", DataType.UINT32, (size,))
    sources = {parameter.name: parameter.source for parameter in parameters}
    values = constants(entries=parameters)
    body = element(GATHERED, DataType.UINT32, gathered.sizes, portable=True, values=values, **sources)
    return Map("parameters", body, gathered), gathered
