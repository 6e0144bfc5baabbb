"""Runs a graph for inputs of any shapes; compiled graphs are cached."""

from __future__ import annotations

import contextlib
import time
import weakref
from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Any, TypeAlias

import numpy as np
from onnx import NodeProto

from dmlgpu.catalog.enums import DataType
from dmlgpu.common.cache import Cache, CacheLimits
from dmlgpu.frontends.onnx.model import RunGraph
from dmlgpu.frontends.onnx.placement import Placement
from dmlgpu.frontends.onnx.recorded import RunKinds, StageSource
from dmlgpu.frontends.onnx.segments import Outcome, RunInput, RunOutput, RunStage, Slots
from dmlgpu.frontends.onnx.translate import Stages, Translation
from dmlgpu.frontends.onnx.values import OnnxValue, Shape
from dmlgpu.frontends.onnx.weights import Weights
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.specialization import Specialize

MAX_STAGES = 256
"""Maximum number of cached stages of a graph, over all shapes (LRU)."""

STAGE_BYTES = 256 << 20
"""Maximum estimated bytes of cached stages: pipelines that were made for them, constants, kernels. Stages of
``KEPT_RUNS`` runs are kept even if they are larger. Laid-out weights do not count, since all shapes share them."""

KEPT_RUNS = 4
"""Number of different shapes whose stages are kept regardless of their size."""

MAX_KINDS = 32
"""Maximum number of ranks and types of inputs of which runs are recorded."""

MAX_BODIES = 64
"""Maximum number of cached loop bodies."""

_MAX_COMPARED = 4096
"""Maximum size of weights that are compared by elements."""

StageKey: TypeAlias = "tuple[tuple[tuple[Shape, DataType, str] | None, ...], tuple[Outcome, ...]]"


class SlotMismatchError(Exception):
    """A stage reads slots that earlier stages of the run did not fill, since other values were known on the host."""


class Runner:
    """Runs a graph.

    Args:
        device: Device to run on.
        graph: Main graph of a model, or body of a loop.
        weights: Constants of the model.
        is_body: Whether it is the body of a loop.
        strict: Whether to reject nodes that need host decisions.

    Attributes:
        weights: As given.
        stages: Cached stages of earlier runs.
        recorded: What was recorded of runs, by ranks and types of inputs; None translates every run.
        last_stages: Stages of the last run.
    """

    def __init__(
        self, device: Device, graph: RunGraph, weights: Weights, *, is_body: bool = False, strict: bool = False
    ):
        self._device, self._graph, self.weights = device, graph, weights
        self._is_body, self._strict = is_body, strict
        self.stages: Cache[StageKey, RunStage] = Cache(CacheLimits(MAX_STAGES, STAGE_BYTES))
        self._bodies: Cache[Hashable, tuple[Runner, NodeProto]] = Cache(CacheLimits(MAX_BODIES, MAX_BODIES))
        # A model that declares sizes as symbolic will meet others: the first run compiles kernels that these share.
        policy = device._state.backend.specializer.policy
        varies = any(not isinstance(size, int) for shape in graph.shapes for size in shape or (None,))
        shapes = graph.shapes if policy is Specialize.NEVER or (policy is Specialize.AUTO and varies) else ()
        self._declared = shapes or None
        self.recorded: RunKinds | None = Cache(CacheLimits(MAX_KINDS, MAX_KINDS))
        self.last_stages: tuple[RunStage, ...] = ()

    @property
    def placement(self) -> tuple[Placement, ...]:
        """Placement of each node in the last run; empty before the first."""
        return tuple(placement for stage in self.last_stages for placement in stage.placements())

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the inputs, elements of sequences among them."""
        return self._graph.inputs

    @property
    def device(self) -> Device:
        """Device that it runs on."""
        return self._device

    @property
    def only_stage(self) -> RunStage | None:
        """The stage of the last run, if it had only one."""
        return self.last_stages[0] if len(self.last_stages) == 1 else None

    def run(
        self, inputs: Sequence[RunInput | None], fetch: bool = False, donated: Collection[int] = ()
    ) -> list[RunInput]:
        """Compute the outputs, which are tensors, from the inputs, in order; None stands for the known value of its
        name.

        With ``fetch``, small outputs are returned as arrays, which is faster than reading them later. Outputs may be
        computed in the memory of the inputs in ``donated``, whose elements are lost then.

        Raises:
            DmlError: If a node is not supported; the message names it.
        """
        results: list[Any] = self.run_containers(inputs, fetch, donated)
        return results

    def run_containers(
        self, inputs: Sequence[RunInput | None], fetch: bool = False, donated: Collection[int] = ()
    ) -> list[RunOutput]:
        """Compute as ``run`` outputs that may be sequences and optionals, too."""
        for uses_cache in (True, False):
            with contextlib.suppress(SlotMismatchError):
                return self.attempt(inputs, fetch, donated, uses_cache=uses_cache)
        return self.attempt(inputs, fetch, donated, uses_cache=False, uses_recorded=False)

    def attempt(
        self,
        inputs: Sequence[RunInput | None],
        fetch: bool,
        donated: Collection[int],
        *,
        uses_cache: bool,
        uses_recorded: bool = True,
    ) -> list[RunOutput]:
        """Compute the outputs by cached stages, recorded ones, and translation.

        Raises:
            SlotMismatchError: If a stage does not continue those before it. Inputs are as they were.
        """
        signature = tuple(None if tensor is None else tensor.signature for tensor in inputs)
        slots = Slots(self._device, [np.zeros(0) if tensor is None else tensor.held for tensor in inputs])
        done: list[RunStage] = []
        size = 0
        outcomes: tuple[Outcome, ...] = ()
        stages: Stages | None = None
        source: StageSource | None = None
        while True:
            stage = self.stages.get((signature, outcomes)) if uses_cache else None
            is_new = stage is None
            start = time.perf_counter()
            if stage is None and uses_recorded and self.recorded is not None:
                source = source or StageSource(_weakly(self.translate), inputs, self.recorded, self._declared)
                stage = source.stage(outcomes)
            if stage is not None:
                stages = None
            elif stages is None:
                stages = self.translate(inputs)
                stage = next(stages)
                for outcome in outcomes:
                    stage = stages.send(outcome)
            else:
                stage = stages.send(outcomes[-1])
            if is_new:
                self.weights.translating += time.perf_counter() - start
            if stage.before != tuple(earlier.written for earlier in done):
                raise SlotMismatchError
            done.append(stage)
            stage.run(slots, fetch, donated)
            size += stage.memory
            if is_new:
                size_limit = self.stages.limits.size
                self.stages.limits = CacheLimits(max(MAX_STAGES, len(done)), max(size_limit, KEPT_RUNS * size))
                if not uses_cache:
                    self.stages.discard((signature, outcomes))
                self.stages.put((signature, outcomes), stage, stage.memory)
            if stage.action is None:
                self.last_stages = tuple(done)
                tensors = (
                    RunInput(output.shape, output.data_type, output.coded, output.take(slots))
                    for output in stage.outputs
                )
                return list(stage.grouped(tensors))
            outcomes = (*outcomes, stage.action.run(slots))

    def first_stage(self, inputs: Sequence[RunInput | None]) -> RunStage:
        """Translate until a host decision or the end, without compiling."""
        return next(self.translate(inputs))

    def translate(self, inputs: Sequence[RunInput | None]) -> Stages:
        """Return the stages of a translation, which compiles nothing."""
        graph = self._graph
        translation = Translation(
            self._device,
            graph.versions,
            self.weights,
            len(inputs),
            body_runner=_weakly(self._body_runner),
            is_body=self._is_body,
            strict=self._strict,
        )
        values = dict(graph.known)
        for index, (name, tensor) in enumerate(zip(graph.inputs, inputs, strict=True)):
            if tensor is None:
                continue
            value = OnnxValue(tensor.shape, tensor.data_type, tensor.coded, slot=index)
            if value.is_empty:
                value = OnnxValue(tensor.shape, tensor.data_type, tensor.coded, tensor.held)  # type: ignore[arg-type]
            values[name] = value
        return translation.run(graph.nodes, values, graph.outputs)

    def _body_runner(self, node: NodeProto, graph: RunGraph) -> Runner:
        """Return the runner of a body, reusing that of an earlier translation with the same known values."""
        known = tuple(sorted(_identity(name, value) for name, value in graph.known.items()))
        key = id(node), graph.inputs, known
        entry = self._bodies.get(key)
        if entry is None:
            entry = Runner(self._device, graph, self.weights, is_body=True, strict=self._strict), node
            self._bodies.put(key, entry, 1)
        return entry[0]


def _weakly(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method with a weak reference to its runner: a cycle would keep the memory of a dropped session."""
    reference = weakref.WeakMethod(method)

    def call(*arguments: Any) -> Any:
        bound = reference()
        assert bound is not None
        return bound(*arguments)

    return call


def _identity(name: str, value: OnnxValue | None) -> tuple[str, str]:
    """Return a key of a known value: identity of a weight, else its content."""
    if value is None or value.array is None:
        return name, ""
    if value.is_weight and value.array.nbytes > _MAX_COMPARED:
        return name, str(id(value.array))
    return name, f"{value.array.dtype} {value.shape} {value.array.tobytes().hex()}"
