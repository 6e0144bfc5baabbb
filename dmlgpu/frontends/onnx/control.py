"""If, Loop and Scan: decided on the host, around bodies that are compiled."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from onnx import GraphProto

from dmlgpu.catalog.enums import DataType
from dmlgpu.common.errors import ModelError, NotSupported
from dmlgpu.frontends.onnx.model import declared
from dmlgpu.frontends.onnx.names import read_names
from dmlgpu.frontends.onnx.node import Node
from dmlgpu.frontends.onnx.segments import Fed, Held, Outcome, Part, Slots
from dmlgpu.frontends.onnx.trips import LEAST_TRIPS, NotRecorded, RecordedTrips, Slice
from dmlgpu.frontends.onnx.values import Shape, Value
from dmlgpu.runtime.device import Device
from dmlgpu.tensors.tensor import Tensor

if TYPE_CHECKING:
    from dmlgpu.frontends.onnx.runner import Runner
    from dmlgpu.frontends.onnx.translate import Scope, Translation

MOST_ITERATIONS = 2**24
"""Most iterations of a loop."""

_MOST_COMPARED = 4096
"""Most bytes of a weight that counts as the same where its elements are equal."""

Made = TypeVar("Made")
Results = Generator[Part, Outcome, "Sequence[Value | None]"]


def is_control(node: Node) -> bool:
    """Return whether a node has bodies that the host decides about."""
    return node.proto.domain in ("", "ai.onnx") and node.op_type in _KINDS


def translate(translation: Translation, node: Node, scope: Scope) -> Results:
    """Yield the parts that compute a node of control flow, and return its outputs."""
    return (yield from _KINDS[node.op_type](translation, node, scope))


def _if(translation: Translation, node: Node, scope: Scope) -> Results:
    """Translate the branch that the condition names, in place."""
    condition = node.host(0)
    if condition.size != 1:
        raise node.refusal(f"the condition must have one element, got shape {list(condition.shape)}")
    chosen = "then_branch" if condition.reshape(-1)[0] else "else_branch"
    branch: GraphProto = node.attribute(chosen)
    translation.place(node, f"the host decides, for {chosen}")
    outputs = [one.name for one in branch.output]
    return (yield from translation.walk(branch.node, {}, outputs, scope))


@dataclass(eq=False)
class _Body:
    """A body as a graph of its own, and the slots of what it reads of the graph around it."""

    runner: Runner
    captured: list[Value]


def _body_of(translation: Translation, node: Node, scope: Scope) -> _Body:
    """Return the body of a loop: names of the graph around it are inputs, or known."""
    body: GraphProto = node.attribute("body")
    known: dict[str, Value | None] = {}
    own = {one.name for one in body.input} | {name for one in body.node for name in one.output}
    captured: dict[str, Value] = {}
    wanted = dict.fromkeys(name for one in body.node for name in read_names(one))
    inner = {name for one in body.node for attribute in one.attribute for name in _inner_names(attribute.g)}
    for name in (*wanted, *(one.name for one in body.output)):
        if name in own or name in captured or name in known or (name in inner and not _has(scope, name)):
            continue
        value = scope.find(name)
        if value is not None and value.array is not None:
            known[name] = Value(value.shape, value.data_type, value.is_bool, value.array, value.is_weight)
        elif value is not None:
            captured[name] = value
    names = [*(one.name for one in body.input), *captured]
    key = id(node.proto), tuple(names), tuple(sorted(_identity(name, one) for name, one in known.items()))

    def make() -> Runner:
        return translation.runner(
            translation.device,
            translation.versions,
            translation.weights,
            nodes=tuple(body.node),
            known=known,
            inputs=names,
            outputs=[one.name for one in body.output],
            is_body=True,
            strict=translation.strict,
        )

    return _Body(_kept(translation, key, node, make), list(captured.values()))


def _kept(translation: Translation, key: Hashable, node: Node, make: Callable[[], Made]) -> Made:
    """Return what an earlier walk made for a node, or make it; the node lives as long, whose identity the key has."""
    found = translation.bodies.get(key)
    if found is None:
        found = make(), node.proto
        translation.bodies.put(key, found, 1)
    kept: Made = found[0]
    return kept


def _identity(name: str, value: Value | None) -> tuple[str, str]:
    """Return what is equal for equal values of a name: a weight's own identity, and what is known of others."""
    if value is None or value.array is None:
        return name, ""
    if value.is_weight and value.array.nbytes > _MOST_COMPARED:
        return name, str(id(value.array))
    return name, f"{value.array.dtype} {value.shape} {value.array.tobytes().hex()}"


def _inner_names(graph: GraphProto) -> set[str]:
    return {name for one in graph.node for name in one.output} | {one.name for one in graph.input}


def _has(scope: Scope, name: str) -> bool:
    try:
        scope.find(name)
    except ModelError:
        return False
    return True


def _loop(translation: Translation, node: Node, scope: Scope) -> Results:
    limits = [node.value(number) if node.has(number) else None for number in (0, 1)]
    states = [node.value(number) for number in range(2, len(node))]
    graph: GraphProto = node.attribute("body")
    _check_body(node, graph, 2 + len(states), 1 + len(states))
    body = _body_of(translation, node, scope)
    translation.place(node, "the host counts and decides, around a compiled body")
    translation.place_body(node, body.runner)

    def run(slots: Slots) -> list[Fed]:
        count, begins = (None if one is None else _number(feeds([one], slots)[0]) for one in limits)
        return _iterate(
            body.runner,
            graph,
            feeds(states, slots),
            feeds(body.captured, slots),
            count=MOST_ITERATIONS if count is None else count,
            goes_on=begins is None or bool(begins),
        )

    given = [one for one in limits if one is not None]
    return (yield from _finish(translation, node, [*given, *states, *body.captured], run))


def _check_body(node: Node, graph: GraphProto, inputs: int, outputs: int) -> None:
    """Raise NotSupported unless a body has so many inputs, and at least so many outputs."""
    if len(graph.input) != inputs or len(graph.output) < outputs:
        raise node.refusal(
            f"body must have {inputs} inputs and at least {outputs} outputs, "
            f"got {len(graph.input)} and {len(graph.output)}"
        )


def _number(fed: Fed) -> int:
    """Return the one element of a tensor, on the host."""
    if math.prod(fed.shape) != 1:
        raise NotSupported(f"Loop: the trip count and conditions must have one element, got shape {list(fed.shape)}")
    return int(np.asarray(_on_host(fed.held)).reshape(-1)[0])


def _iterate(
    runner: Runner, graph: GraphProto, states: list[Fed], captured: list[Fed], *, count: int, goes_on: bool
) -> list[Fed]:
    """Run the body of a Loop, and return its states and what it gathered."""
    gathered: list[list[Fed]] = [[] for _ in range(len(graph.output) - 1 - len(states))]
    done = 0
    refused: Part | None = None  # not asked again after every trip
    while goes_on and done < count:
        if done >= MOST_ITERATIONS:
            raise NotSupported(f"Loop: at most {MOST_ITERATIONS} iterations are run")
        signatures = [state.signature for state in states]
        condition, *results = runner.run([_known(np.array(done, np.int64)), _known(np.array(True)), *states, *captured])
        states, done, goes_on = results[: len(states)], done + 1, bool(_number(condition))
        for pieces, result in zip(gathered, results[len(states) :], strict=True):
            pieces.append(_as_first(result))
        end = min(count, MOST_ITERATIONS)
        part = runner.only_part
        is_fixed = part is not refused and [state.signature for state in states] == signatures
        if goes_on and end - done >= LEAST_TRIPS and is_fixed:
            fed = [_known(np.array(done, np.int64)), _known(np.array(True)), *states, *captured]
            trips = _recorded(runner, fed, len(states), is_loop=True)
            if trips is None:
                refused = part
            else:
                for batch in trips.batches(done, end):
                    done, goes_on = done + batch.trips, batch.goes_on
                    for pieces, piece in zip(gathered, batch.gathered, strict=True):
                        pieces.append(piece)
                states = trips.results()
    results = [
        _joined(pieces) if pieces else _nothing(info)
        for pieces, info in zip(gathered, graph.output[1 + len(states) :], strict=True)
    ]
    return [*states, *results]


def _recorded(
    runner: Runner, fed: list[Fed], states: int, *, is_loop: bool, slices: dict[int, Slice] | None = None
) -> RecordedTrips | None:
    """Return the trips to come, if the device can do many of them in a submission."""
    part = runner.only_part
    if part is None:
        return None
    outputs = list(part.outputs)
    condition = outputs.pop(0) if is_loop else None
    try:
        return RecordedTrips(
            runner.device,
            part,
            condition,
            outputs[:states],
            outputs[states:],
            fed,
            numbered=is_loop,
            first_state=2 if is_loop else 0,
            slices=slices or {},
        )
    except NotRecorded:
        return None


def _as_first(fed: Fed) -> Fed:
    """Return a result as a sequence of one."""
    held: Any = fed.held.reshape((1, *fed.shape))
    return Fed((1, *fed.shape), fed.data_type, fed.is_bool, held)


def _joined(pieces: Sequence[Fed]) -> Fed:
    """Return sequences one behind the other."""
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
    return Fed(shape, first.data_type, first.is_bool, held)


def _scan(translation: Translation, node: Node, scope: Scope) -> Results:
    if node.version < 9:
        return (yield from _batched_scan(translation, node, scope))
    graph: GraphProto = node.attribute("body")
    sequences = node.integer("num_scan_inputs")
    values = [node.value(number) for number in range(len(node))]
    if not 1 <= sequences <= len(values):
        raise node.refusal(f"num_scan_inputs must be between 1 and {len(values)}, got {sequences}")
    states, scanned = values[: len(values) - sequences], values[len(values) - sequences :]
    _check_body(node, graph, len(values), len(states))
    body = _body_of(translation, node, scope)
    translation.place(node, "the host counts, around a compiled body")
    translation.place_body(node, body.runner)
    outputs = len(graph.output) - len(states)
    axes = [
        node.axis(one, len(x.shape)) for one, x in zip(_all(node, "scan_input_axes", sequences), scanned, strict=True)
    ]
    backward = _all(node, "scan_input_directions", sequences)
    output_axes, output_backward = (
        _all(node, "scan_output_axes", outputs),
        _all(node, "scan_output_directions", outputs),
    )
    infos = graph.output[len(states) :]

    alone = node.alone()  # parts outlive the graph under construction

    def run(slots: Slots) -> list[Fed]:
        sources, captured = feeds(scanned, slots), feeds(body.captured, slots)
        carried, gathered = _scanned(
            alone, body.runner, feeds(states, slots), sources, captured, axes=axes, backward=backward
        )
        turned = [
            _nothing(info, axis) if steps is None else _turned(steps, alone.axis(axis, len(steps.shape)), bool(back))
            for steps, axis, back, info in zip(gathered, output_axes, output_backward, infos, strict=True)
        ]
        return [*carried, *turned]

    return (yield from _finish(translation, node, [*states, *scanned, *body.captured], run))


def _scanned(
    node: Node,
    runner: Runner,
    carried: list[Fed],
    sources: list[Fed],
    captured: list[Fed],
    *,
    axes: Sequence[int],
    backward: Sequence[int],
) -> tuple[list[Fed], list[Fed | None]]:
    """Run the body of a Scan, and return its states and what it gathered, steps first; None for no steps."""
    lengths = {source.shape[axis] for source, axis in zip(sources, axes, strict=True)}
    if len(lengths) != 1:
        raise node.refusal(f"sequences must have as many steps, got {sorted(lengths)}")
    (length,) = lengths
    outputs = len(node.attribute("body").output) - len(carried)
    gathered: list[list[Fed]] = [[] for _ in range(outputs)]
    step = 0
    while step < length:
        parts = [
            _taken(source, axis, length - 1 - step if turned else step)
            for source, axis, turned in zip(sources, axes, backward, strict=True)
        ]
        signatures = [state.signature for state in carried]
        results = runner.run([*carried, *parts, *captured])
        carried, step = results[: len(carried)], step + 1
        for pieces, result in zip(gathered, results[len(carried) :], strict=True):
            pieces.append(_as_first(result))
        again = [state.signature for state in carried] == signatures
        if step == 1 and again and length - step >= LEAST_TRIPS and not any(axes):
            slices = {
                slot: Slice(_packed(runner.device, source), bool(turned))
                for slot, (source, turned) in enumerate(zip(sources, backward, strict=True), len(carried))
            }
            trips = _recorded(runner, [*carried, *parts, *captured], len(carried), is_loop=False, slices=slices)
            if trips is not None:
                for batch in trips.batches(step, length):
                    step += batch.trips
                    for pieces, piece in zip(gathered, batch.gathered, strict=True):
                        pieces.append(piece)
                carried = trips.results()
    return carried, [_joined(pieces) if pieces else None for pieces in gathered]


def _packed(device: Device, fed: Fed) -> Tensor:
    """Return a tensor in a memory of its own."""
    return Slots(device, [fed.held]).tensor(0)


def _turned(steps: Fed, axis: int, backward: bool) -> Fed:
    """Return what a Scan gathered with the steps along an axis, the last one first if it goes backward."""
    held: Any = steps.held[::-1] if backward else steps.held
    order = [*range(1, axis + 1), 0, *range(axis + 1, len(steps.shape))]
    if axis:
        if isinstance(held, Tensor):
            from dmlgpu import ops  # noqa: PLC0415 - slow to import, and few models need it

            held = ops.transpose(held, order)
        else:
            held = held.transpose(order)
    return Fed(tuple(steps.shape[place] for place in order), steps.data_type, steps.is_bool, held)


def _batched_scan(translation: Translation, node: Node, scope: Scope) -> Results:
    """Translate Scan of operator set 8: sequences stand in a batch, their steps in the second dimension."""
    if node.has(0):
        raise node.refusal("input sequence_lens is not supported")
    graph: GraphProto = node.attribute("body")
    sequences = node.integer("num_scan_inputs")
    values = [node.value(number) for number in range(1, len(node))]
    if not 1 <= sequences <= len(values):
        raise node.refusal(f"num_scan_inputs must be between 1 and {len(values)}, got {sequences}")
    states, scanned = values[: len(values) - sequences], values[len(values) - sequences :]
    _check_body(node, graph, len(values), len(states))
    body = _body_of(translation, node, scope)
    translation.place(node, "the host counts, around a compiled body")
    backward, infos = _all(node, "directions", sequences), graph.output[len(states) :]

    alone = node.alone()

    def run(slots: Slots) -> list[Fed]:
        carried, sources, captured = feeds(states, slots), feeds(scanned, slots), feeds(body.captured, slots)
        found = []
        if any(one.shape[:1] != sources[0].shape[:1] or 0 in one.shape[:1] for one in (*carried, *sources)):
            raise alone.refusal(f"states and sequences must be as many, got {[list(one.shape) for one in sources]}")
        for number in range(sources[0].shape[0]):
            own = [_taken(one, 0, number) for one in carried]
            parts = [_taken(one, 0, number) for one in sources]
            last, kept = _scanned(alone, body.runner, own, parts, captured, axes=(0,) * sequences, backward=backward)
            gathered = [_nothing(info) if one is None else one for one, info in zip(kept, infos, strict=True)]
            found.append([*last, *gathered])
        return [_stacked(one, 0) for one in zip(*found, strict=True)]

    return (yield from _finish(translation, node, [*states, *scanned, *body.captured], run))


def _all(node: Node, name: str, count: int) -> tuple[int, ...]:
    return node.integers(name, count) or (0,) * count


def feeds(values: Sequence[Value], slots: Slots) -> list[Fed]:
    """Return values as inputs of a body."""
    found = []
    for one in values:
        held: Any = one.array if one.slot is None else slots.held(one.slot)
        if held.shape != one.shape:
            held = held.reshape(one.shape)
        found.append(Fed(one.shape, one.data_type, one.is_bool, held))
    return found


@dataclass(eq=False)
class _Call:
    """A loop as an action of the run: its results come into slots, their shapes decide how the translation goes on."""

    body: Callable[[Slots], list[Fed]]
    slots: list[int]

    def run(self, slots: Slots) -> Outcome:
        """Run the loop."""
        found = self.body(slots)
        for number, one in zip(self.slots, found, strict=True):
            slots.put(number, one.held)
        return tuple(one.signature for one in found)


def _finish(translation: Translation, node: Node, reads: Sequence[Value], run: Callable[[Slots], list[Fed]]) -> Results:
    fills = [translation.new_slot() for _ in node.proto.output]
    outcome = yield from translation.stop(_Call(run, fills), reads)
    results: list[Value | None] = []
    found: Any = outcome
    for slot, (shape, data_type, is_bool) in zip(fills, found, strict=True):
        value = Value(shape, data_type, is_bool, slot=slot)
        if value.is_empty:
            value = Value(shape, data_type, is_bool, np.zeros(shape, data_type.numpy))
        results.append(value)
    return results


def _known(array: Any) -> Fed:
    is_bool = array.dtype == np.bool_
    return Fed(array.shape, DataType.UINT8 if is_bool else DataType.from_numpy(array.dtype), is_bool, array)


def _on_host(held: Held) -> Any:
    return held.numpy() if isinstance(held, Tensor) else held


def _taken(fed: Fed, axis: int, number: int) -> Fed:
    """Return one of the slices along an axis."""
    index = (slice(None),) * axis + (number,)
    held: Any = fed.held[index]
    return Fed(fed.shape[:axis] + fed.shape[axis + 1 :], fed.data_type, fed.is_bool, held)


def _stacked(parts: Sequence[Fed], axis: int) -> Fed:
    """Return parts of equal shapes along a new axis."""
    first = parts[0]
    shape: Shape = (*first.shape[:axis], len(parts), *first.shape[axis:])
    held: Any
    if any(isinstance(one.held, Tensor) for one in parts):
        tensors = [one.held if isinstance(one.held, Tensor) else Tensor(one.held, device=None) for one in parts]
        from dmlgpu import ops  # noqa: PLC0415 - slow to import, and few models need it

        held = ops.stack(tensors, axis=axis)
    else:
        held = np.stack([np.asarray(one.held) for one in parts], axis)
    return Fed(shape, first.data_type, first.is_bool, held)


def _nothing(info: Any, axis: int = 0) -> Fed:
    """Return what a loop without iterations gathers along an axis."""
    given = declared(info)
    shape = [size if isinstance(size, int) else 0 for size in given.shape or ()]
    shape.insert(axis if axis >= 0 else axis + len(shape) + 1, 0)
    held = np.zeros(shape, given.data_type.numpy)
    return Fed(held.shape, given.data_type, given.is_bool, held)


_KINDS: dict[str, Callable[[Any, Node, Any], Results]] = {"If": _if, "Loop": _loop, "Scan": _scan}
