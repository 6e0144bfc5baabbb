"""What the tests of the device layer share: an executor that only keeps books, and a set of objects on it."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from dmlgpu import (
    BindingTable,
    Buffer,
    BufferArrayBinding,
    CommandList,
    CompiledOperator,
    DataType,
    Device,
    ExecutionFlags,
    OperatorDesc,
    TensorDesc,
    TensorFlags,
    descs,
)
from dmlgpu.runtime.executor import Resources
from dmlgpu.runtime.numpy.backend import NumPyBackend

FLOATS = TensorDesc(DataType.FLOAT32, (1, 1, 2, 8))
"""A tensor of 64 bytes."""
OWNED = TensorDesc(DataType.FLOAT32, (1, 1, 2, 8), flags=TensorFlags.OWNED_BY_DML)


class BookkeepingExecutable:
    """Its dispatches are ("run" or "initialize", the resources)."""

    timings = None

    def __init__(self, temporary_size: int, persistent_size: int):
        self.temporary_size, self.persistent_size = temporary_size, persistent_size

    def bind(self, resources: Resources, earlier: Sequence[Sequence[Any]] = ()) -> Sequence[Any]:
        return [("run", resources)]

    def bind_initialization(self, resources: Resources, kernels: Sequence[int] | None = None) -> Sequence[Any]:
        return [("initialize", resources)] if resources.persistent else []


class BookkeepingBackend(NumPyBackend):
    """Computes nothing, keeps what is submitted; work stays in flight until ``finished`` says otherwise."""

    def __init__(self, temporary_size: int = 0, persistent_size: int = 0):
        super().__init__()
        self.sizes = temporary_size, persistent_size
        self.submitted: list[Any] = []
        self.finished: int | None = None
        self.failure: Exception | None = None

    def check(self, desc: OperatorDesc) -> None:
        """Everything runs."""

    def compile(self, desc: OperatorDesc, half_precision: bool = False, preserve_padding: bool = False) -> Any:
        return BookkeepingExecutable(*self.sizes)

    def submit(self, *work: Sequence[Any]) -> int:
        if self.failure is not None:
            raise self.failure
        self.submitted += itertools.chain(*work)
        self._serial += 1
        return self._serial

    def is_done(self, serial: int) -> bool:
        return self.finished is None or serial <= self.finished

    def wait(self, serial: int, timeout: float | None = None) -> bool:
        if self.is_done(serial) or timeout is None:
            self.finished = None
        return self.is_done(serial)


def identity(source: TensorDesc = FLOATS) -> OperatorDesc:
    """ELEMENT_WISE_IDENTITY on 64 bytes."""
    return descs.ElementWiseIdentity(input_tensor=source, output_tensor=FLOATS)


def subtract(a: TensorDesc = FLOATS, b: TensorDesc = FLOATS) -> OperatorDesc:
    """ELEMENT_WISE_SUBTRACT on 64 bytes each."""
    return descs.ElementWiseSubtract(a_tensor=a, b_tensor=b, output_tensor=FLOATS)


class Objects:
    """A device over a bookkeeping executor, and shortcuts."""

    def __init__(self, temporary_size: int = 0, persistent_size: int = 0):
        self.backend = BookkeepingBackend(temporary_size, persistent_size)
        self.device = Device.from_backend(self.backend)
        self.recorder = self.device.create_command_recorder()

    def compiled(
        self, desc: OperatorDesc | None = None, flags: ExecutionFlags = ExecutionFlags.NONE
    ) -> CompiledOperator:
        return self.device.compile_operator(self.device.create_operator(desc or identity()), flags)

    def buffer(self, size: int = 1024, name: str | None = None) -> Buffer:
        return self.device.create_buffer(size, name)

    def table(self, dispatchable: Any) -> BindingTable:
        return self.device.create_binding_table(dispatchable)

    def bound(self, compiled: CompiledOperator) -> BindingTable:
        """A table with a fresh buffer for every tensor."""
        table = self.table(compiled)
        table.bind_inputs([self.buffer() if port.bound_at_execution else None for port in compiled.inputs])
        table.bind_outputs([self.buffer() for _ in compiled.outputs])
        return table

    def recorded(self, *pairs: tuple[Any, BindingTable]) -> CommandList:
        """A closed list of dispatches."""
        command_list = self.device.create_command_list()
        for dispatchable, table in pairs:
            self.recorder.record_dispatch(command_list, dispatchable, table)
        command_list.close()
        return command_list

    def initialization(
        self, *compiled: CompiledOperator, inputs: Sequence[Any] | None = None, outputs: Sequence[Any] | None = None
    ) -> tuple[Any, BindingTable]:
        """An initializer and its table."""
        initializer = self.device.create_operator_initializer(compiled)
        table = self.table(initializer)
        table.bind_inputs(None if inputs is None else [BufferArrayBinding(entry) for entry in inputs])
        table.bind_outputs(outputs)
        return initializer, table

    def initialize(self, *compiled: CompiledOperator) -> None:
        """Execute the initialization of operators without persistent resources."""
        self.device.queue.execute([self.recorded(self.initialization(*compiled))])


@contextlib.contextmanager
def raises(kind: type[Exception], text: str) -> Iterator[None]:
    """Expect exactly this kind of exception, with exactly this text."""
    with pytest.raises(kind) as caught:
        yield
    assert type(caught.value) is kind
    assert str(caught.value) == text
