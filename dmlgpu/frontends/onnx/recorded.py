"""Runs of a graph for inputs that differ in sizes alone: it is translated once on symbols, other sizes follow.

The sizes that a model declares as symbolic are symbols (``compiler.sizes``); if it declares none, the first input
shapes of a kind (the same ranks and types) are translated as they are, and the sizes in which later ones differ are
symbols. A ``RecordedStage`` has the graph of a run with expressions for sizes, and guards that say for which sizes it
is right. For other input shapes of the kind, the expressions are evaluated; the stage equals that of a translation. If
the host reads elements, the integers among them are symbols of the stages that follow, such as the number of boxes that
were found. On devices whose kernels always have sizes in their source, no size is a symbol from the start.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias
from weakref import WeakValueDictionary

import numpy as np

from dmlgpu.common.cache import Cache
from dmlgpu.compiler.sizes.arithmetic import Recording
from dmlgpu.compiler.sizes.networks import separated, sized_network, with_integers
from dmlgpu.compiler.sizes.recordings import Recordings
from dmlgpu.frontends.onnx.placement import PlannedPlacement
from dmlgpu.frontends.onnx.segments import Outcome, RunInput, RunStage, Segment
from dmlgpu.frontends.onnx.translate import Stages

_NOWHERE: Final = np.zeros(0)
"""Stands for the elements of inputs, which a translation does not read."""

Inputs: TypeAlias = "Sequence[RunInput | None]"

DeclaredShapes: TypeAlias = "Sequence[Sequence[int | str | None] | None]"

Outcomes: TypeAlias = "tuple[Outcome, ...]"

Translate: TypeAlias = "Callable[[Inputs], Stages]"
"""Translates a graph for the shapes of inputs."""

RecordedStage: TypeAlias = "Callable[[Sequence[int]], RunStage | None]"
"""Returns a stage for values of symbols; None if it, or an earlier one, would be translated otherwise."""


def recorded_stage(stage: RunStage, recording: Recording) -> RecordedStage:
    """Return a stage of a run by the symbols of a recording, while they are recorded."""
    own, network, own_sizes = stage.segment, None, []
    if own is not None:
        network = sized_network(own.desc, recording)
        own.clears  # noqa: B018 - decided once, while symbols are recorded
        own_sizes = [output.sizes for output in own.outputs]
    needed_nodes = [symbol.node for symbol in recording.needed]
    replay = recording.replay((network, own_sizes, stage.outputs, stage.fills, list(recording.needed)))
    segments: WeakValueDictionary[tuple[int, ...], Segment] = WeakValueDictionary()

    def by_sizes(values: Sequence[int]) -> RunStage | None:
        results = replay(values)
        if results is None:
            return None
        network, sizes, outputs, fills, needed = results
        segment = None
        if own is not None:
            key = tuple(network.integers)  # a segment may not depend on all sizes and outcomes
            segment = segments.get(key)
            if segment is None:
                renamed = [output._renamed(each) for output, each in zip(own.outputs, sizes, strict=True)]
                segment = Segment(own.graph, renamed, own.feeds, own.weights, own.fills, own.store, network)
                segment.clears = own.clears
                segments[key] = segment
        return replace(
            stage,
            segment=segment,
            outputs=outputs,
            placed=tuple(
                replace(placed, segment=segment) if isinstance(placed, PlannedPlacement) and placed.segment else placed
                for placed in stage.placed
            ),
            fills=tuple(map(replace, fills)),  # each stage draws random numbers of its own
            sizes=dict(zip(needed_nodes, needed, strict=True)),
            is_recorded=True,
        )

    return by_sizes


class RunRecording:
    """The stages of runs, with symbols for sizes and for the integers of outcomes.

    Args:
        translated: Stages for symbols; none requested yet.
        recording: Recording of the symbols.

    Attributes:
        stages: The stages; more are added by the run that records them.
    """

    def __init__(self, translated: Stages, recording: Recording):
        self.stages: list[RecordedStage] = []
        self._structures: list[Hashable] = []
        self._translated, self._recording = translated, recording

    def record(self, outcomes: Outcomes) -> RunRecording:
        """Record the stages up to the one after outcomes, whose integers become symbols."""
        recording = self._recording
        while len(self.stages) <= len(outcomes):
            sent: Any = None
            if self.stages:
                outcome = outcomes[len(self.stages) - 1]
                structure, integers = separated(outcome)
                self._structures.append(structure)
                sent = with_integers(outcome, iter(recording.extend(integers)))
            with recording.active():
                self.stages.append(recorded_stage(self._translated.send(sent), recording))
        return self

    def stage(self, sizes: Sequence[int], outcomes: Outcomes) -> RunStage | None:
        """Return the stage after outcomes for values of the symbols of sizes; None if it is not recorded for these."""
        if len(outcomes) >= len(self.stages):
            return None
        values = [*sizes]
        for outcome, structure in zip(outcomes, self._structures, strict=False):
            own, integers = separated(outcome)
            if own != structure:
                return None
            values += integers
        return self.stages[len(outcomes)](values)


RunKinds: TypeAlias = "Cache[Hashable, Recordings[RunRecording]]"
"""Recordings of runs, by ranks and types of inputs."""


class StageSource:
    """The stages of a run, from recordings if possible.

    Args:
        translate: Translates for inputs.
        inputs: Inputs of the run.
        kinds: What was recorded of runs of the graph, by ranks and types of inputs.
        shapes: Declared shapes of the inputs, whose sizes that are not numbers are symbols from the start. None if
            sizes become symbols when they differ.
    """

    def __init__(self, translate: Translate, inputs: Inputs, kinds: RunKinds, shapes: DeclaredShapes | None):
        self._integers = [size for tensor in inputs if tensor is not None for size in tensor.shape]
        varying = () if shapes is None else declared_symbols(inputs, shapes)
        key = tuple(
            None if tensor is None else (len(tensor.shape), tensor.data_type, tensor.coded) for tensor in inputs
        )
        self._recordings = kinds.get_or_make(key, lambda: Recordings(self._integers, varying=varying), lambda _: 1)
        self._translate = translate
        self._shapes = [None if tensor is None else replace(tensor, held=_NOWHERE) for tensor in inputs]
        self._followed: RunRecording | None = None
        self._recorder: RunRecording | None = None
        self._sizes: Sequence[int] = ()

    def stage(self, outcomes: Outcomes) -> RunStage | None:
        """Return the stage after the outcomes of earlier stages; None if it is translated without recordings."""
        if 0 in self._integers:
            return None
        recordings, recorder, followed = self._recordings, self._recorder, self._followed
        if recorder is not None and followed is recorder:
            followed = recordings.attempt(lambda: recorder.record(outcomes))
        if followed is not None:
            stage = followed.stage(self._sizes, outcomes)
            if stage is not None:
                return stage

        def use(recorded: RunRecording, sizes: Sequence[int]) -> RunStage | None:
            stage = recorded.stage(sizes, outcomes)
            if stage is not None:
                self._followed, self._sizes = recorded, sizes
            return stage

        def record(sizes: Sequence[Any], recording: Recording) -> RunRecording:
            following = iter(sizes)
            shaped = [
                None if tensor is None else replace(tensor, shape=tuple(next(following) for _ in tensor.shape))
                for tensor in self._shapes
            ]
            self._recorder = RunRecording(self._translate(shaped), recording)
            return self._recorder.record(outcomes)

        is_continued = self._followed is not None
        return recordings.result(self._integers, use, record, is_varying=bool(outcomes), is_continued=is_continued)


def declared_symbols(inputs: Inputs, shapes: DeclaredShapes) -> list[Hashable]:
    """Return the name or place of each symbolic size of the inputs; None for a fixed size."""
    varying: list[Hashable] = []
    for index, (tensor, shape) in enumerate(zip(inputs, shapes, strict=False)):
        for axis, size in enumerate(() if tensor is None else shape or (0,) * len(tensor.shape)):
            is_name = isinstance(size, str) and size.isidentifier()
            varying.append(None if isinstance(size, int) else size if is_name else (index, axis))
    return varying
