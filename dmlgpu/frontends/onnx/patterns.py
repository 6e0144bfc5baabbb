"""Runs of a graph for inputs that differ in sizes alone: it is translated once on symbols, other sizes follow.

The first input shapes of a kind (the same ranks and types) are translated as they are. From the second shapes on, the
sizes in which they differ are symbols (``common.symbols``): a ``StagePattern`` has the graph of a run with expressions
for sizes, and guards that say for which sizes it is right. For other input shapes of the kind, the expressions are
evaluated; the stage equals that of a translation. If the host reads elements, the integers among them are symbols of
the stages that follow, such as the number of boxes that were found. On devices whose kernels never have sizes in their
source, these and the sizes that the model declares as symbolic are symbols from the start.
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
    """The segment of a pattern for some sizes.

    Args:
        pattern: The pattern.
        sized: The network.
        sizes: Sizes of each output.
        translated: Returns what a translation for these sizes gives.
    """

    def __init__(
        self,
        pattern: SegmentPattern,
        sized: SizedNetwork,
        sizes: Sequence[tuple[int, ...]],
        translated: Callable[[], RunStage],
    ):
        segment = pattern.segment
        self.feeds, self.weights, self.fills, self.store = segment.feeds, segment.weights, segment.fills, segment.store
        self._pattern, self._sized, self._sizes, self._translated = pattern, sized, sizes, translated
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
        return self._pattern.segment.node_count

    @property
    def compiled(self) -> CompiledOperator:
        if self._compiled is None:
            pattern = self._pattern
            try:
                self._compiled = pattern.segment.graph.device._compile_sized(pattern.desc, self._sized)
            except NotSupported:  # the graph names the failing node
                return super().compiled
            self.store.users.add(self._compiled)
        return self._compiled

    @property
    def clears(self) -> bool:
        return self._pattern.clears

    @cached_property
    def _written(self) -> list[tuple[int, DataType, Shape]]:
        return [
            (slot, output.data_type, sizes)
            for slot, output, sizes in zip(self.fills, self._pattern.segment.outputs, self._sizes, strict=True)
        ]


class SegmentPattern:
    """A segment with symbolic sizes. Created while they are recorded.

    Args:
        segment: The segment.
        recording: Recording of the sizes.

    Attributes:
        segment: The segment.
        desc: Description of its graph.
        network: Network of its graph.
        clears: As in ``Segment``.
        sizes: Sizes of each output.
    """

    def __init__(self, segment: Segment, recording: Recording):
        self.segment, self.clears = segment, segment.clears
        self.desc = segment.graph.desc(segment.all_outputs)
        self.network = RecordedNetwork(resolve(self.desc), recording)
        self.sizes = [output.sizes for output in segment.outputs]
        self._sized: WeakValueDictionary[tuple[int, ...], SizedSegment] = WeakValueDictionary()

    def sized(
        self, network: SizedNetwork, sizes: Sequence[tuple[int, ...]], translated: Callable[[], RunStage]
    ) -> SizedSegment:
        """Return the segment for some sizes; arguments are those of ``SizedSegment``. Equal integers give the same
        object, since a segment may not depend on all sizes and outcomes."""
        key = tuple(network.integers)
        segment = self._sized.get(key)
        if segment is None:
            segment = self._sized[key] = SizedSegment(self, network, sizes, translated)
        return segment


@dataclass(eq=False)
class SizedStage(RunStage):
    """A stage of a run, of a pattern for some sizes.

    Attributes:
        translated: Returns what a translation for these sizes gives.
    """

    translated: Callable[[], RunStage] = field(kw_only=True)

    def placements(self) -> Iterator[Placement]:
        return self.translated().placements()


class StagePattern:
    """A stage of a run with symbolic sizes. Created while they are recorded.

    Args:
        stage: The stage.
        recording: Recording of the sizes.
        known: Number of guards that earlier stages test.
    """

    def __init__(self, stage: RunStage, recording: Recording, known: int):
        self._stage = stage
        self._segment = segment = None if stage.segment is None else SegmentPattern(stage.segment, recording)
        self._needed = [symbol.node for symbol in recording.needed]
        network, sizes = (None, []) if segment is None else (segment.network.sized, segment.sizes)
        shapes = [output.shape for output in stage.outputs]
        self._replay = recording.replay((network, sizes, shapes, list(recording.needed)), known=known)

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
        translated = cache(translate)
        segment = None if self._segment is None else self._segment.sized(network, sizes, translated)
        outputs = zip(self._stage.outputs, shapes, strict=True)
        return SizedStage(
            segment,
            self._stage.action,
            outputs=tuple(replace(output, shape=shape) for output, shape in outputs),
            checks=self._stage.checks,
            fills=self._stage.fills,
            sizes=dict(zip(self._needed, needed, strict=True)),
            before=self._stage.before,
            written=self._stage.written,
            containers=self._stage.containers,
            translated=translated,
        )


class RunPattern:
    """The stages of runs, with symbols for sizes and for the integers of outcomes.

    Attributes:
        stages: Patterns of the stages; more are added by the run that records them.
        structures: Structures of the outcomes between them.
    """

    def __init__(self) -> None:
        self.stages: list[StagePattern] = []
        self.structures: list[Outcome] = []

    def values(self, sizes: Sequence[int], outcomes: Outcomes, known: int) -> list[int] | None:
        """Return the values of the symbols of the stage after outcomes; None if an earlier stage is not valid.

        Args:
            sizes: Values of the symbols of sizes.
            outcomes: The outcomes.
            known: Number of stages that are known to be valid.
        """
        if len(outcomes) >= len(self.stages) or [*map(_structure, outcomes)] != self.structures[: len(outcomes)]:
            return None
        values = [*sizes]
        for index, outcome in enumerate(outcomes):
            if index >= known and not self.stages[index].fits(values):
                return None
            values += _integers(outcome)
        return values


class StageRecorder:
    """Adds stages to a pattern while a run takes place.

    Args:
        translated: Stages for symbolic sizes; none requested yet.
        recording: Recording of the symbols.
    """

    def __init__(self, translated: Stages, recording: Recording):
        self.pattern = RunPattern()
        self._translated, self._recording = translated, recording

    def record(self, outcomes: Outcomes) -> RunPattern:
        """Record the stages up to the one after outcomes, whose integers become symbols; return the pattern."""
        pattern, recording = self.pattern, self._recording
        while len(pattern.stages) <= len(outcomes):
            sent: Any = None
            if pattern.stages:
                outcome = outcomes[len(pattern.stages) - 1]
                pattern.structures.append(_structure(outcome))
                sent = _with_integers(pattern.structures[-1], iter(recording.extend([*_integers(outcome)])))
            guard_count = len(recording.guards)
            with recording.active():
                pattern.stages.append(StagePattern(self._translated.send(sent), recording, guard_count))
        return pattern


class RunKind:
    """The runs of a graph on inputs of the same ranks and types.

    Args:
        sizes: Sizes of all inputs of the first run, in order.
        translate: Translates for inputs.
        varying: Names or places of the sizes that are symbols from the start (``Variation``); None if no run is
            recorded at first.

    Attributes:
        patterns: Patterns of the runs.
        translate: As given.
    """

    def __init__(self, sizes: Sequence[int], translate: Translate, varying: Sequence[Hashable] | None):
        self.patterns: Recordings[RunPattern] = Recordings(sizes, varying=varying or ())
        self.translate = translate
        self._seen: Cache[Hashable, bool] | None = Cache(_STRUCTURES) if varying is None else None

    def is_varying(self, outcomes: Outcomes) -> bool:
        """Return whether earlier runs had outcomes that differ from these in integers alone."""
        if self._seen is None or not outcomes:
            return bool(outcomes)
        structure = _structure(outcomes)
        is_known = self._seen.get(structure) is not None
        self._seen.put(structure, True, 1)
        return is_known


class StageSource:
    """The stages of a run, from patterns if possible.

    Args:
        kind: Its kind.
        inputs: Its inputs.
    """

    def __init__(self, kind: RunKind, inputs: Inputs):
        self._kind = kind
        self._shapes = [None if tensor is None else replace(tensor, held=_NOWHERE) for tensor in inputs]
        self._pattern: RunPattern | None = None
        self._sizes: Sequence[int] = ()
        self._known = 0
        self._recorder: StageRecorder | None = None

    def stage(self, outcomes: Outcomes) -> RunStage | None:
        """Return the stage after the outcomes of earlier stages; None if it is translated without patterns."""
        patterns, recorder, pattern = self._kind.patterns, self._recorder, self._pattern
        if recorder is not None and pattern is recorder.pattern:
            pattern = patterns.attempt(lambda: recorder.record(outcomes))
        if pattern is not None:
            stage = self._followed(pattern, self._sizes, outcomes, self._known)
            if stage is not None:
                return stage
        sizes = [size for tensor in self._shapes if tensor is not None for size in tensor.shape]
        is_continued = self._pattern is not None
        return patterns.result(
            sizes,
            lambda known, values: self._followed(known, values, outcomes),
            lambda symbolic, recording: self._recorded(symbolic, recording, outcomes),
            is_varying=self._kind.is_varying(outcomes) or is_continued,
            is_continued=is_continued,
        )

    def _followed(
        self, pattern: RunPattern, sizes: Sequence[int], outcomes: Outcomes, known: int = 0
    ) -> RunStage | None:
        """Return the stage of a pattern after outcomes, given the number of stages known to be valid; None if it is not
        valid."""
        values = pattern.values(sizes, outcomes, known)
        if values is None:
            return None
        kind, shapes = self._kind, self._shapes
        stage = pattern.stages[len(outcomes)].stage(values, lambda: stage_after(kind.translate(shapes), outcomes))
        if stage is not None:
            self._pattern, self._sizes, self._known = pattern, sizes, len(outcomes) + 1
        return stage

    def _recorded(self, sizes: Sequence[Any], recording: Recording, outcomes: Outcomes) -> RunPattern:
        """Record a new pattern with the stages up to the one after outcomes; this run adds the later ones."""
        symbolic = iter(sizes)
        shaped = [
            None if tensor is None else replace(tensor, shape=tuple(next(symbolic) for _ in tensor.shape))
            for tensor in self._shapes
        ]
        self._recorder = StageRecorder(self._kind.translate(shaped), recording)
        return self._recorder.record(outcomes)


class PatternCache:
    """The patterns of all runs of a graph. Thread-safe.

    Args:
        translate: Translates the graph.
        shapes: Declared shapes of the inputs. Sizes that are not numbers are symbols from the start, like the integers
            that the host reads. None if integers become symbols when they differ.
    """

    def __init__(self, translate: Translate, shapes: DeclaredShapes | None = None):
        self._translate, self._shapes, self._lock = translate, shapes, threading.Lock()
        self._kinds: Cache[Hashable, RunKind] = Cache(_KINDS)

    def source_of(self, inputs: Inputs) -> StageSource | None:
        """Return the source of the stages of a run on inputs; None if all are translated without patterns."""
        sizes = [size for tensor in inputs if tensor is not None for size in tensor.shape]
        if 0 in sizes:
            return None
        key = tuple(
            None if tensor is None else (len(tensor.shape), tensor.data_type, tensor.coded) for tensor in inputs
        )
        with self._lock:
            kind = self._kinds.get(key)
            if kind is None:
                varying = None if self._shapes is None else declared_symbols(inputs, self._shapes)
                kind = RunKind(sizes, self._translate, varying)
                self._kinds.put(key, kind, 1)
        return StageSource(kind, inputs)


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
