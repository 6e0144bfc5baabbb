"""Runs of a graph for inputs that differ in sizes alone: it is translated once on symbols, other sizes follow.

The first input shapes of a kind (the same ranks and types) are translated as they are. From the second ones on, the
sizes in which they differ are symbols (``common.symbols``): a ``StagePattern`` has the graph of a run with expressions
for sizes, and guards that say for which sizes it is right. For other input shapes of the kind, the expressions are
evaluated; the stage equals that of a translation. Runs in which the host reads elements are translated for each shape.
On devices whose kernels never have sizes in their source, sizes that the model declares as symbolic are symbols from
the start.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any, Final, TypeAlias

import numpy as np

from dmlgpu.catalog.enums import DataType
from dmlgpu.common import symbols
from dmlgpu.common.cache import Cache, CacheLimits
from dmlgpu.common.errors import NotSupported
from dmlgpu.common.symbols import Recording
from dmlgpu.common.variation import NoPattern, Patterns
from dmlgpu.compiler.graph.structures import SizedNetwork, SymbolicNetwork
from dmlgpu.frontends.onnx.placement import Placement
from dmlgpu.frontends.onnx.segments import RunInput, RunStage, Segment
from dmlgpu.frontends.onnx.values import Shape
from dmlgpu.runtime.operator import CompiledOperator
from dmlgpu.tensors.graphs.graph import Graph
from dmlgpu.tensors.tensor import Tensor

_KINDS: Final = CacheLimits(entries=32, size=32)

_NOWHERE: Final = np.zeros(0)
"""Stands for the elements of inputs, which a translation does not read."""

Inputs: TypeAlias = "Sequence[RunInput | None]"

DeclaredShapes: TypeAlias = "Sequence[Sequence[int | str | None] | None]"

Translate: TypeAlias = "Callable[[Inputs], RunStage]"
"""Translates a graph up to its first stage."""


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
                self._compiled = pattern.segment.graph.device._compile_sized(pattern.network.desc, self._sized)
            except NotSupported:  # the graph says which node is the cause
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

    Attributes:
        segment: The segment.
        network: Network of its graph.
        clears: As in ``Segment``.
        sizes: Sizes of each output.
    """

    def __init__(self, segment: Segment):
        self.segment, self.clears = segment, segment.clears
        self.network = SymbolicNetwork(segment.graph.desc(segment.all_outputs))
        self.sizes = [output.sizes for output in segment.outputs]

    def sized(
        self, integers: Sequence[int], sizes: Sequence[tuple[int, ...]], translated: Callable[[], RunStage]
    ) -> SizedSegment:
        """Return the segment for some sizes; arguments are those of ``SizedSegment``."""
        return SizedSegment(self, self.network.sized(integers), sizes, translated)


@dataclass(eq=False)
class SizedStage(RunStage):
    """The only stage of a run, of a pattern for some sizes.

    Attributes:
        translated: Returns what a translation for these sizes gives.
    """

    translated: Callable[[], RunStage] = field(kw_only=True)

    def placements(self) -> Iterator[Placement]:
        return self.translated().placements()


class StagePattern:
    """The only stage of a run with symbolic sizes. Created while they are recorded.

    Args:
        stage: The stage.
        recording: Of the sizes.

    Raises:
        NoPattern: If the host reads elements between stages.
    """

    def __init__(self, stage: RunStage, recording: Recording):
        if stage.action is not None:
            raise NoPattern("a run has several stages")
        self._stage = stage
        self._segment = segment = None if stage.segment is None else SegmentPattern(stage.segment)
        integers, sizes = ([], []) if segment is None else (segment.network.integers, segment.sizes)
        numbers: list[Any] = []
        self._parts = []
        for part in (integers, *(output.shape for output in stage.outputs), *sizes, recording.needed):
            self._parts.append(slice(len(numbers), len(numbers) + len(part)))
            numbers += part
        self._needed = [number.number for number in recording.needed]
        self._replay = recording.replay(numbers)

    def stage(self, values: Sequence[int], translate: Callable[[], RunStage]) -> RunStage | None:
        """Return the stage for values of the symbols; None if a translation gives another one.

        Args:
            values: The values.
            translate: Translates for these sizes.
        """
        numbers = self._replay(values)
        if numbers is None:
            return None
        integers, *parts, needed = [numbers[part] for part in self._parts]
        count, translated = len(self._stage.outputs), cache(translate)
        segment = None if self._segment is None else self._segment.sized(integers, parts[count:], translated)
        outputs = zip(self._stage.outputs, parts, strict=False)
        return SizedStage(
            segment,
            outputs=tuple(replace(output, shape=shape) for output, shape in outputs),
            checks=self._stage.checks,
            fills=self._stage.fills,
            sizes=dict(zip(self._needed, needed, strict=True)),
            translated=translated,
        )


class RunKind:
    """The runs of a graph on inputs of the same ranks and types.

    Args:
        sizes: Sizes of all inputs of the first run, in order.
        translate: Translates for inputs.
        varying: Which of the sizes are symbols from the start (``Variation``).
    """

    def __init__(self, sizes: Sequence[int], translate: Translate, varying: Sequence[Hashable]):
        self._patterns: Patterns[StagePattern] = Patterns(sizes, varying=varying)
        self._translate = translate

    def stage(self, inputs: Inputs, sizes: Sequence[int]) -> RunStage | None:
        """Return the stage of a run; None if it is to be translated as it is."""
        shapes = [None if tensor is None else replace(tensor, held=_NOWHERE) for tensor in inputs]

        def translate() -> RunStage:
            return self._translate(shapes)

        def record(sizes: Sequence[Any], recording: Recording) -> StagePattern:
            symbolic = iter(sizes)
            shaped = [
                None if tensor is None else replace(tensor, shape=tuple(next(symbolic) for _ in tensor.shape))
                for tensor in shapes
            ]
            with recording.active():
                return StagePattern(self._translate(shaped), recording)

        return self._patterns.result(sizes, lambda pattern, values: pattern.stage(values, translate), record)


class RunPatterns:
    """The patterns of all runs of a graph. Thread-safe.

    Args:
        translate: Translates the graph for inputs, up to its first stage.
        shapes: Of the inputs, as declared: sizes that are no numbers are symbols from the start. Empty if all become
            symbols when they differ.
    """

    def __init__(self, translate: Translate, shapes: DeclaredShapes = ()):
        self._translate, self._shapes, self._lock = translate, shapes, threading.Lock()
        self._kinds: Cache[Hashable, RunKind] = Cache(_KINDS)

    def stage(self, inputs: Inputs) -> RunStage | None:
        """Return the only stage of a run on inputs; None if it is to be translated as it is."""
        sizes = [size for tensor in inputs if tensor is not None for size in tensor.shape]
        if 0 in sizes:
            return None
        key = tuple(
            None if tensor is None else (len(tensor.shape), tensor.data_type, tensor.is_bool) for tensor in inputs
        )
        with self._lock:
            kind = self._kinds.get(key)
            if kind is None:
                kind = RunKind(sizes, self._translate, _varying(inputs, self._shapes))
                self._kinds.put(key, kind, 1)
                with symbols.postponed():
                    return kind.stage(inputs, sizes)
            return kind.stage(inputs, sizes)


def _varying(inputs: Inputs, shapes: DeclaredShapes) -> list[Hashable]:
    """Return of each size of the inputs its name, which tells it from others, or its place; None if it is a number."""
    varying: list[Hashable] = []
    for number, (tensor, shape) in enumerate(zip(inputs, shapes, strict=False)):
        for axis, size in enumerate(() if tensor is None else shape or (0,) * len(tensor.shape)):
            is_name = isinstance(size, str) and size.isidentifier()
            varying.append(None if isinstance(size, int) else size if is_name else (number, axis))
    return varying
