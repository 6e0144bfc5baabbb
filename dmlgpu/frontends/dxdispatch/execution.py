"""Execution of a loaded model on a device; resources as arrays, printed text and files."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.common.errors import BindingError, DmlError, InvalidDescription, ModelError, OutOfMemory
from dmlgpu.common.files import whole_file, write_array, write_bytes
from dmlgpu.frontends.dxdispatch.files import IMAGE_SUFFIXES, image_bytes
from dmlgpu.frontends.dxdispatch.json_node import JsonNode, quoted
from dmlgpu.frontends.dxdispatch.model import (
    Bindings,
    Dispatch,
    Dispatchable,
    DxModel,
    OperatorDispatchable,
    Print,
    TableDispatch,
    TableDispatchable,
    WriteFile,
)
from dmlgpu.frontends.dxdispatch.operators import located
from dmlgpu.frontends.dxdispatch.resources import Resource
from dmlgpu.frontends.dxdispatch.result import DxResult, Event, Initialized, Printed, TimingOptions, Written, timed
from dmlgpu.frontends.dxdispatch.runners import DispatchRunner, make_runner
from dmlgpu.runtime.buffer import Buffer
from dmlgpu.runtime.device import Device, default_device


def execute(
    model: DxModel,
    device: Device | None = None,
    *,
    output_directory: str | os.PathLike[str] | None = None,
    on_event: Callable[[Event], object] | None = None,
    timing: TimingOptions | None = None,
    print_onnx_bindings: bool = False,
) -> DxResult:
    """Run a model: upload resources, initialize dispatchables, run commands in order.

    Args:
        model: From ``load``.
        device: Device to run on; None opens the default adapter.
        output_directory: Folder for files; None means the current directory.
        on_event: Called with each event as it happens, also before an error.
        timing: Options of repeated dispatches, for statistics; None runs once.
        print_onnx_bindings: Whether events report the bindings of ONNX models.

    Raises:
        ModelError: If the device rejects an operator, or a file cannot or must not be written, which is checked before
            anything runs.
        BindingError: If the device rejects a binding; the message begins with the path of the command.
        NotSupported: If the adapter lacks an operator or type, or it is not implemented.
        OutOfMemory: If the device has no memory for the resources.
    """
    device = default_device() if device is None else device
    folder, timing = Path(output_directory or ""), TimingOptions() if timing is None else timing
    with _ModelExecution(
        model, device, folder, on_event=on_event, timing=timing, print_onnx_bindings=print_onnx_bindings
    ) as execution:
        return execution.run()


class _ModelExecution:
    """One execution of a model, with its device objects."""

    def __init__(
        self,
        model: DxModel,
        device: Device,
        folder: Path,
        *,
        on_event: Callable[[Event], object] | None,
        timing: TimingOptions,
        print_onnx_bindings: bool,
    ):
        self.model, self.device, self.folder, self.on_event = model, device, folder, on_event
        self.timing, self.print_onnx_bindings = timing, print_onnx_bindings
        self.buffers: dict[str, Buffer] = {}
        self.own_buffers: list[Buffer] = []
        self.runners: dict[str, DispatchRunner] = {}
        self.deferred: dict[str, NDArray[Any]] = {}
        self.shapes: dict[str, TensorDesc] = {}
        self.stated: dict[str, tuple[int, ...]] = {}
        self.events: list[Event] = []
        self.arrays: dict[str, NDArray[Any]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for buffer in (*self.buffers.values(), *self.own_buffers):
            buffer.release()

    def run(self) -> DxResult:
        """Run all commands; the ``with`` block releases buffers."""
        for command in self.model.commands:
            if isinstance(command, WriteFile):
                self.model.access.target(command.target, self.folder, command.path)
        self._expect_shapes()
        for resource in self.model.resources.values():
            if not resource.deferred:
                self._upload(resource)
        for dispatchable in self.model.dispatchables.values():
            self._initialize(dispatchable)
        for command in self.model.commands:
            match command:
                case Print():
                    self._print(command)
                case WriteFile():
                    self._write(command)
                case _:
                    self._dispatch(command)
        return DxResult(self.arrays, tuple(self.events))

    def _emit(self, event: Event) -> None:
        self.events.append(event)
        if self.on_event is not None:
            self.on_event(event)

    # -- dispatchables ----------------------------------------------------------------------------------------------

    def _upload(self, resource: Resource) -> None:
        name, size = resource.name, resource.allocated_size
        if size > sys.maxsize:
            raise OutOfMemory(f"resource {quoted(name)}: its {size:,} bytes are more than a process can address")
        buffer = self.buffers[name] = self.device.create_buffer(size, name)
        try:
            buffer.write(resource.to_bytes())
        except OutOfMemory:
            raise
        except MemoryError as error:
            raise OutOfMemory(f"resource {quoted(name)}: the host has no {size:,} bytes left") from error

    def _initialize(self, dispatchable: Dispatchable) -> None:
        start = time.perf_counter()
        fields = dispatchable.fields if isinstance(dispatchable, OperatorDispatchable) else None
        with _located(dispatchable.path, fields):
            self.runners[dispatchable.name] = make_runner(self.device, dispatchable, self.buffers, self.own_buffers)
        self._emit(Initialized(dispatchable.name, (time.perf_counter() - start) * 1e3))

    def _dispatch(self, command: Dispatch) -> None:
        runner = self.runners[command.dispatchable]
        with _located(command.path):
            bound = runner.bind(command, self.timing.repeat)
            for event in bound if self.print_onnx_bindings else ():
                self._emit(event)
            dispatched = timed(command.dispatchable, runner.run, self.timing)
            self.deferred = dict(runner.finish())
        self._emit(dispatched)
        if isinstance(command, TableDispatch):
            self._note_shapes(command.outputs)

    # -- results ----------------------------------------------------------------------------------------------------

    def _expect_shapes(self) -> None:
        """Record the tensor of the first use of each resource, for resources that are shown before they are written."""
        used = [
            user.initial_inputs for user in self.model.dispatchables.values() if isinstance(user, TableDispatchable)
        ]
        used += [user.inputs + user.outputs for user in self.model.commands if isinstance(user, TableDispatch)]
        for bindings in reversed(used):
            self._note_shapes(bindings)
        for name, resource in self.model.resources.items():
            if resource.values.sizes is not None:
                self.shapes.pop(name, None)

    def _note_shapes(self, bindings: Bindings) -> None:
        for bound in bindings:
            if bound is not None and bound.offset == 0 and covers(bound.tensor, self.model.resources[bound.buffer]):
                self.shapes[bound.buffer] = bound.tensor

    def _array(
        self, name: str, dimensions: tuple[int, ...] | None, path: str
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.uint8]]:
        """Return a resource with its sizes, flat, and its bytes."""
        resource = self.model.resources[name]
        if resource.deferred:
            if name not in self.deferred:
                raise ModelError(path, f"the deferred resource {quoted(name)} was not an output of the last dispatch")
            array = self.deferred[name]
            flat = np.ascontiguousarray(array.view(np.uint8) if array.dtype == bool else array).reshape(-1)
            raw = flat.view(np.uint8)
        else:
            raw = self.buffers[name].read()
            flat = elements(resource, raw)
            array = shaped(resource, raw, dimensions, self.shapes.get(name))
        self.arrays[name] = array
        return array, flat, raw

    def _print(self, command: Print) -> None:
        _, flat, _ = self._array(command.resource, self.stated.get(command.resource), command.path)
        self._emit(Printed(command.resource, to_text(flat, command.verbose), command.verbose))

    def _write(self, command: WriteFile) -> None:
        if command.dimensions is not None:
            self.stated[command.resource] = command.dimensions
        array, _, raw = self._array(command.resource, command.dimensions, command.path)
        resource, file = self.model.resources[command.resource], self.folder / command.target
        resolved = self.model.access.target(command.target, self.folder, command.path)
        write_resource(resolved, array, raw if resource.deferred else raw[: resource.size], command.path)
        self._emit(Written(command.resource, file))


@contextlib.contextmanager
def _located(path: str, fields: JsonNode | None = None) -> Iterator[None]:
    """Prefix errors of the device with the path in the model."""
    try:
        yield
    except InvalidDescription as error:
        raise located(error, fields or JsonNode({}, path)) from error
    except BindingError as error:
        raise BindingError(f"{path}: {error}") from error
    except DmlError as error:
        error.add_note(f"in {path}")
        raise


def elements(resource: Resource, raw: NDArray[np.uint8]) -> NDArray[Any]:
    """Return the resource as a flat array of its initial values' type (bytes for mixed types), without padding."""
    data_type = DataType.UINT8 if resource.data_type is DataType.UNKNOWN else resource.data_type
    flat = TensorDesc(data_type, (resource.element_count,))
    return flat.decode(raw[: flat.byte_size])


def shaped(
    resource: Resource, raw: NDArray[np.uint8], dimensions: Sequence[int] | None, tensor: TensorDesc | None
) -> NDArray[Any]:
    """Return the resource as an array with its sizes, if they are known.

    Args:
        resource: The resource.
        raw: Its bytes.
        dimensions: Sizes given by the model; they have priority.
        tensor: Tensor to which it was last bound; its sizes and strides apply if it ``covers`` the resource.
    """
    if dimensions is not None:
        return elements(resource, raw)[: math.prod(dimensions)].reshape(dimensions)
    if tensor is not None and covers(tensor, resource):
        array = tensor.decode(raw)
        return (
            array
            if resource.data_type in (DataType.UNKNOWN, tensor.data_type)
            else array.view(resource.data_type.numpy)
        )
    sizes = resource.values.sizes if resource.offset == 0 else None
    return elements(resource, raw).reshape(sizes or -1)


def covers(tensor: TensorDesc, resource: Resource) -> bool:
    """Whether a tensor at offset 0 of a resource takes exactly the part that holds values, in elements of one width."""
    byte_count = -(-tensor.physical_element_count * tensor.data_type.bits // 8)
    same_width = resource.data_type is DataType.UNKNOWN or resource.data_type.bits == tensor.data_type.bits
    if resource.data_type.bits == 4:
        same_width = resource.data_type is tensor.data_type
    return same_width and byte_count == resource.extent


def to_text(array: NDArray[Any], verbose: bool) -> str:
    """Return the elements as DxDispatch prints them: separated by commas, floats with six digits.

    Args:
        array: A flat array.
        verbose: Give each element a line with its index and its bits in hexadecimal.
    """
    texts = [f"{value:g}" if array.dtype.kind == "f" else str(value) for value in array.tolist()]
    if not verbose:
        return ", ".join(texts)
    width, digits = len(str(array.size)), 2 * array.dtype.itemsize
    bits = array.view(f"u{array.dtype.itemsize}").tolist()
    lines = zip(texts, bits, strict=True)
    return "".join(f"[{index:{width}}] {text} (0x{word:0{digits}X})\n" for index, (text, word) in enumerate(lines))


def write_resource(file: Path, array: NDArray[Any], raw: NDArray[np.uint8], path: str) -> None:
    """Write a resource: an array to a ``.npy`` file or an image, the plain bytes to any other file."""
    suffix = file.suffix.lower()
    image = np.frombuffer(image_bytes(array, suffix, path), np.uint8) if suffix in IMAGE_SUFFIXES else None
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(file) as stream:
            if image is not None:
                write_bytes(stream, image)
            elif file.suffix.lower() == ".npy":
                write_array(stream, array)
            else:
                write_bytes(stream, raw)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ModelError(path, f"cannot write {quoted(str(file))}: {reason}") from error
