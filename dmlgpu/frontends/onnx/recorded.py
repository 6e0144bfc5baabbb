"""Runs of a graph for inputs that differ in sizes alone: it is translated once on symbols, other sizes follow.

The sizes that a model declares as symbolic are symbols (``compiler.sizes``); if it declares none, the first input
shapes of a kind (the same ranks and types) are translated as they are, and the sizes in which later ones differ are
symbols. A ``StageRecording`` has the graph of a run with expressions for sizes, and guards that say for which sizes it
is right. For other input shapes of the kind, the expressions are evaluated; the stage equals that of a translation. If
the host reads elements, the integers among them are symbols of the stages that follow, such as the number of boxes that
were found. On devices whose kernels always have sizes in their source, no size is a symbol from the start.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any, Final, TypeAlias
from weakref import WeakValueDictionary

import numpy as np

from dmlgpu.catalog.enums import DataType
from dmlgpu.common.cache import Cache, CacheLimits
from dmlgpu.common.errors import NotSupported
from dmlgpu.compiler.graph.resolve import resolve
from dmlgpu.compiler.sizes import Recording
from dmlgpu.compiler.sizes.networks import RecordedNetwork, SizedNetwork
from dmlgpu.compiler.sizes.recordings import Recordings
from dmlgpu.frontends.onnx.placement import Placement
from dmlgpu.frontends.onnx.segments import Outcome, RunInput, RunStage, Segment
from dmlgpu.frontends.onnx.translate import Stages
from dmlgpu.frontends.onnx.values import Shape
from dmlgpu.runtime.operator import CompiledOperator
from dmlgpu.tensors.graphs.graph import Graph
from dmlgpu.tensors.tensor import Tensor

_KINDS: Final = CacheLimits(entries=32, size=32)

_STRUCTURES: Final = CacheLimits(entries=64, size=64)

_NOWHERE: Final = np.zeros(0)
"""Stands for the elements of inputs, which a translation does not read."""

Inputs: TypeAlias = "Sequence[RunInput | None]"

DeclaredShapes: TypeAlias = "Sequence[Sequence[int | str | None] | None]"

Outcomes: TypeAlias = "tuple[Outcome, ...]"

Translate: TypeAlias = "Callable[[Inputs], Stages]"
"""Translates a graph for the shapes of inputs."""

_INTEGER: Final = object()
"""Stands for an integer in the structure of outcomes."""


class SizedSegment(Segment):
    """The segment of a recorded stage for some sizes.

    Args:
        recorded: The stage.
        network: The network.
        sizes: Sizes of each output.
        translated: Returns the stage that a translation for these sizes gives.
    """

    def __init__(
        self,
        recorded: StageRecording,
        network: SizedNetwork,
        sizes: Sequence[tuple[int, ...]],
        translated: Callable[[], RunStage],
    ):
        segment = recorded.segment
        self.feeds, self.weights, self.fills, self.store = segment.feeds, segment.weights, segment.fills, segment.store
        self._recorded, self._network, self._sizes, self._translated = recorded, network, sizes, translated
        self._prepared = self._compiled = None

    @cached_property
    def graph(self) -> Graph:  # type: ignore[override]
        """The graph, translated when it is first read: runs do not need it."""
        return self._translation.graph

    @cached_property
    def outputs(self) -> list[Tensor]:  # type: ignore[override]
        """Its outputs, as ``graph``."""
        return self._translation.outputs

    @property
    def _translation(self) -> Segment:
        segment = self._translated().segment
        assert segment is not None
        return segment

    @property
    def node_count(self) -> int:
        return self._recorded.segment.node_count

    @property
    def compiled(self) -> CompiledOperator:
        if self._compiled is None:
            recorded = self._recorded
            try:
                self._compiled = recorded.segment.graph.device._compile_sized(recorded.desc, self._network)
            except NotSupported:  # the graph names the failing node
                return super().compiled
            self.store.users.add(self._compiled)
        return self._compiled

    @property
    def clears(self) -> bool:
        return self._recorded.clears

    @cached_property
    def _written(self) -> list[tuple[int, DataType, Shape]]:
        outputs = zip(self.fills, self._recorded.segment.outputs, self._sizes, strict=True)
        return [(slot, output.data_type, sizes) for slot, output, sizes in outputs]


@dataclass(eq=False)
class SizedStage(RunStage):
    """A recorded stage for some sizes.

    Attributes:
        translated: Returns the stage that a translation for these sizes gives.
    """

    translated: Callable[[], RunStage] = field(kw_only=True)

    def placements(self) -> Iterator[Placement]:
        return self.translated().placements()


class StageRecording:
    """A stage of a run with symbols for sizes. Created while they are recorded.

    Args:
        stage: The stage.
        recording: Recording of the sizes.
        known: Number of guards that earlier stages test.

    Attributes:
        segment: Segment of the stage; None if it computes nothing.
        desc: Description of the segment's graph.
        clears: As in ``Segment``.
    """

    def __init__(self, stage: RunStage, recording: Recording, known: int):
        self._stage, network, sizes = stage, None, []
        self.segment: Any = stage.segment
        if stage.segment is not None:
            self.clears, self.desc = stage.segment.clears, stage.segment.graph.desc(stage.segment.all_outputs)
            network = RecordedNetwork(resolve(self.desc), recording).sized
            sizes = [output.sizes for output in stage.segment.outputs]
        self._needed = [symbol.node for symbol in recording.needed]
        shapes = [output.shape for output in stage.outputs]
        self._replay = recording.replay((network, sizes, shapes, list(recording.needed)), known=known)
        self._segments: WeakValueDictionary[tuple[int, ...], SizedSegment] = WeakValueDictionary()

    def fits(self, values: Sequence[int]) -> bool:
        """Return whether the stage is valid for values of the symbols, given that earlier stages are."""
        return self._replay(values) is not None

    def stage(self, values: Sequence[int], translate: Callable[[], RunStage]) -> RunStage | None:
        """Return the stage for values of the symbols; None if a translation would differ.

        Args:
            values: The values.
            translate: Returns the translation for these sizes.
        """
        results = self._replay(values)
        if results is None:
            return None
        network, sizes, shapes, needed = results
        stage, translated, segment = self._stage, cache(translate), None
        known = dict(zip(self._needed, needed, strict=True))
        if network is not None:
            # A segment may not depend on all sizes and outcomes.
            key = tuple(network.integers)
            segment = self._segments.get(key) or SizedSegment(self, network, sizes, translated)
            self._segments[key] = segment
        return SizedStage(
            segment,
            stage.action,
            outputs=tuple(replace(output, shape=shape) for output, shape in zip(stage.outputs, shapes, strict=True)),
            checks=stage.checks,
            fills=tuple(fill.resolved(known) for fill in stage.fills),
            sizes=known,
            before=stage.before,
            written=stage.written,
            containers=stage.containers,
            translated=translated,
        )


class RunRecording:
    """The stages of runs, with symbols for sizes and for the integers of outcomes.

    Args:
        translated: Stages for symbols; none requested yet.
        recording: Recording of the symbols.

    Attributes:
        stages: The stages; more are added by the run that records them.
    """

    def __init__(self, translated: Stages, recording: Recording):
        self.stages: list[StageRecording] = []
        self._structures: list[Outcome] = []
        self._translated, self._recording = translated, recording

    def record(self, outcomes: Outcomes) -> RunRecording:
        """Record the stages up to the one after outcomes, whose integers become symbols."""
        recording = self._recording
        while len(self.stages) <= len(outcomes):
            sent: Any = None
            if self.stages:
                outcome = outcomes[len(self.stages) - 1]
                self._structures.append(_structure(outcome))
                sent = _with_integers(self._structures[-1], iter(recording.extend([*_integers(outcome)])))
            guard_count = len(recording.guards)
            with recording.active():
                self.stages.append(StageRecording(self._translated.send(sent), recording, guard_count))
        return self

    def values(self, sizes: Sequence[int], outcomes: Outcomes, known: int) -> list[int] | None:
        """Return the values of the symbols of the stage after outcomes; None if an earlier stage is not valid.

        Args:
            sizes: Values of the symbols of sizes.
            outcomes: The outcomes.
            known: Number of stages that are known to be valid.
        """
        if len(outcomes) >= len(self.stages) or [*map(_structure, outcomes)] != self._structures[: len(outcomes)]:
            return None
        values = [*sizes]
        for index, outcome in enumerate(outcomes):
            if index >= known and not self.stages[index].fits(values):
                return None
            values += _integers(outcome)
        return values


class StageSource:
    """The stages of a run, from recordings if possible.

    Args:
        translate: Translates for inputs.
        inputs: Inputs of the run.
        recordings: Those of runs on inputs of the same ranks and types.
        seen: Structures of outcomes of these runs; None if all integers of outcomes are symbols.
    """

    def __init__(
        self,
        translate: Translate,
        inputs: Inputs,
        recordings: Recordings[RunRecording],
        seen: Cache[Hashable, bool] | None,
    ):
        self._translate, self._recordings, self._seen = translate, recordings, seen
        self._shapes = [None if tensor is None else replace(tensor, held=_NOWHERE) for tensor in inputs]
        self._followed: RunRecording | None = None
        self._recorder: RunRecording | None = None
        self._sizes: Sequence[int] = ()
        self._known = 0

    def stage(self, outcomes: Outcomes) -> RunStage | None:
        """Return the stage after the outcomes of earlier stages; None if it is translated without recordings."""
        recordings, recorder, followed = self._recordings, self._recorder, self._followed
        if recorder is not None and followed is recorder:
            followed = recordings.attempt(lambda: recorder.record(outcomes))
        if followed is not None:
            stage = self._stage_of(followed, self._sizes, outcomes, self._known)
            if stage is not None:
                return stage
        is_continued = self._followed is not None
        return recordings.result(
            _sizes_of(self._shapes),
            lambda known, values: self._stage_of(known, values, outcomes),
            lambda sizes, recording: self._recorded(sizes, recording, outcomes),
            is_varying=is_continued or self._varies(outcomes),
            is_continued=is_continued,
        )

    def _varies(self, outcomes: Outcomes) -> bool:
        """Return whether earlier runs had outcomes that differ from these in integers alone."""
        if self._seen is None or not outcomes:
            return bool(outcomes)
        structure = _structure(outcomes)
        is_known = self._seen.get(structure) is not None
        self._seen.put(structure, True, 1)
        return is_known

    def _stage_of(
        self, recorded: RunRecording, sizes: Sequence[int], outcomes: Outcomes, known: int = 0
    ) -> RunStage | None:
        """Return the stage after outcomes, given the number of stages known to be valid; None if it is not valid."""
        values = recorded.values(sizes, outcomes, known)
        if values is None:
            return None
        translate, shapes = self._translate, self._shapes
        stage = recorded.stages[len(outcomes)].stage(values, lambda: stage_after(translate(shapes), outcomes))
        if stage is not None:
            self._followed, self._sizes, self._known = recorded, sizes, len(outcomes) + 1
        return stage

    def _recorded(self, sizes: Sequence[Any], recording: Recording, outcomes: Outcomes) -> RunRecording:
        """Record a run with the stages up to the one after outcomes; it adds the later ones."""
        following = iter(sizes)
        shaped = [
            None if tensor is None else replace(tensor, shape=tuple(next(following) for _ in tensor.shape))
            for tensor in self._shapes
        ]
        self._recorder = RunRecording(self._translate(shaped), recording)
        return self._recorder.record(outcomes)


class RecordedRuns:
    """What was recorded of the runs of a graph. Thread-safe.

    Args:
        translate: Translates the graph.
        shapes: Declared shapes of the inputs. Sizes that are not numbers are symbols from the start, like the integers
            that the host reads. None if integers become symbols when they differ.
    """

    def __init__(self, translate: Translate, shapes: DeclaredShapes | None = None):
        self._translate, self._shapes, self._lock = translate, shapes, threading.Lock()
        self._kinds: Cache[Hashable, tuple[Recordings[RunRecording], Cache[Hashable, bool] | None]] = Cache(_KINDS)

    def source_of(self, inputs: Inputs) -> StageSource | None:
        """Return the source of the stages of a run on inputs; None if all are translated without recordings."""
        sizes = _sizes_of(inputs)
        if 0 in sizes:
            return None
        key = tuple(
            None if tensor is None else (len(tensor.shape), tensor.data_type, tensor.coded) for tensor in inputs
        )
        with self._lock:
            kind = self._kinds.get(key)
            if kind is None:
                varying = () if self._shapes is None else declared_symbols(inputs, self._shapes)
                seen: Cache[Hashable, bool] | None = Cache(_STRUCTURES) if self._shapes is None else None
                kind = Recordings(sizes, varying=varying), seen
                self._kinds.put(key, kind, 1)
        return StageSource(self._translate, inputs, *kind)


def _sizes_of(inputs: Inputs) -> list[int]:
    """Return the sizes of all inputs, in order."""
    return [size for tensor in inputs if tensor is not None for size in tensor.shape]


def stage_after(translated: Stages, outcomes: Outcomes) -> RunStage:
    """Return the stage after outcomes of a translation that just began."""
    stage = next(translated)
    for outcome in outcomes:
        stage = translated.send(outcome)
    return stage


def _integers(outcome: Outcome) -> Iterator[int]:
    """Yield the integers of an outcome."""
    if type(outcome) is int:
        yield outcome
    elif isinstance(outcome, tuple):
        for part in outcome:
            yield from _integers(part)


def _structure(outcome: Any) -> Any:
    """Return an outcome without its integers."""
    if isinstance(outcome, tuple):
        return tuple(map(_structure, outcome))
    return _INTEGER if type(outcome) is int else outcome


def _with_integers(structure: Any, integers: Iterator[Any]) -> Any:
    """Return the outcome of a structure and integers."""
    if isinstance(structure, tuple):
        return tuple(_with_integers(part, integers) for part in structure)
    return next(integers) if structure is _INTEGER else structure


def declared_symbols(inputs: Inputs, shapes: DeclaredShapes) -> list[Hashable]:
    """Return the name or place of each symbolic size of the inputs; None for a fixed size."""
    varying: list[Hashable] = []
    for index, (tensor, shape) in enumerate(zip(inputs, shapes, strict=False)):
        for axis, size in enumerate(() if tensor is None else shape or (0,) * len(tensor.shape)):
            is_name = isinstance(size, str) and size.isidentifier()
            varying.append(None if isinstance(size, int) else size if is_name else (index, axis))
    return varying
