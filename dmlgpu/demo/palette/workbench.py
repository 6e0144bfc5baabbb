"""Running operators on arrays that stay on the device, timing and checking each dispatch."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu import reference
from dmlgpu.conformance.cases.tolerance import CORRECTLY_ROUNDED, EXACT, Accumulated, Tolerance, Ulp
from dmlgpu.conformance.running.comparison import Verdict, compare
from dmlgpu.descs import ElementWiseDifferenceSquare, Reduce
from dmlgpu.device.buffer import Buffer
from dmlgpu.device.device import Device
from dmlgpu.device.operator import CompiledOperator
from dmlgpu.enums import DataType
from dmlgpu.operator_desc import OperatorDesc
from dmlgpu.tensor import TensorDesc


@dataclass(frozen=True)
class DeviceArray:
    """A tensor in a buffer of the device."""

    buffer: Buffer
    desc: TensorDesc

    def view(self, *sizes: int, strides: Sequence[int] | None = None) -> DeviceArray:
        """Return the same bytes seen with other sizes, and strides in elements (0 repeats)."""
        desc = replace(self.desc, sizes=sizes, strides=None if strides is None else tuple(strides))
        return DeviceArray(self.buffer, replace(desc, total_tensor_size_in_bytes=self.desc.byte_size))

    def numpy(self) -> NDArray[Any]:
        """Return the values, read back from the device."""
        return self.desc.decode(self.buffer.read(0, self.desc.byte_size))


@dataclass(frozen=True)
class Observation:
    """What one dispatch did.

    Attributes:
        operator: DirectML's operator name.
        elements: number of elements written.
        seconds: wall-clock time from submission to the fence.
        tolerance: how near to the reference the result has to be.
        verdict: how near it is.
        difference: the largest absolute difference from the reference.
        kernels: the labels of the kernels that ran, each once; none on ``numpy``.
    """

    operator: str
    elements: int
    seconds: float
    tolerance: Tolerance
    verdict: Verdict
    difference: float
    kernels: tuple[str, ...] = ()


class Workbench:
    """Compiles, dispatches, times and checks operators on one device.

    Attributes:
        observations: one for each dispatch, in order.
        compile_seconds: time spent on compiling and initialising operators.
    """

    def __init__(self, device: Device, observe: Callable[[Observation], None] = lambda _: None):
        self.device = device
        self.observations: list[Observation] = []
        self.compile_seconds = 0.0
        self._observe = observe
        self._compiled: dict[OperatorDesc, CompiledOperator] = {}
        self._recorder = device.create_command_recorder()
        self._fence = device.create_fence()
        self._signal = 0

    def upload(self, array: NDArray[Any]) -> DeviceArray:
        """Return a packed copy of a NumPy array on the device."""
        desc = TensorDesc(DataType.from_numpy(array.dtype), array.shape)
        result = self.empty(desc)
        result.buffer.write(desc.encode(array))
        return result

    def empty(self, desc: TensorDesc) -> DeviceArray:
        """Return an array of zeros."""
        return DeviceArray(self.device.create_buffer(desc.byte_size), desc)

    def run(self, desc: OperatorDesc, *inputs: DeviceArray) -> DeviceArray:
        """Dispatch an operator with one output on its inputs; the result is checked against the reference."""
        compiled = self._compile(desc)
        ((_, _, output_desc),) = desc.outputs
        assert output_desc is not None
        output = self.empty(output_desc)
        seconds = self._dispatch(compiled, [array.buffer for array in inputs], [output.buffer])
        self._check(compiled, desc, inputs, output, seconds)
        return output

    def _compile(self, desc: OperatorDesc) -> CompiledOperator:
        if desc not in self._compiled:
            start = time.perf_counter()
            compiled = self.device.compile_operator(self.device.create_operator(desc))
            self._dispatch(self.device.create_operator_initializer([compiled]), [], [])
            self.compile_seconds += time.perf_counter() - start
            self._compiled[desc] = compiled
        return self._compiled[desc]

    def _dispatch(self, dispatchable: Any, inputs: Sequence[Buffer], outputs: Sequence[Buffer]) -> float:
        table = self.device.create_binding_table(dispatchable)
        if inputs or outputs:
            table.bind_inputs(list(inputs))
            table.bind_outputs(list(outputs))
            size = dispatchable.binding_properties.temporary_resource_size
            if size:
                table.bind_temporary_resource(self.device.create_buffer(size))
        commands = self.device.create_command_list()
        self._recorder.record_dispatch(commands, dispatchable, table)
        commands.close()
        self._signal += 1
        start = time.perf_counter()
        self.device.queue.execute([commands])
        self.device.queue.signal(self._fence, self._signal)
        self._fence.wait(self._signal)
        return time.perf_counter() - start

    def _check(
        self,
        compiled: CompiledOperator,
        desc: OperatorDesc,
        inputs: Sequence[DeviceArray],
        output: DeviceArray,
        seconds: float,
    ) -> None:
        # Each tensor is decoded as the operator saw it: a buffer may be bound with other sizes than it was made with.
        descs = [tensor for _, _, tensor in desc.inputs if tensor is not None]
        arrays = [DeviceArray(given.buffer, seen).numpy() for given, seen in zip(inputs, descs, strict=True)]
        (expected,) = reference.evaluate(desc, arrays)
        got = output.numpy()
        tolerance, magnitude = _tolerance(desc, arrays)
        verdict = compare(expected, got, tolerance, magnitude)
        difference = float(np.abs(expected.astype(np.float64) - got.astype(np.float64)).max(initial=0.0))
        ran = () if compiled.program is None else compiled.program.kernels
        kernels = tuple(dict.fromkeys(kernel.label for kernel in ran))
        observation = Observation(desc.operator, got.size, seconds, tolerance, verdict, difference, kernels)
        self.observations.append(observation)
        self._observe(observation)


def _tolerance(desc: OperatorDesc, inputs: Sequence[NDArray[Any]]) -> tuple[Tolerance, NDArray[np.float64] | None]:
    """Return how near a result must be to the reference."""
    if isinstance(desc, Reduce):
        terms = math.prod(desc.input_tensor.sizes[axis] for axis in desc.axes)
        magnitude = np.abs(inputs[0].astype(np.float64)).sum(desc.axes, keepdims=True)
        return Accumulated(terms), magnitude
    if isinstance(desc, ElementWiseDifferenceSquare):
        return Ulp(2), None  # the difference is rounded once, then its square
    ((_, _, output),) = desc.outputs
    return (CORRECTLY_ROUNDED if output is not None and output.data_type.is_float else EXACT), None
