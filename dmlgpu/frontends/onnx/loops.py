"""Execution of the bodies of Loop and Scan: iterations, loop-carried states, and scan outputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from onnx import GraphProto

from dmlgpu.common.errors import NotSupported
from dmlgpu.frontends.onnx.device_loops import MIN_TRIPS, NotRecorded, RecordedTrips, SequenceSlice
from dmlgpu.frontends.onnx.model import declared
from dmlgpu.frontends.onnx.node import OnnxNode
from dmlgpu.frontends.onnx.placement import Placement, PlacementSource
from dmlgpu.frontends.onnx.segments import Outcome, RunInput, RunStage, Slots
from dmlgpu.frontends.onnx.symbolic import has_symbols
from dmlgpu.frontends.onnx.values import OnnxValue, Shape
from dmlgpu.runtime.device import Device
from dmlgpu.tensors.tensor import Tensor

MAX_ITERATIONS = 2**24
"""Maximum number of iterations of a loop."""


class BodyRunner(PlacementSource, Protocol):
    """Runs the body of a loop."""

    @property
    def device(self) -> Device:
        """Device that it runs on."""

    @property
    def only_stage(self) -> RunStage | None:
        """The stage of the last run, if it had only one."""

    def run(self, inputs: Sequence[RunInput]) -> list[RunInput]:
        """Compute the outputs from the inputs, in order."""


@dataclass(eq=False)
class BodyPerRun:
    """The body of a loop in a recorded stage: captured numbers are values of symbols, so each run has its own.

    Args:
        create: Returns the body for the slots of a run.
    """

    create: Callable[[Slots], BodyRunner]
    _last: BodyRunner | None = None

    def __call__(self, slots: Slots) -> BodyRunner:
        """Return the body for a run."""
        self._last = self.create(slots)
        return self._last

    @property
    def placement(self) -> tuple[Placement, ...]:
        """Placement of each node in the last run."""
        return () if self._last is None else self._last.placement


@dataclass(frozen=True)
class NeedsBranch:
    """Request to translate a body in place of its node; answered with its outputs.

    Attributes:
        graph: The body.
        why: Why the host decides; empty if it does not, or if it was already reported.
        values: Values of names: inputs of the body, and others that stay valid until its end.
    """

    graph: GraphProto
    why: str = ""
    values: Mapping[str, OnnxValue] = field(default_factory=dict)


@dataclass(frozen=True)
class NeedsLoop:
    """Request to run a body repeatedly; answered with the outputs of the node.

    Attributes:
        graph: The body.
        values: Values that ``run`` reads from slots.
        run: Computes the outputs, given the runner of the body, captured values, and slots.
        why: Why the host decides.
    """

    graph: GraphProto
    values: Sequence[OnnxValue]
    run: Callable[[BodyRunner, list[RunInput], Slots], list[RunInput]]
    why: str


@dataclass(frozen=True)
class LoopAction:
    """A loop as an action of the run: its results go to slots, and their shapes determine the further translation.

    Attributes:
        loop: The request.
        body: Returns the runner of the body in a run.
        captured: Values of the surrounding graph that the body reads.
        slots: Slots of the results.
    """

    loop: NeedsLoop
    body: Callable[[Slots], BodyRunner]
    captured: Sequence[OnnxValue]
    slots: Sequence[int]

    def run(self, slots: Slots) -> Outcome:
        """Run the loop."""
        results = self.loop.run(self.body(slots), inputs_of(self.captured, slots), slots)
        for slot, result in zip(self.slots, results, strict=True):
            slots.put(slot, result.held)
        return tuple(result.signature for result in results)


def inputs_of(values: Sequence[OnnxValue], slots: Slots) -> list[RunInput]:
    """Return values as inputs of a body."""
    inputs = []
    for value in values:
        shape = slots.numbers(value.shape)
        held: Any = value.array if value.slot is None else slots.held(value.slot)
        if has_symbols(held):
            assert value.recipe is not None
            held = value.recipe(slots)
        if held.shape != shape:
            held = held.reshape(shape)
        inputs.append(RunInput(shape, value.data_type, value.coded, held))
    return inputs


def number_of(value: RunInput) -> int:
    """Return the only element of a tensor."""
    if math.prod(value.shape) != 1:
        raise NotSupported(f"Loop: the trip count and conditions must have one element, got shape {list(value.shape)}")
    held = value.held.numpy() if isinstance(value.held, Tensor) else value.held
    return int(np.asarray(held).reshape(-1)[0])


def iterate(
    runner: BodyRunner,
    graph: GraphProto,
    states: list[RunInput],
    captured: list[RunInput],
    *,
    count: int,
    goes_on: bool,
) -> list[RunInput]:
    """Run the body of a Loop; return its final states and scan outputs."""
    gathered: list[list[RunInput]] = [[] for _ in range(len(graph.output) - 1 - len(states))]
    done = 0
    rejected: RunStage | None = None  # do not try again after every iteration
    while goes_on and done < count:
        if done >= MAX_ITERATIONS:
            raise NotSupported(f"Loop: at most {MAX_ITERATIONS} iterations are run")
        signatures = [state.signature for state in states]
        condition, *results = runner.run([_known(np.array(done, np.int64)), _known(np.array(True)), *states, *captured])
        states, done, goes_on = results[: len(states)], done + 1, bool(number_of(condition))
        for pieces, result in zip(gathered, results[len(states) :], strict=True):
            pieces.append(_as_first(result))
        end = min(count, MAX_ITERATIONS)
        stage = runner.only_stage
        is_fixed = stage is not rejected and [state.signature for state in states] == signatures
        if goes_on and end - done >= MIN_TRIPS and is_fixed:
            inputs = [_known(np.array(done, np.int64)), _known(np.array(True)), *states, *captured]
            trips = recorded_trips(runner, inputs, len(states), is_loop=True)
            if trips is None:
                rejected = stage
            else:
                for batch in trips.batches(done, end):
                    done, goes_on = done + batch.trips, batch.goes_on
                    for pieces, piece in zip(gathered, batch.gathered, strict=True):
                        pieces.append(piece)
                states = trips.results()
    results = [
        _joined(pieces) if pieces else nothing(info)
        for pieces, info in zip(gathered, graph.output[1 + len(states) :], strict=True)
    ]
    return [*states, *results]


def recorded_trips(
    runner: BodyRunner,
    inputs: list[RunInput],
    states: int,
    *,
    is_loop: bool,
    slices: dict[int, SequenceSlice] | None = None,
) -> RecordedTrips | None:
    """Return the recorded iterations, if the device can run many of them in one submission."""
    stage = runner.only_stage
    if stage is None:
        return None
    outputs = list(stage.outputs)
    condition = outputs.pop(0) if is_loop else None
    try:
        return RecordedTrips(
            runner.device,
            stage,
            condition,
            outputs[:states],
            outputs[states:],
            inputs,
            numbered=is_loop,
            first_state=2 if is_loop else 0,
            slices=slices or {},
        )
    except NotRecorded:
        return None


def _as_first(result: RunInput) -> RunInput:
    """Return a result as a sequence of length 1."""
    held: Any = result.held.reshape((1, *result.shape))
    return RunInput((1, *result.shape), result.data_type, result.coded, held)


def _joined(pieces: Sequence[RunInput]) -> RunInput:
    """Return sequences one after the other."""
    first, shapes = pieces[0], {piece.shape[1:] for piece in pieces}
    if len(pieces) == 1:
        return first
    if len(shapes) > 1:
        raise NotSupported(f"Loop: results to gather must have equal shapes in every iteration, got {sorted(shapes)}")
    shape: Shape = (sum(piece.shape[0] for piece in pieces), *first.shape[1:])
    held: Any
    if any(isinstance(piece.held, Tensor) for piece in pieces):
        from dmlgpu import ops  # noqa: PLC0415 - slow to import, and few models need it

        tensors = [piece.held for piece in pieces]
        device = next(tensor.device for tensor in tensors if isinstance(tensor, Tensor))
        held = ops.concatenate([t if isinstance(t, Tensor) else Tensor(t, device=device) for t in tensors], axis=0)
    else:
        held = np.concatenate([np.asarray(piece.held) for piece in pieces])
    return RunInput(shape, first.data_type, first.coded, held)


def scan(
    node: OnnxNode,
    runner: BodyRunner,
    carried: list[RunInput],
    sources: list[RunInput],
    captured: list[RunInput],
    *,
    axes: Sequence[int],
    backward: Sequence[int],
) -> tuple[list[RunInput], list[RunInput | None]]:
    """Run the body of a Scan; return its final states and scan outputs, time steps first; None for no steps."""
    lengths = {source.shape[axis] for source, axis in zip(sources, axes, strict=True)}
    if len(lengths) != 1:
        raise node.rejection(f"sequences must have equal lengths, got {sorted(lengths)}")
    (length,) = lengths
    outputs = len(node.attribute("body").output) - len(carried)
    gathered: list[list[RunInput]] = [[] for _ in range(outputs)]
    step = 0
    while step < length:
        parts = [
            taken(source, axis, length - 1 - step if is_backward else step)
            for source, axis, is_backward in zip(sources, axes, backward, strict=True)
        ]
        signatures = [state.signature for state in carried]
        results = runner.run([*carried, *parts, *captured])
        carried, step = results[: len(carried)], step + 1
        for pieces, result in zip(gathered, results[len(carried) :], strict=True):
            pieces.append(_as_first(result))
        again = [state.signature for state in carried] == signatures
        if step == 1 and again and length - step >= MIN_TRIPS and not any(axes):
            slices = {
                slot: SequenceSlice(Slots(runner.device, [source.held]).tensor(0), bool(is_backward))
                for slot, (source, is_backward) in enumerate(zip(sources, backward, strict=True), len(carried))
            }
            trips = recorded_trips(runner, [*carried, *parts, *captured], len(carried), is_loop=False, slices=slices)
            if trips is not None:
                for batch in trips.batches(step, length):
                    step += batch.trips
                    for pieces, piece in zip(gathered, batch.gathered, strict=True):
                        pieces.append(piece)
                carried = trips.results()
    return carried, [_joined(pieces) if pieces else None for pieces in gathered]


def turned(steps: RunInput, axis: int, backward: bool) -> RunInput:
    """Return a scan output with time steps along an axis, reversed for the backward direction."""
    held: Any = steps.held[::-1] if backward else steps.held
    order = [*range(1, axis + 1), 0, *range(axis + 1, len(steps.shape))]
    if axis:
        if isinstance(held, Tensor):
            from dmlgpu import ops  # noqa: PLC0415 - slow to import, and few models need it

            held = ops.transpose(held, order)
        else:
            held = held.transpose(order)
    return RunInput(tuple(steps.shape[axis] for axis in order), steps.data_type, steps.coded, held)


def _known(array: Any) -> RunInput:
    value = OnnxValue.of_array(array)
    return RunInput(value.shape, value.data_type, value.coded, array)


def taken(value: RunInput, axis: int, index: int) -> RunInput:
    """Return one of the slices along an axis."""
    held: Any = value.held[(slice(None),) * axis + (index,)]
    return RunInput(value.shape[:axis] + value.shape[axis + 1 :], value.data_type, value.coded, held)


def stacked(parts: Sequence[RunInput], axis: int) -> RunInput:
    """Return parts of equal shapes along a new axis."""
    first = parts[0]
    shape: Shape = (*first.shape[:axis], len(parts), *first.shape[axis:])
    held: Any
    if any(isinstance(part.held, Tensor) for part in parts):
        tensors = [part.held if isinstance(part.held, Tensor) else Tensor(part.held, device=None) for part in parts]
        from dmlgpu import ops  # noqa: PLC0415 - slow to import, and few models need it

        held = ops.stack(tensors, axis=axis)
    else:
        held = np.stack([np.asarray(part.held) for part in parts], axis)
    return RunInput(shape, first.data_type, first.coded, held)


def nothing(info: Any, axis: int = 0) -> RunInput:
    """Return the scan output of a loop without iterations."""
    output = declared(info)
    shape = [size if isinstance(size, int) else 0 for size in output.shape or ()]
    shape.insert(axis if axis >= 0 else axis + len(shape) + 1, 0)
    held = np.zeros(shape, output.data_type.numpy)
    return RunInput(held.shape, output.data_type, output.coded, held)
