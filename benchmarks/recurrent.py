"""An LSTM in one command list against its steps dispatched one list each, as interleaved ratios with their intervals.

    python benchmarks/recurrent.py [ADAPTER] [-k PART]

Prints a table of time of the steps one by one over time of ours, and exits with 1 when a target is missed: an LSTM of
128 hidden units and 100 steps at least 3 times faster. A step is a product of the inputs and one of the hidden state,
then element-wise operators; its lists are recorded and bound beforehand, and only the last one is waited for.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from targets import Call, Result, main

from dmlgpu import Buffer, BufferBinding, CommandList, CompiledOperator, Device, adapters, descs
from dmlgpu.bench.ratios import ratio
from dmlgpu.catalog.enums import DataType, MatrixTransform, RecurrentNetworkDirection
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import TensorDesc

Array = NDArray[np.float32]
FLOAT = DataType.FLOAT32
ACTIVATIONS = (descs.ActivationSigmoid(), descs.ActivationTanh(), descs.ActivationTanh())


def tensor(*sizes: int) -> TensorDesc:
    return TensorDesc(FLOAT, sizes)


@dataclass(frozen=True)
class Sizes:
    """Time steps, sequences, inputs of a step, hidden elements."""

    steps: int
    sequences: int
    inputs: int
    hidden: int


def lstm(sizes: Sizes) -> descs.Lstm:
    """The whole layer."""
    state = (1, sizes.sequences, sizes.hidden)
    return descs.Lstm(
        input_tensor=tensor(1, sizes.steps, sizes.sequences, sizes.inputs),
        weight_tensor=tensor(1, 1, 4 * sizes.hidden, sizes.inputs),
        recurrence_tensor=tensor(1, 1, 4 * sizes.hidden, sizes.hidden),
        output_sequence_tensor=tensor(sizes.steps, *state),
        activation_descs=ACTIVATIONS,
        direction=RecurrentNetworkDirection.FORWARD,
        clip_threshold=0.0,
        use_clip_threshold=False,
        couple_input_forget=False,
    )


Work = tuple[CompiledOperator, Sequence[BufferBinding | None], BufferBinding]
"""An operator, its inputs and its output."""


class Bound:
    """A device with what is recorded on it."""

    def __init__(self, adapter: str):
        info = next(info for info in adapters() if adapter.lower() in str(info).lower())
        self.device = Device(info)
        self.recorder, self.fence = self.device.create_command_recorder(), self.device.create_fence()
        self.value = 0

    def buffer(self, contents: Array | int) -> Buffer:
        """A buffer with these contents, or of a size in bytes."""
        size = contents if isinstance(contents, int) else contents.nbytes
        buffer = self.device.create_buffer(size)
        if not isinstance(contents, int):
            buffer.write(contents)
        return buffer

    def compiled(self, desc: OperatorDesc) -> CompiledOperator:
        """Return an initialized operator."""
        compiled = self.device.compile_operator(self.device.create_operator(desc))
        initializer, commands = self.device.create_operator_initializer([compiled]), self.device.create_command_list()
        self.recorder.record_dispatch(commands, initializer, self.device.create_binding_table(initializer))
        commands.close()
        self.device.queue.execute([commands])
        return compiled

    def commands(self, work: Sequence[Work]) -> CommandList:
        """A closed command list of operators, each with one output."""
        commands = self.device.create_command_list()
        for compiled, inputs, output in work:
            table = self.device.create_binding_table(compiled)
            table.bind_inputs(inputs)
            table.bind_outputs([None if port.desc is None else output for port in compiled.outputs])
            size = compiled.binding_properties.temporary_resource_size
            table.bind_temporary_resource(self.buffer(size) if size else None)
            self.recorder.record_dispatch(commands, compiled, table)
        commands.close()
        return commands

    def call(self, lists: Sequence[CommandList]) -> Call:
        """Executes lists in order, and waits for the last."""

        def run(_: int) -> None:
            self.value += 1
            for commands in lists:
                self.device.queue.execute([commands])
            self.device.queue.signal(self.fence, self.value)
            self.fence.wait(self.value)

        return run


class Chain:
    """The steps of an LSTM as operators of their own: two products, then element-wise ones on the gates."""

    def __init__(self, bound: Bound, sizes: Sizes):
        self.bound, self.sizes = bound, sizes
        rows, hidden, compiled = sizes.sequences, sizes.hidden, bound.compiled
        state, gates = tensor(1, 1, rows, hidden), tensor(1, 1, rows, 4 * hidden)
        gate = TensorDesc(FLOAT, state.sizes, (4 * rows * hidden, 4 * rows * hidden, 4 * hidden, 1))
        three = TensorDesc(FLOAT, (1, 1, rows, 3 * hidden), gate.strides)
        self.of_inputs = compiled(product(tensor(1, 1, rows, sizes.inputs), None, gates))
        self.of_states = compiled(product(state, gates, gates))
        self.sigmoid = compiled(descs.ActivationSigmoid(input_tensor=three, output_tensor=three))
        self.tanh_gate = compiled(descs.ActivationTanh(input_tensor=gate, output_tensor=gate))
        self.tanh_cell = compiled(descs.ActivationTanh(input_tensor=state, output_tensor=state))
        self.gate_times_gate = compiled(descs.ElementWiseMultiply(a_tensor=gate, b_tensor=gate, output_tensor=state))
        self.gate_times_state = compiled(descs.ElementWiseMultiply(a_tensor=gate, b_tensor=state, output_tensor=state))
        self.add = compiled(descs.ElementWiseAdd(a_tensor=state, b_tensor=state, output_tensor=state))

    def lists(self, x: Array, w: Array, r: Array, output: Buffer) -> list[CommandList]:
        """A command list per step."""
        state = 4 * self.sizes.sequences * self.sizes.hidden
        inputs, weights, recurrence = (self.bound.buffer(array) for array in (x, w, r))
        cell, nothing = (self.bound.buffer(np.zeros(state // 4, np.float32)) for _ in range(2))
        projected, gates, active = (self.bound.buffer(4 * state) for _ in range(3))
        scaled, written, shown = (BufferBinding(self.bound.buffer(state)) for _ in range(3))
        memory, of_step = BufferBinding(cell), x.nbytes // self.sizes.steps

        def column(buffer: Buffer, gate: int) -> BufferBinding:
            return BufferBinding(buffer, 4 * gate * self.sizes.hidden)

        def step(time: int) -> list[Work]:
            before = BufferBinding(output, (time - 1) * state) if time else BufferBinding(nothing)
            now = BufferBinding(inputs, time * of_step)
            return [
                (self.of_inputs, [now, BufferBinding(weights), None], BufferBinding(projected)),
                (self.of_states, [before, BufferBinding(recurrence), BufferBinding(projected)], BufferBinding(gates)),
                (self.sigmoid, [column(gates, 0)], column(active, 0)),
                (self.tanh_gate, [column(gates, 3)], column(active, 3)),
                (self.gate_times_state, [column(active, 2), memory], scaled),
                (self.gate_times_gate, [column(active, 0), column(active, 3)], written),
                (self.add, [scaled, written], memory),
                (self.tanh_cell, [memory], shown),
                (self.gate_times_state, [column(active, 1), shown], BufferBinding(output, time * state)),
            ]

        return [self.bound.commands(step(time)) for time in range(self.sizes.steps)]


def product(a: TensorDesc, c: TensorDesc | None, gates: TensorDesc) -> descs.Gemm:
    """Product of inputs or states and rows of weights, added to the existing sums."""
    return descs.Gemm(
        a_tensor=a,
        b_tensor=tensor(1, 1, gates.sizes[3], a.sizes[3]),
        c_tensor=c,
        output_tensor=gates,
        trans_a=MatrixTransform.NONE,
        trans_b=MatrixTransform.TRANSPOSE,
        alpha=1.0,
        beta=1.0,
    )


def compared(adapter: str, sizes: Sizes, at_least: float | None = None) -> Result:
    """A line: the chain over ours, both on the same random numbers. The first call of each gives the same states."""
    rng, bound = np.random.default_rng(1), Bound(adapter)
    desc = lstm(sizes)
    arrays = [
        (rng.standard_normal(slot.tensor.sizes) / 8).astype(np.float32) for slot in desc.inputs[:3] if slot.tensor
    ]
    size = 4 * sizes.steps * sizes.sequences * sizes.hidden
    mine, theirs = bound.buffer(size), bound.buffer(size)
    bindings = [*(BufferBinding(bound.buffer(array)) for array in arrays), *[None] * 5]
    ours = bound.call([bound.commands([(bound.compiled(desc), bindings, BufferBinding(mine))])])
    chain = bound.call(Chain(bound, sizes).lists(*arrays, theirs))
    ours(0)
    chain(0)
    np.testing.assert_allclose(*(buffer.read().view(np.float32) for buffer in (mine, theirs)), atol=1e-5)
    name = f"LSTM, {sizes.steps} steps, {sizes.sequences} x {sizes.hidden}"
    return Result(name, ratio(chain, ours), at_least=at_least)


def layers(adapter: str) -> Iterator[Result]:
    """The target, then other sizes."""
    yield compared(adapter, Sizes(100, 1, 128, 128), 3.0)
    yield compared(adapter, Sizes(100, 16, 128, 128))
    yield compared(adapter, Sizes(20, 32, 256, 512))


if __name__ == "__main__":
    sys.exit(main(__doc__, {"layers": layers}))
