"""One operator on NumPy arrays, through all steps of DirectML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.common.errors import InvalidArgument, shown
from dmlgpu.runtime.binding import BufferArrayBinding
from dmlgpu.runtime.buffer import Buffer
from dmlgpu.runtime.child import as_tuple
from dmlgpu.runtime.device import Device, as_device
from dmlgpu.runtime.operator import CompiledOperator, with_absent

Array = NDArray[Any]


def evaluate(
    desc: OperatorDesc,
    inputs: Sequence[Array | None] | Mapping[str, Any],
    device: Device | str | None = None,
) -> tuple[Array, ...]:
    """Compute an operator on NumPy arrays.

    Args:
        desc: The operator. Its layouts (strides, total sizes) are used on the device.
        inputs: One array per flat input (``desc.inputs``), with the tensor's sizes and NumPy dtype (4-bit integers one
            per byte). None stands for an absent optional tensor, which may be omitted at the end. Alternatively a
            mapping from field names (``"a_tensor"`` or ``"a"``) to arrays, or lists of arrays for fields that hold
            several. Inputs flagged OWNED_BY_DML are bound at initialization.
        device: A Device, the name of an adapter, or None for ``default_device()``.

    Returns:
        One array per flat output, with the tensor's sizes and NumPy dtype; absent optional outputs are omitted.

    Raises:
        InvalidArgument: If the number, a name, a dtype or a shape of the arrays is wrong, or `device` is no device.
        AdapterNotFound: If no adapter has this name.
        DmlError: As ``Device.create_operator`` and ``Device.create_buffer``.

    Example:
        >>> tensor = dmlgpu.TensorDesc(dmlgpu.DataType.FLOAT32, (2, 2))
        >>> add = dmlgpu.descs.ElementWiseAdd(a_tensor=tensor, b_tensor=tensor, output_tensor=tensor)
        >>> a = np.array([[1, 2], [3, 4]], np.float32)
        >>> dmlgpu.evaluate(add, {"a": a, "b": a}, "numpy")[0].tolist()
        [[2.0, 4.0], [6.0, 8.0]]
    """
    device = as_device("evaluate", device)
    compiled = device.compile_operator(device.create_operator(desc))
    flat = _flat(desc, inputs) if isinstance(inputs, Mapping) else inputs
    arrays: Any = with_absent(as_tuple(desc.operator, "inputs", flat, "arrays"), compiled.inputs)
    if len(arrays) != len(compiled.inputs):
        expected = f"{len(compiled.inputs)} arrays ({', '.join(port.label for port in compiled.inputs)})"
        raise InvalidArgument(f"{desc.operator}: inputs must be {expected}, got {len(arrays)}")
    raw = run_compiled(compiled, arrays, [port.desc for port in compiled.inputs], desc.operator)
    results = zip(compiled.outputs, raw, strict=True)
    return tuple(port.desc.decode(data) for port, data in results if port.desc is not None and data is not None)


def _flat(desc: OperatorDesc, named: Mapping[str, Any]) -> list[Any]:
    """Return the flat inputs of a description from a mapping by field names."""
    fields = {name: field for field in desc.input_fields for name in (field, _short(field))}
    unknown = [name for name in named if name not in fields]
    if unknown:
        expected = ", ".join(map(_short, desc.input_fields)) or "nothing"
        raise InvalidArgument(f"{desc.operator}: inputs must name only {expected}, got {shown(unknown[0])}")
    arrays = {fields[name]: array for name, array in named.items()}
    inputs: list[Any] = []
    for slot in desc.inputs:
        array = arrays.get(slot.field)
        if slot.position == 0:
            count = len(getattr(desc, slot.field))
            several = as_tuple(desc.operator, slot.field, array, "arrays")
            if len(several) != count:
                raise InvalidArgument(f"{desc.operator}: {slot.field} must be {count} arrays, got {len(several)}")
            inputs += several
        elif slot.position is None:
            inputs.append(array)
    return inputs


def _short(field: str) -> str:
    return field.replace("_tensors", "s").removesuffix("_tensor")


def run_compiled(
    compiled: CompiledOperator, inputs: Sequence[Array | None], tensors: Sequence[TensorDesc | None], title: str
) -> tuple[NDArray[np.uint8] | None, ...]:
    """Initialize and execute a compiled operator or graph on arrays.

    Args:
        compiled: Operator or graph to execute.
        inputs: One array per input; None for an absent one.
        tensors: Layout of each input, of the size that the compiled operator binds.
        title: Prefix of messages.

    Returns:
        The bytes of each output; None for an absent one.

    Raises:
        InvalidArgument: If an array is missing, superfluous, or has the wrong dtype or shape.
    """
    device = compiled.device
    described = zip(compiled.inputs, tensors, inputs, strict=True)
    sources = [_upload(device, title, port.label, tensor, array) for port, tensor, array in described]
    outputs = [
        None if port.desc is None else device.create_buffer(port.desc.byte_size, port.label)
        for port in compiled.outputs
    ]
    execute_once(compiled, sources, outputs)
    results = tuple(None if buffer is None else buffer.read() for buffer in outputs)
    for buffer in (*sources, *outputs):
        if buffer is not None:
            buffer.release()
    return results


def _upload(device: Device, title: str, label: str, tensor: TensorDesc | None, array: Array | None) -> Buffer | None:
    if tensor is None or array is None:
        if (tensor is None) != (array is None):
            expected = "None, since the description omits it" if tensor is None else "an array"
            raise InvalidArgument(f"{title}: {label} must be {expected}, got {type(array).__name__}")
        return None
    values = _as_array(title, label, array)
    expected_type = tensor.data_type.numpy
    if values.dtype != expected_type or values.shape != tensor.sizes:
        cure = f"; pass array.astype(np.{expected_type})" if values.shape == tensor.sizes else ""
        raise InvalidArgument(
            f"{title}: {label} must be an array of {expected_type} with shape {tensor.sizes}, "
            f"got {values.dtype} with shape {values.shape}{cure}"
        )
    buffer = device.create_buffer(tensor.byte_size, label)
    buffer.write(tensor.encode(values))
    return buffer


def _as_array(title: str, label: str, array: object) -> Array:
    try:
        return np.asarray(array)
    except Exception as error:  # ragged lists, foreign arrays
        raise InvalidArgument(f"{title}: {label} must be an array, got {shown(array)}: {error}") from error


def execute_once(
    compiled: CompiledOperator,
    inputs: Sequence[Buffer | None],
    outputs: Sequence[Buffer | None],
    temporary_byte: int | None = None,
) -> None:
    """Initialize and execute a compiled operator or graph in one command list.

    Args:
        compiled: Operator or graph to execute.
        inputs, outputs: One buffer per tensor, bound as a whole; None for an absent one.
        temporary_byte: Initial value of each byte of the temporary resource; None leaves it undefined.

    Raises:
        BindingError: If a buffer is missing, superfluous or too small.
    """
    device, properties = compiled.device, compiled.binding_properties
    persistent = _scratch(device, properties.persistent_resource_size, "persistent resource")
    initializer = device.create_operator_initializer([compiled])
    first = device.create_binding_table(initializer)
    owned = [buffer if port.owned else None for port, buffer in zip(compiled.inputs, inputs, strict=True)]
    first.bind_inputs([BufferArrayBinding(owned)])
    first.bind_outputs([persistent])

    second = device.create_binding_table(compiled)
    bound = [None if port.owned else buffer for port, buffer in zip(compiled.inputs, inputs, strict=True)]
    second.bind_inputs(bound)
    second.bind_outputs(outputs)
    temporary = _scratch(device, properties.temporary_resource_size, "temporary resource")
    if temporary is not None and temporary_byte is not None:
        temporary.write(np.full(temporary.size, temporary_byte, np.uint8))
    second.bind_temporary_resource(temporary)
    second.bind_persistent_resource(persistent)

    command_list, recorder = device.create_command_list(), device.create_command_recorder()
    recorder.record_dispatch(command_list, initializer, first)
    recorder.record_dispatch(command_list, compiled, second)
    command_list.close()
    device.queue.execute([command_list])


def _scratch(device: Device, size: int, name: str) -> Buffer | None:
    return device.create_buffer(size, name) if size else None
