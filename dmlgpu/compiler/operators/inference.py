"""Inference of default attributes, and of the data types and sizes of outputs.

Graph builders use it. Sizes follow from ``Lowering.output_sizes`` and the catalog's relations, data types from these
relations; anything else is the choice of DirectMLX or the caller.
"""

from __future__ import annotations

import numbers
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dmlgpu.catalog import FieldKind, FieldSchema, operator, validation
from dmlgpu.catalog.enums import DataType, ReduceFunction
from dmlgpu.catalog.operator_desc import Entries, OperatorDesc
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.common.errors import InvalidDescription, shown
from dmlgpu.compiler.operators.lowering import lowering

ASKED = ("CAST", "FILL_VALUE_CONSTANT", "FILL_VALUE_SEQUENCE", "DIAGONAL_MATRIX", "DIAGONAL_MATRIX1")
"""Operators whose output type is chosen by the caller."""


def complete(
    op_cls: type[OperatorDesc],
    values: Mapping[str, Any],
    *,
    types: Mapping[str, DataType] | None = None,
    sizes: Mapping[str, Any] | None = None,
    absent: Sequence[str] = (),
) -> OperatorDesc:
    """Return a description with packed outputs. Only values used by the inference are validated.

    Args:
        op_cls: The operator.
        values: Inputs and attributes by field. None for an attribute means its default: strides of 1, no padding, all
            axes, pixels at their centers, scales that result in ``sizes``, the output's data type.
        types: Data types of outputs, by field, if several are allowed.
        sizes: Sizes of outputs, by field, if they do not follow from the inputs; a tuple of sizes for SPLIT.
        absent: Optional outputs to omit.

    Raises:
        InvalidDescription: If a value has the wrong type or fits no output, or if a required data type or sizes are
            missing.
    """
    return _Completion(op_cls, values, dict(types or {}), dict(sizes or {}), absent).desc()


class _Completion:
    """A description under construction."""

    def __init__(
        self,
        op_cls: type[OperatorDesc],
        values: Mapping[str, Any],
        types: dict[str, DataType],
        sizes: dict[str, Any],
        absent: Sequence[str],
    ):
        self.op_cls, self.schema = op_cls, operator(op_cls.operator)
        self.values, self.types, self.sizes = dict(values), types, sizes
        self.outputs = [
            field
            for field in self.schema.tensor_fields
            if field.kind is FieldKind.OUTPUT and field.python_name not in absent
        ]
        inputs = [field for field in self.schema.tensor_fields if field.kind is FieldKind.INPUT]
        self.inputs = {field.name: tensor for field in inputs if (tensor := self._first(field)) is not None}

    def _first(self, field: FieldSchema) -> TensorDesc | None:
        value = self.values.get(field.python_name)
        if isinstance(value, Sequence):
            value = value[0] if value else None
        return value if isinstance(value, TensorDesc) else None

    def desc(self) -> OperatorDesc:
        """Return the description, with outputs' sizes first guessed, then inferred from it."""
        for name, sizes in self.sizes.items():
            if not isinstance(sizes, Sequence) or not all(isinstance(size, numbers.Integral) for size in _flat(sizes)):
                reason = f"must be a sequence of integers, got {shown(sizes)}"
                raise InvalidDescription(self.op_cls.operator, f"{name}.sizes", reason)
        types = {field.python_name: self._type(field) for field in self.outputs}
        self._fill_attributes(types)
        guess = {field.python_name: self._guess(field) for field in self.outputs}
        tentative = self._with(types, guess)
        sizes_of_outputs = self._follow(types, guess, tentative)
        if any(size < 1 for sizes in sizes_of_outputs.values() for size in _flat(sizes)):
            self._reject(tentative)
        return self._with(types, sizes_of_outputs)

    def _follow(self, types: Mapping[str, DataType], guess: dict[str, Any], tentative: OperatorDesc) -> dict[str, Any]:
        """Return the sizes of all outputs, inferred from the description instead of guessed."""
        operator = lowering(self.op_cls.operator)
        try:
            defaults = {name: sizes for name, sizes in operator.default_sizes(tentative).items() if name in guess}
            guess = {**guess, **defaults, **self.sizes}
            inferred = operator.output_sizes(self._with(types, guess))
        except (ArithmeticError, AssertionError, LookupError, ValueError):
            # Attributes are invalid: their errors take precedence over those of output sizes.
            self._reject(tentative)
            raise
        for field in self.outputs:
            name = field.python_name
            if name not in {**defaults, **inferred, **self.sizes} and self._related("Sizes", field) is None:
                raise self._missing(field, "sizes", "they do not follow from the inputs")
        return {**guess, **inferred, **self.sizes}

    def _with(self, types: Mapping[str, DataType], sizes: Mapping[str, Any]) -> OperatorDesc:
        tensors: dict[str, Any] = {}
        for field in self.outputs:
            name = field.python_name
            if field.is_array:
                tensors[name] = tuple(TensorDesc(types[name], piece) for piece in sizes[name])
            else:
                tensors[name] = TensorDesc(types[name], sizes[name])
        return self.op_cls(**self.values, **tensors)

    def _reject(self, desc: OperatorDesc) -> None:
        validation.validate(desc)
        lowering(desc.operator).check(desc)

    # ---- types ------------------------------------------------------------------------------------------------------

    def _type(self, field: FieldSchema) -> DataType:
        if field.python_name in self.types:
            return self.types[field.python_name]
        related = self._related("DataType", field)
        if related is not None:
            return related.data_type
        for other in self.schema.python_fields:
            value = self.values.get(other.python_name)
            if other.type == "DML_TENSOR_DATA_TYPE" and value is not None:
                return DataType(value)
        return self._usual_type(field)

    def _usual_type(self, field: FieldSchema) -> DataType:
        """Return DirectMLX's default: UINT8 for booleans and quantized numbers, UINT32 for indices."""
        allowed = self.schema.support[max(self.schema.support)][field.name].types
        if self.op_cls.operator in ASKED:
            raise self._missing(field, "data_type", "several are allowed")
        if self.values.get("function") in (ReduceFunction.ARGMIN, ReduceFunction.ARGMAX):
            return DataType.UINT32
        if self.op_cls.operator == "REDUCE":
            return self.inputs["InputTensor"].data_type
        for parameter in reversed(self.values.get("quantization_tensors") or ()):
            if parameter.data_type in allowed:  # the zero point's, or the scale's
                return DataType(parameter.data_type)
        return next((usual for usual in (DataType.UINT8, DataType.UINT32) if usual in allowed), allowed[0])

    # ---- sizes ------------------------------------------------------------------------------------------------------

    def _guess(self, field: FieldSchema) -> Any:
        """Return an output's sizes from the caller or a related input; else ones, of the right rank."""
        if field.python_name in self.sizes:
            return self.sizes[field.python_name]
        if field.is_array:
            raise self._missing(field, "sizes", "they do not follow from the inputs")
        same = self._related("Sizes", field)
        if same is not None:
            return same.sizes
        like = self._related("DimensionCount", field) or next(iter(self.inputs.values()), None)
        return (1,) if like is None else (1,) * like.dimension_count

    def _related(self, what: str, field: FieldSchema) -> TensorDesc | None:
        """Return the first input that must agree with an output in a property."""
        for relation in self.schema.relations:
            if what in relation.same and field.name in relation.tensors:
                for name in relation.tensors:
                    if name in self.inputs:
                        return self.inputs[name]
        return None

    def _missing(self, field: FieldSchema, what: str, why: str) -> InvalidDescription:
        return InvalidDescription(self.op_cls.operator, f"{field.python_name}.{what}", f"must be given, because {why}")

    # ---- attributes -------------------------------------------------------------------------------------------------

    def _fill_attributes(self, types: Mapping[str, DataType]) -> None:
        """Set omitted attributes to their defaults."""
        for field in self.schema.python_fields:
            name = field.python_name
            if field.kind is not FieldKind.ATTRIBUTE or field.optional or self.values.get(name) is not None:
                continue
            if field.type == "DML_TENSOR_DATA_TYPE":
                self.values[name] = next(iter(types.values()))
            elif name in self.op_cls.defaults:
                default = self.op_cls.defaults[name]
                self.values[name] = default.of(self.values) if isinstance(default, Entries) else default
            elif name == "axes" and self.inputs:
                self.values[name] = tuple(range(next(iter(self.inputs.values())).dimension_count))
            elif name == "scales":
                self.values[name] = self._scales()

    def _scales(self) -> tuple[float, ...] | None:
        """Return the scales from the sizes before to those after resampling, if the caller passed these."""
        after = self.sizes.get("output_tensor") or self.inputs["InputGradientTensor"].sizes if self.sizes else None
        before = self.sizes.get("output_gradient_tensor") or next(iter(self.inputs.values())).sizes
        if after is None or len(after) != len(before):
            return None
        return tuple(high / low for high, low in zip(after, before, strict=True))


def _flat(sizes: Any) -> Iterator[int]:
    for entry in sizes:
        if isinstance(entry, Sequence):
            yield from entry
        else:
            yield entry
