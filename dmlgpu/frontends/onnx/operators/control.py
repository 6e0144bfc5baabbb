"""Control flow: If, Loop and Scan, decided by the host around compiled bodies."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import GraphProto, ValueInfoProto

from dmlgpu.frontends.onnx.loops import (
    MAX_ITERATIONS,
    BodyRunner,
    NeedsBranch,
    NeedsLoop,
    inputs_of,
    iterate,
    nothing,
    number_of,
    scan,
    stacked,
    taken,
    turned,
)
from dmlgpu.frontends.onnx.node import OnnxNode
from dmlgpu.frontends.onnx.operators.sequences import joined
from dmlgpu.frontends.onnx.registry import Steps, operator
from dmlgpu.frontends.onnx.segments import RunInput, Slots
from dmlgpu.frontends.onnx.symbolic import plain_array
from dmlgpu.frontends.onnx.values import NeedsHost, OnnxValue


@operator("If", host=(0,))
def if_(node: OnnxNode) -> Steps:
    """Translate the branch that the condition selects, in place."""
    condition = node.host(0)
    if condition.size != 1:
        raise node.rejection(f"the condition must have one element, got shape {list(condition.shape)}")
    branch = "then_branch" if condition.item() else "else_branch"
    return (yield NeedsBranch(node.attribute(branch), f"the host decides for {branch}"))


@operator("Loop")
def loop(node: OnnxNode) -> Steps:
    """Run the body as often as a count and a condition say."""
    limits = [node.value(index) if node.has(index) else None for index in (0, 1)]
    states = [node.value(index) for index in range(2, len(node))]
    graph: GraphProto = node.attribute("body")
    _check_body(node, graph, 2 + len(states), 1 + len(states))
    if any(state.is_container for state in states) or any(map(_is_container, graph.output)):
        return (yield from unrolled(node, graph, limits, states))

    def run(body: BodyRunner, captured: list[RunInput], slots: Slots) -> list[RunInput]:
        count, begins = (None if limit is None else number_of(inputs_of([limit], slots)[0]) for limit in limits)
        return iterate(
            body,
            graph,
            inputs_of(states, slots),
            captured,
            count=MAX_ITERATIONS if count is None else count,
            goes_on=begins is None or bool(begins),
        )

    values = [*(limit for limit in limits if limit is not None), *states]
    return (yield NeedsLoop(graph, values, run, "the host controls the loop; its body is compiled"))


MAX_UNROLLED = 1024
"""Maximum number of iterations of a loop of sequences or optionals."""


def _is_container(info: ValueInfoProto) -> bool:
    return info.type.WhichOneof("value") in ("sequence_type", "optional_type")


def unrolled(
    node: OnnxNode, graph: GraphProto, limits: Sequence[OnnxValue | None], states: Sequence[OnnxValue]
) -> Steps:
    """Translate the body of a Loop once per iteration, in place: its states are sequences or optionals, which are
    resolved during translation."""
    arrays = iter((yield NeedsHost([limit for limit in limits if limit is not None])))
    count, goes_on = (None if limit is None else _only(node, next(arrays)) for limit in limits)
    count = MAX_ITERATIONS if count is None else count
    gathered: list[list[OnnxValue]] = [[] for _ in graph.output[1 + len(states) :]]
    why, done = "the host unrolls the loop, whose states are sequences or optionals", 0
    while goes_on in (None, 1) and done < count:
        if done >= MAX_UNROLLED:
            raise node.rejection(f"a loop of sequences or optionals is unrolled for at most {MAX_UNROLLED} iterations")
        inputs = [node.known(np.array(done, np.int64)), node.known(np.array(True)), *states]
        values = dict(zip([info.name for info in graph.input], inputs, strict=True))
        values |= {
            f"{node.name}: {n} {i}": piece for n, pieces in enumerate(gathered) for i, piece in enumerate(pieces)
        }
        condition, *results = yield NeedsBranch(graph, why if not done else "", values)
        states, done = results[: len(states)], done + 1
        for pieces, result in zip(gathered, results[len(states) :], strict=True):
            pieces.append(result)
        later = [tensor for value in (*states, *itertools.chain(*gathered)) for tensor in value.parts]
        is_known = condition.array is not None
        (array,) = yield NeedsHost(
            [condition], [] if is_known else [value for value in later if value.expression is not None]
        )
        goes_on = _only(node, array)
    joins: list[Any] = []
    for pieces, info in zip(gathered, graph.output[1 + len(states) :], strict=True):
        if pieces:
            joins += yield from joined(node, pieces, 0, is_new=True)
        else:
            none = nothing(info)
            joins.append(OnnxValue(none.shape, none.data_type, none.coded, np.zeros(none.shape, none.data_type.numpy)))
    return [*states, *joins]


def _only(node: OnnxNode, array: Any) -> int:
    """Return the only element of a trip count or a condition."""
    if array.size != 1:
        raise node.rejection(f"the trip count and conditions must have one element, got shape {list(array.shape)}")
    return int(plain_array(array).item())


@operator("Scan", since=9)
def scan_(node: OnnxNode) -> Steps:
    """Run the body for every step of sequences."""
    alone = node.alone()  # stages outlive the graph under construction
    graph, states, sequences = _scanned(node, 0)
    axes = [
        node.axis(axis, len(sequence.shape))
        for axis, sequence in zip(_each(node, "scan_input_axes", len(sequences)), sequences, strict=True)
    ]
    backward = _each(node, "scan_input_directions", len(sequences))
    infos = graph.output[len(states) :]
    output_axes, output_backward = (_each(node, f"scan_output_{name}", len(infos)) for name in ("axes", "directions"))

    def run(body: BodyRunner, captured: list[RunInput], slots: Slots) -> list[RunInput]:
        last, gathered = scan(
            alone, body, inputs_of(states, slots), inputs_of(sequences, slots), captured, axes=axes, backward=backward
        )
        results = [
            nothing(info, axis) if steps is None else turned(steps, alone.axis(axis, len(steps.shape)), bool(back))
            for steps, axis, back, info in zip(gathered, output_axes, output_backward, infos, strict=True)
        ]
        return [*last, *results]

    return (yield NeedsLoop(graph, [*states, *sequences], run, _COUNTED))


@operator("Scan")
def batched_scan(node: OnnxNode) -> Steps:
    """Run the body for every step of a batch of sequences: their steps are in the second dimension."""
    if node.has(0):
        raise node.rejection("input sequence_lens is not supported")
    alone = node.alone()
    graph, states, sequences = _scanned(node, 1)
    backward, infos = _each(node, "directions", len(sequences)), graph.output[len(states) :]

    def run(body: BodyRunner, captured: list[RunInput], slots: Slots) -> list[RunInput]:
        carried, sources = inputs_of(states, slots), inputs_of(sequences, slots)
        batch = sources[0].shape[:1]
        if any(tensor.shape[:1] != batch or 0 in tensor.shape[:1] for tensor in (*carried, *sources)):
            shapes = [list(source.shape) for source in sources]
            raise alone.rejection(f"numbers of states and sequences must match, got {shapes}")
        results = []
        for index in range(sources[0].shape[0]):
            first, steps = ([taken(tensor, 0, index) for tensor in tensors] for tensors in (carried, sources))
            axes = (0,) * len(steps)
            last, gathered = scan(alone, body, first, steps, captured, axes=axes, backward=backward)
            pairs = zip(gathered, infos, strict=True)
            results.append([*last, *(nothing(info) if steps is None else steps for steps, info in pairs)])
        return [stacked(parts, 0) for parts in zip(*results, strict=True)]

    return (yield NeedsLoop(graph, [*states, *sequences], run, _COUNTED))


_COUNTED = "the host counts iterations; the body is compiled"


def _scanned(node: OnnxNode, first: int) -> tuple[GraphProto, list[OnnxValue], list[OnnxValue]]:
    """Return the body of a Scan, its initial states and the sequences, from a first input index on."""
    count = node.integer("num_scan_inputs")
    values = [node.value(index) for index in range(first, len(node))]
    if not 1 <= count <= len(values):
        raise node.rejection(f"num_scan_inputs must be between 1 and {len(values)}, got {count}")
    graph: GraphProto = node.attribute("body")
    _check_body(node, graph, len(values), len(values) - count)
    return graph, values[:-count], values[-count:]


def _check_body(node: OnnxNode, graph: GraphProto, inputs: int, outputs: int) -> None:
    """Raise NotSupported unless a body has exactly ``inputs`` and at least ``outputs``."""
    if len(graph.input) != inputs or len(graph.output) < outputs:
        raise node.rejection(
            f"body must have {inputs} inputs and at least {outputs} outputs, "
            f"got {len(graph.input)} and {len(graph.output)}"
        )


def _each(node: OnnxNode, name: str, count: int) -> Sequence[int]:
    return node.integers(name, count) or (0,) * count
