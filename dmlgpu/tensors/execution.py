"""One operator on tensors: operands made alike, the operator found or compiled, its outputs new tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import MAX_DIMENSIONS, TENSOR_ALIGNMENT, TensorDesc
from dmlgpu.common.errors import InvalidArgument, InvalidDescription, NotSupported, shown
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.shared import as_device
from dmlgpu.tensors.outcome import EmptyOperand, is_telling, of_nothing
from dmlgpu.tensors.preparation import data_type_for, hashable, in_words_of, prepare, short, signature
from dmlgpu.tensors.recording import recorder
from dmlgpu.tensors.session import Prepared, Session, session_of
from dmlgpu.tensors.strided import Strided, behind_binding
from dmlgpu.tensors.types import as_array, as_number, is_number

Array = TypeVar("Array", bound=Strided)
Made = TypeVar("Made")

_FLAGS = (DataType.UINT8,)
"""Types whose elements can be truth values."""


class Call:
    """One call of an operator.

    Args:
        made: the class of tensors.
        caller: the function that was called, for messages.
        kind: the operator.
        values: tensors, arrays and numbers by field of an input; attributes.
        device: where an operator without inputs runs.
    """

    def __init__(
        self, made: type[Any], caller: str, kind: type[OperatorDesc], values: Mapping[str, Any], device: Device | None
    ):
        self._made, self._caller, self._kind = made, caller, kind
        inputs = [(field, values.get(field)) for field in kind.input_fields]
        tensors = [one for _, given in inputs for one in (given if isinstance(given, list | tuple) else (given,))]
        first = next((one for one in tensors if isinstance(one, Strided)), None)
        self.device = first.device if first is not None else as_device(caller, device)
        self.session: Session = session_of(self.device)
        self.is_scalar = first is not None and not first.sizes and signature(kind.operator).keeps_rank
        self._types: dict[str, DataType] = {}
        for field, given in inputs:
            one = given[0] if isinstance(given, list | tuple) and given else given
            if isinstance(one, Strided):
                self._types[field] = one.data_type
            elif isinstance(one, np.ndarray):
                name = short(field) if one is given else f"{short(field)}[0]"
                self._types[field] = as_array(caller, name, one, None)[1]
        self.places: list[Any] = []  # as `Session.execute` takes them
        self._kept: list[Strided] = []  # copies, until the operator is submitted
        self.layouts: dict[str, Any] = {}
        arrays = signature(kind.operator).arrays
        for field, given in inputs:
            if field in arrays:
                if not isinstance(given, list | tuple) or not given:
                    raise InvalidArgument(f"{caller}: {short(field)} must be a list of Tensors or arrays, at least one")
                self.layouts[field] = tuple(
                    self._operand(f"{short(field)}[{number}]", field, one) for number, one in enumerate(given)
                )
            elif given is None:
                self.places.append(None)
                self.layouts[field] = None
            else:
                self.layouts[field] = self._operand(short(field), field, given)
        self.attributes = {name: given for name, given in values.items() if name not in self.layouts}

    def _operand(self, name: str, field: str, given: Any) -> Any:
        """Take one input: note where it lies, and return how."""
        if is_number(given) and not isinstance(given, np.ndarray):
            data_type = data_type_for(self._kind, field, self._types)
            if data_type is not None:
                self._bind_number(as_number(self._caller, given, data_type), data_type)
                return data_type, (1,), None
        if isinstance(given, np.ndarray):
            as_array(self._caller, name, given, None)
            given = self._made(given, device=self.device)
        if not isinstance(given, Strided):
            raise InvalidArgument(
                f"{self._caller}: {name} must be a Tensor or an array, got {shown(given, typed=True)}"
            )
        given._check_usable(f"{self._caller}: {name}")
        if given.device is not self.device:
            raise InvalidArgument(
                f"{self._caller}: {name} must be on the device of the other operands, '{self.device.adapter}', got one "
                f"on another, '{given.device.adapter}'; x.to(device) copies it"
            )
        self.is_scalar = self.is_scalar and not given.sizes
        if 0 in given.sizes:
            raise EmptyOperand(f"{self._caller}: {name} must have at least one element, got sizes {list(given.sizes)}")
        return self._bind(given).signature

    def _bind_number(self, value: int | float, data_type: DataType) -> None:
        """Note where a number lies that is an operand."""
        self.places.append((self.session.number(value, data_type).memory, 0))

    def _bind(self, given: Strided) -> Strided:
        """Note where an operand lies, and return it as it lies there."""
        if behind_binding(given):
            given = self._made._packed(aligned_copy(self._made, self._caller, given), given.data_type, given.sizes)
        self._kept.append(given)
        self.places.append((given.buffer._memory, given.offset * given.data_type.bits // 8))
        return given

    def prepared(self, types: Mapping[str, Any], sizes: Mapping[str, Any], absent: Sequence[str]) -> Prepared:
        """Return the operator, compiled where it is not known."""
        try:
            key = (
                self._kind,
                tuple(self.layouts.values()),
                tuple([(name, hashable(given)) for name, given in self.attributes.items()]),
                tuple([(name, hashable(given)) for name, given in types.items()]),
                tuple([(name, hashable(given)) for name, given in sizes.items()]),
                tuple(absent),
            )
        except Exception:  # an attribute that nobody can hash, and whose own checks tell what it must be
            key = None
        found = None if key is None else self.session.compiled.get(key)
        if found is None:
            found = self._compiled(types, sizes, absent)
            if key is not None:
                found = self.session.compiled.put(key, found, found.memory)
        return found

    def _compiled(self, types: Mapping[str, Any], sizes: Mapping[str, Any], absent: Sequence[str]) -> Prepared:
        return self.described(types, sizes, absent, lambda desc: self.session.compile(self.device, desc))

    def described(
        self,
        types: Mapping[str, Any],
        sizes: Mapping[str, Any],
        absent: Sequence[str],
        use: Callable[[OperatorDesc], Made],
    ) -> Made:
        """Return what is made of the operator's description; what is wrong with that is told in the caller's words."""
        tensors = {field: _described(given) for field, given in self.layouts.items()}
        try:
            desc = prepare(
                self._caller, self._kind, {**tensors, **self.attributes}, types=types, sizes=sizes, absent=absent
            )
            return use(desc)
        except InvalidDescription as error:
            raise in_words_of(self._caller, self._kind, error) from error
        except NotSupported as error:
            raise type(error).__new__(type(error), f"{self._caller}: {error}") from error


def _described(given: Any) -> Any:
    if given is None:
        return None
    if given and isinstance(given[0], DataType):
        return TensorDesc(*given)
    return tuple(TensorDesc(*one) for one in given)


def apply(
    made: type[Array],
    caller: str,
    kind: type[OperatorDesc],
    values: Mapping[str, Any],
    *,
    types: Mapping[str, Any] | None = None,
    sizes: Mapping[str, Any] | None = None,
    absent: Sequence[str] = (),
    device: Device | None = None,
) -> tuple[Array | None, ...]:
    """Run an operator.

    Args:
        made: the class of tensors.
        caller: the function that was called, for messages.
        kind: the operator's description.
        values: by field: tensors, arrays or numbers for inputs, which broadcast where they must have equal sizes;
            attributes, where None stands for the usual value (see ``operators.inference.complete``).
        types, sizes, absent: of outputs, as for ``complete``.
        device: where it runs if no tensor tells; None is ``default_device()``.

    Returns:
        One tensor per flat output, None for an absent one.

    Raises:
        InvalidArgument: what is wrong with an operand or an attribute, in the words of the caller.
        InvalidState: a tensor was released.
        NotSupported: the adapter lacks what the operator needs.
        OutOfMemory: no room for the outputs.
    """
    tracing, boolean = recorder(), is_telling(kind, values)
    buffers: Sequence[Any]
    outputs: Sequence[TensorDesc | None]
    try:
        call = (Call if tracing is None else tracing.call)(made, caller, kind, values, device)
    except EmptyOperand:
        data_type, empty = of_nothing(caller, kind, values, types or {})
        target = next(one.device for one in values.values() if isinstance(one, Strided))
        return (made._packed(session_of(target).pool.take(target, 0, caller), data_type, empty, boolean),)
    if tracing is None:
        prepared = call.prepared(types or {}, sizes or {}, absent)
        buffers, outputs = call.session.execute(call.device, prepared, call.places, caller), prepared.outputs
    else:
        buffers, outputs = tracing.record(call, types or {}, sizes or {}, absent)
    return tuple(
        [
            None
            if buffer is None or desc is None
            else made._packed(
                buffer, desc.data_type, () if call.is_scalar else desc.sizes, boolean and desc.data_type in _FLAGS
            )
            for buffer, desc in zip(buffers, outputs, strict=True)
        ]
    )


def aligned_copy(made: type[Array], caller: str, tensor: Strided) -> Any:
    """Return the buffer of a packed copy of a view that does not begin where bindings may: a slice of what lies from a
    binding's first byte on, in which the view is the second of two along a leading dimension."""
    bits = tensor.data_type.bits
    if bits < 8 or tensor.ndim == MAX_DIMENSIONS:
        raise InvalidArgument(
            f"{caller}: a view of {'4-bit integers' if bits < 8 else '8 dimensions'} must begin at a multiple of "
            f"{TENSOR_ALIGNMENT} bytes, got one that begins at element {tensor.offset}"
        )
    before = behind_binding(tensor)
    sizes, strides = tensor.sizes or (1,), tensor.strides or (1,)
    around = tensor._view((2, *sizes), (before, *strides), -before)
    values = {
        "input_tensor": around,
        "input_window_offsets": (1, *(0 for _ in sizes)),
        "input_window_sizes": (1, *sizes),
        "input_window_strides": (1,) * (len(sizes) + 1),
    }
    (found,) = apply(made, caller, descs.Slice1, values)
    assert found is not None
    return found.buffer
