"""Runs a graph for inputs of any shapes: what is compiled for some is cached."""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence
from typing import TypeAlias

import numpy as np
from onnx import NodeProto

from dmlgpu.catalog.enums import DataType
from dmlgpu.common.cache import Cache, CacheLimits
from dmlgpu.frontends.onnx.model import RunGraph
from dmlgpu.frontends.onnx.placement import Placement
from dmlgpu.frontends.onnx.segments import Outcome, RunInput, RunStage, Slots, Weights
from dmlgpu.frontends.onnx.translate import Stages, Translation
from dmlgpu.frontends.onnx.values import OnnxValue, Shape
from dmlgpu.runtime.device import Device

MOST_STAGES = 256
"""Most stages of a graph that are kept, of all shapes together; the least recently used are evicted first."""

STAGE_BYTES = 256 << 20
"""Most bytes that they hold, as estimated: pipelines and constants. The stages of one run are kept even if they are
larger. Weights that are laid out again are not counted, because all shapes share them."""

MOST_BODIES = 64
"""Most bodies of loops that are kept."""

_MOST_COMPARED = 4096
"""Most bytes of a weight that counts as the same if its elements are equal."""

StageKey: TypeAlias = "tuple[tuple[tuple[Shape, DataType, bool] | None, ...], tuple[Outcome, ...]]"


class Runner:
    """Runs one graph.

    Args:
        device: where.
        graph: The main graph of a model, or the body of a loop.
        weights: Where the model's constants are.
        is_body: Whether it is the body of a loop.
        strict: Whether nodes that the host must decide about are refused.
    """

    def __init__(
        self, device: Device, graph: RunGraph, weights: Weights, *, is_body: bool = False, strict: bool = False
    ):
        self._device, self._graph, self._weights = device, graph, weights
        self._is_body, self._strict = is_body, strict
        self._stages: Cache[StageKey, RunStage] = Cache(CacheLimits(MOST_STAGES, STAGE_BYTES))
        self._bodies: Cache[Hashable, tuple[Runner, NodeProto]] = Cache(CacheLimits(MOST_BODIES, MOST_BODIES))
        self._last: tuple[RunStage, ...] = ()

    @property
    def placement(self) -> tuple[Placement, ...]:
        """Where each node was computed in the last run; empty before the first."""
        return tuple(placement for stage in self._last for placement in stage.placements())

    @property
    def device(self) -> Device:
        """Where it runs."""
        return self._device

    @property
    def only_stage(self) -> RunStage | None:
        """The stage of the last run, if nothing was read or decided within it."""
        return self._last[0] if len(self._last) == 1 else None

    def run(self, inputs: Sequence[RunInput | None], fetch: bool = False) -> list[RunInput]:
        """Compute the outputs from the inputs, in order; for one that is None, what the graph knows under its name.

        With ``fetch``, small outputs come as arrays, which takes less time than to read them later.

        Raises:
            DmlError: If a node is refused, by name.
        """
        signature = tuple(None if tensor is None else tensor.signature for tensor in inputs)
        slots = Slots(self._device, [np.zeros(0) if tensor is None else tensor.held for tensor in inputs])
        done: list[RunStage] = []
        size = 0
        outcomes: tuple[Outcome, ...] = ()
        stages: Stages | None = None
        while True:
            stage = self._stages.get((signature, outcomes))
            is_new = stage is None
            start = time.perf_counter()
            if stage is not None:
                stages = None
            elif stages is None:
                stages, stage = self._translated(inputs, outcomes)
            else:
                stage = stages.send(outcomes[-1])
            if is_new:
                self._weights.translating += time.perf_counter() - start
            done.append(stage)
            stage.run(slots, fetch)
            size += stage.memory
            if is_new:
                self._stages.limits = CacheLimits(max(MOST_STAGES, len(done)), max(STAGE_BYTES, size))
                self._stages.put((signature, outcomes), stage, stage.memory)
            if stage.action is None:
                self._last = tuple(done)
                return [
                    RunInput(output.shape, output.data_type, output.is_bool, output.take(slots))
                    for output in stage.outputs
                ]
            outcomes = (*outcomes, stage.action.run(slots))

    def first_stage(self, inputs: Sequence[RunInput | None]) -> RunStage:
        """Translate up to where elements decide how it goes on, or to the end; nothing is compiled or run."""
        return self._translated(inputs, ())[1]

    def _translated(self, inputs: Sequence[RunInput | None], outcomes: Sequence[Outcome]) -> tuple[Stages, RunStage]:
        """Translate up to the stage that follows outcomes that are known; compiles nothing."""
        graph = self._graph
        translation = Translation(
            self._device,
            graph.versions,
            self._weights,
            len(inputs),
            body_runner=self._body_runner,
            is_body=self._is_body,
            strict=self._strict,
        )
        values = dict(graph.known)
        for number, (name, tensor) in enumerate(zip(graph.inputs, inputs, strict=True)):
            if tensor is None:
                continue
            value = OnnxValue(tensor.shape, tensor.data_type, tensor.is_bool, slot=number)
            if value.is_empty:
                value = OnnxValue(tensor.shape, tensor.data_type, tensor.is_bool, tensor.held)  # type: ignore[arg-type]
            values[name] = value
        stages = translation.run(graph.nodes, values, graph.outputs)
        stage = next(stages)
        for outcome in outcomes:
            stage = stages.send(outcome)
        return stages, stage

    def _body_runner(self, node: NodeProto, graph: RunGraph) -> Runner:
        """Return what runs the body of a node, that of an earlier translation if the body knows the same."""
        known = tuple(sorted(_identity(name, value) for name, value in graph.known.items()))
        key = id(node), graph.inputs, known
        entry = self._bodies.get(key)
        if entry is None:
            entry = Runner(self._device, graph, self._weights, is_body=True, strict=self._strict), node
            self._bodies.put(key, entry, 1)
        return entry[0]


def _identity(name: str, value: OnnxValue | None) -> tuple[str, str]:
    """Return what is equal for equal values of a name: a weight's own identity, and what is known of others."""
    if value is None or value.array is None:
        return name, ""
    if value.is_weight and value.array.nbytes > _MOST_COMPARED:
        return name, str(id(value.array))
    return name, f"{value.array.dtype} {value.shape} {value.array.tobytes().hex()}"
