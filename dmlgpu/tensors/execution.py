"""``call_op``: one operator on tensors, arrays and numbers; it runs on a device or is recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import MAX_DIMENSIONS, TENSOR_ALIGNMENT, TensorDesc
from dmlgpu.common import coercion
from dmlgpu.common.errors import DmlError, InvalidArgument, InvalidDescription, NotSupported, cause_of, shown
from dmlgpu.runtime.device import as_device, other_device
from dmlgpu.tensors.array_like import has_float64, in_float32, warn_of_float32
from dmlgpu.tensors.memory import NOTHING, NodeMemory, Recorder, current_caller, recorder, tapes, unrecorded, untaped
from dmlgpu.tensors.preparation import (
    EmptyOperand,
    data_type_for,
    empty_result,
    hashable,
    in_words_of,
    prepare,
    returns_bool,
    short,
    signature,
)
from dmlgpu.tensors.recorded_call import RecordedCall
from dmlgpu.tensors.session import EagerSession, session_of
from dmlgpu.tensors.strided import TensorBase, behind_binding
from dmlgpu.tensors.types import as_array, as_number, is_number

BOOLEAN_TYPES = (DataType.UINT8,)
"""Data types of bool tensors."""


class OperatorCall:
    """The operands of one call of an operator.

    Args:
        caller: the function that was called, for messages.
        kind: the operator.
        values: tensors, arrays and numbers by field of an input; attributes.

    Attributes:
        device: where it runs.
        is_scalar: True if the output is a scalar, as all operands are.
        places: where the operands lie.
        owners: object that keeps each of these places alive.
        layouts: by field of an input how it lies there, or a tuple of that.
        attributes: the other values.
        numbers: fields of inputs that are numbers.
    """

    def __init__(self, caller: str, kind: type[OperatorDesc], values: Mapping[str, Any]):
        self._caller, self._kind, self._values = caller, kind, values
        known = signature(kind.operator)
        self.is_scalar = known.keeps_rank
        self._types: dict[str, DataType] = {}
        for field in kind.input_fields:
            value: Any = values.get(field)
            is_list = isinstance(value, list | tuple)
            for operand in value if is_list else (value,):
                if field in self._types:
                    break
                if isinstance(operand, TensorBase):
                    self._types[field] = operand.data_type
                elif isinstance(operand, np.ndarray):
                    name = f"{short(field)}[0]" if is_list else short(field)
                    self._types[field] = as_array(caller, name, operand, None)[1]
        self.places: list[Any] = []
        self.owners: list[Any] = []
        self.numbers: list[str] = []
        self.layouts: dict[str, Any] = {}
        for field in kind.input_fields:
            value = values.get(field)
            if field in known.arrays:
                if not isinstance(value, list | tuple) or not value:
                    raise InvalidArgument(f"{caller}: {short(field)} must be a list of Tensors or arrays, at least one")
                self.layouts[field] = tuple(
                    [self._operand(f"{short(field)}[{index}]", field, part) for index, part in enumerate(value)]
                )
            elif value is None:
                self.places.append(None)
                self.owners.append(None)
                self.layouts[field] = None
            else:
                self.layouts[field] = self._operand(short(field), field, value)
        self.attributes = {name: value for name, value in values.items() if name not in self.layouts}

    def _operand(self, name: str, field: str, value: Any) -> Any:
        """Register the operand of an input, and return its layout."""
        if not isinstance(value, TensorBase):
            if isinstance(value, np.ndarray):
                as_array(self._caller, name, value, None)
                value = self._tensor_of(value)
            else:
                data_type = data_type_for(self._kind, field, self._types) if is_number(value) else None
                if data_type is not None:
                    self.numbers.append(field)
                    return self._bind_number(as_number(self._caller, value, data_type), data_type)
                raise InvalidArgument(
                    f"{self._caller}: {name} must be a Tensor or an array, got {shown(value, typed=True)}"
                )
        if value.buffer.released:
            value._check_usable(f"{self._caller}: {name}")
        if value.sizes:
            self.is_scalar = False
        if 0 in value.sizes:
            raise EmptyOperand(f"{self._caller}: {name} must have at least one element, got sizes {list(value.sizes)}")
        return self._bind(field, name, value)

    def _tensor_of(self, array: Any) -> TensorBase:
        """Return an operand that is an array as a tensor."""
        raise NotImplementedError

    def _bind_number(self, value: int | float, data_type: DataType) -> Any:
        """Register the memory of a number that is an operand, and return its layout."""
        raise NotImplementedError

    def _bind(self, field: str, name: str, tensor: TensorBase) -> Any:
        """Register the memory of the operand of an input field, and return its layout."""
        raise NotImplementedError

    def described(
        self,
        types: Mapping[str, Any],
        sizes: Mapping[str, Any],
        absent: Sequence[str],
        broadcasts: bool = True,
    ) -> OperatorDesc:
        """Return the operator's description; numbers broadcast, tensors only if requested."""
        tensors = {field: _described(layout) for field, layout in self.layouts.items()}
        try:
            return prepare(
                self._caller,
                self._kind,
                {**tensors, **self.attributes},
                types=types,
                sizes=sizes,
                absent=absent,
                repeated=None if broadcasts else self.numbers,
            )
        except InvalidDescription as error:
            raise self.in_words(error) from cause_of(error)

    def in_words(self, error: DmlError) -> DmlError:
        """Rephrase an error of the operator in terms of the function that was called."""
        if isinstance(error, InvalidDescription):
            return in_words_of(self._caller, self._kind, error, self._values)
        return type(error).__new__(type(error), f"{self._caller}: {error}")


class DeviceCall(OperatorCall):
    """A call that runs on a device."""

    def __init__(
        self, caller: str, kind: type[OperatorDesc], values: Mapping[str, Any], first: TensorBase | None, device: Any
    ):
        self.device = as_device(caller, device) if first is None else first.buffer.device
        if first is not None and device is not None:
            check_device(caller, device, self.device)
        self.session: EagerSession = session_of(self.device)
        super().__init__(caller, kind, values)

    def _tensor_of(self, array: Any) -> TensorBase:
        return TensorBase.result_class(array, device=self.device)

    def _bind_number(self, value: int | float, data_type: DataType) -> Any:
        self.owners.append(self.session.number(value, data_type))
        self.places.append((self.owners[-1].memory, 0))
        return data_type, (1,), None

    def _bind(self, field: str, name: str, tensor: TensorBase) -> Any:
        if tensor.buffer.device is not self.device:
            raise InvalidArgument(
                f"{self._caller}: {name} must be on the device of the other operands, '{self.device.adapter}', got one "
                f"on {other_device(self.device, tensor.device)}; x.to(device) copies it"
            )
        if tensor.offset and behind_binding(tensor):
            tensor = tensor._packed(aligned_copy(self._caller, tensor), tensor.data_type, tensor.sizes)
        self.owners.append(tensor)
        self.places.append((tensor.buffer._memory, tensor.offset * tensor.data_type.bits // 8))
        return tensor.signature

    def key(self, types: Mapping[str, Any], sizes: Mapping[str, Any], absent: Sequence[str]) -> Any:
        """Return the cache key of the compiled operator; None if an attribute cannot be hashed."""
        try:
            return (
                self._kind,
                tuple(self.layouts.values()),
                tuple([(name, hashable(value)) for name, value in self.attributes.items()]),
                tuple([(name, hashable(value)) for name, value in types.items()]),
                tuple([(name, hashable(value)) for name, value in sizes.items()]),
                tuple(absent),
            )
        except Exception:  # the checks of operators name the expected attribute
            return None

    def compile(
        self, key: Any, types: Mapping[str, Any], sizes: Mapping[str, Any], absent: Sequence[str]
    ) -> RecordedCall:
        """Compile the operator and cache it under the key."""
        desc = self.described(types, sizes, absent)
        try:
            recorded = self.session.compile(self.device, desc)
        except (InvalidDescription, NotSupported) as error:
            raise self.in_words(error) from cause_of(error)
        return recorded if key is None else self.session.calls.put(key, recorded, recorded.memory)


def check_device(caller: str, device: Any, present: Any) -> None:
    """Check that the device that a call names is that of its tensors.

    Raises:
        InvalidArgument: it is another one.
    """
    named = as_device(caller, device)
    if named is not present:
        raise InvalidArgument(
            f"{caller}: device must be that of the tensors, '{present.adapter}', got {other_device(present, named)}; "
            "x.to(device) copies them"
        )


def _described(layout: Any) -> Any:
    if layout is None or isinstance(layout, TensorDesc):
        return layout
    if isinstance(layout[0], DataType):
        return TensorDesc(*layout)
    return tuple([_described(part) for part in layout])


def call_op(  # noqa: PLR0912  each way that an operator can go
    kind: type[OperatorDesc],
    values: Mapping[str, Any],
    *,
    types: Mapping[str, Any] = NOTHING,
    sizes: Mapping[str, Any] = NOTHING,
    requested: Mapping[str, bool] = NOTHING,
    device: Any = None,
    graph: Recorder | None = None,
    name: str | None = None,
    caller: str | None = None,
) -> tuple[Any, ...]:
    """Call an operator: check and broadcast its operands, fill in omitted attributes, and run it or add it to a graph.

    Args:
        kind: the operator's description.
        values: by field: tensors, arrays or numbers for inputs, which broadcast if they must have equal sizes;
            attributes, None for defaults (see ``operators.inference.complete``).
        types: data types of outputs by field, None for the default.
        sizes: sizes of outputs by field, None for those that follow from the inputs.
        requested: True for each optional output to compute, by field.
        device: where arrays are computed, and operators without inputs; None is ``default_device()``.
        graph: the graph of an operator without tensors of a graph.
        name: Name of the graph's node.
        caller: the function that the user called, for messages; None for the one in progress, else the operator's.

    Returns:
        One tensor per flat output, None for an absent one; arrays if all operands of the user's call are arrays.

    Raises:
        InvalidArgument: an operand or attribute is wrong; in the words of the caller.
        InvalidDescription: the operator's rules are broken by a node that the user adds; with the caller's line.
        InvalidState: a tensor was released.
        NotSupported: If the adapter lacks a feature that the operator needs.
        OutOfMemory: no room for the outputs.
    """
    label = caller or current_caller.get()
    if tapes.get():
        options: dict[str, Any] = {"types": types, "sizes": sizes, "requested": requested, "device": device}
        with untaped() as present:
            outputs = call_op(kind, values, **options, graph=graph, name=name, caller=caller)
        for tape in present:
            tape.record(kind, label or kind.operator.lower(), values, options, outputs)
        return outputs
    first: TensorBase | None = None
    has_arrays = False
    for field in kind.input_fields:
        value: Any = values.get(field)
        for operand in value if isinstance(value, list | tuple) else (value,):
            if isinstance(operand, TensorBase):
                first = operand if first is None else first
                if graph is None and isinstance(operand.buffer, NodeMemory):
                    graph = operand.buffer.graph
            elif isinstance(operand, np.ndarray):
                has_arrays = True
    trace = recorder()
    if label is None:
        label = kind.operator.lower()
        if has_arrays and first is None and graph is None:
            return _call_on_arrays(
                kind, values, types=types, sizes=sizes, requested=requested, device=device, caller=label
            )
    boolean = returns_bool(kind, values)
    absent = [
        field
        for field, present in requested.items()
        if not coercion.argument(label, short(field), coercion.boolean, present)
    ]
    try:
        if graph is not None or trace is not None:
            keywords: Any = {"types": types, "sizes": sizes, "absent": absent, "boolean": boolean, "name": name}
            return _record(graph, trace, label, kind, values, device=device, **keywords)
        call = DeviceCall(label, kind, values, first, device)
    except EmptyOperand:
        data_type, empty = empty_result(label, kind, values, types)
        assert first is not None
        buffer = session_of(first.device).pool.take(first.device, 0, label)
        return (TensorBase.result_class._packed(buffer, data_type, empty, boolean),)
    key = call.key(types, sizes, absent)
    recorded = None if key is None else call.session.calls.get(key)
    if recorded is None:
        try:
            recorded = call.compile(key, types, sizes, absent)
        except InvalidArgument:
            if not has_float64(values):
                raise
            options = {"types": types, "sizes": sizes, "requested": requested, "device": device, "caller": label}
            results = call_op(kind, in_float32(label, values), **options)
            warn_of_float32(label)
            return results
    buffers = recorded.run(call.session, call.device, call.places, label, owners=call.owners)
    is_scalar, result_class = first is not None and call.is_scalar, TensorBase.result_class
    return tuple(
        [
            None
            if buffer is None or desc is None
            else result_class._packed(
                buffer, desc.data_type, () if is_scalar else desc.sizes, boolean and desc.data_type in BOOLEAN_TYPES
            )
            for buffer, desc in zip(buffers, recorded.prepared.outputs, strict=True)
        ]
    )


def _record(
    graph: Recorder | None,
    trace: Recorder | None,
    label: str,
    kind: type[OperatorDesc],
    values: Mapping[str, Any],
    **options: Any,
) -> tuple[Any, ...]:
    """Add a call to a graph or to the function that is being traced, which may convert float64 operands."""
    target = trace if graph is None or (trace is not None and graph.is_traced) else graph
    if not isinstance(target, Recorder):
        raise InvalidArgument(f"{label}: graph must be a Graph or None, got {type(target).__name__}")
    if target.is_traced and trace is None:
        target._reject_reading()
    try:
        return target._call(label, kind, values, **options)
    except InvalidArgument:
        if not (target.is_traced and has_float64(values)):
            raise
        results = target._call(label, kind, in_float32(label, values), **options)
    warn_of_float32(label)
    return results


def _call_on_arrays(kind: type[OperatorDesc], values: Mapping[str, Any], **options: Any) -> tuple[Any, ...]:
    """Call an operator on copies of arrays on a device, at once, and return arrays."""
    with unrecorded():
        return tuple([None if output is None else output.numpy() for output in call_op(kind, values, **options)])


def aligned_copy(caller: str, tensor: TensorBase) -> Any:
    """Return the buffer of a packed copy of a view that does not begin at a possible binding offset: a slice of the
    range from the binding's first byte, in which the view is the second of two along a leading dimension."""
    bits = tensor.data_type.bits
    if bits < 8 or tensor.ndim == MAX_DIMENSIONS:
        raise InvalidArgument(
            f"{caller}: a view of {'4-bit integers' if bits < 8 else '8 dimensions'} must begin at a multiple of "
            f"{TENSOR_ALIGNMENT} bytes, got one that begins at element {tensor.offset}"
        )
    before = behind_binding(tensor)
    sizes, strides = tensor.sizes or (1,), tensor.strides or (1,)
    values = {
        "input_tensor": tensor._view((2, *sizes), (before, *strides), -before),
        "input_window_offsets": (1, *(0 for _ in sizes)),
        "input_window_sizes": (1, *sizes),
        "input_window_strides": (1,) * (len(sizes) + 1),
    }
    return call_op(descs.Slice1, values, caller=caller)[0].buffer
