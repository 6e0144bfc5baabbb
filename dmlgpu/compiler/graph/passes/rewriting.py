"""A plan while passes rewrite it: the writers and readers of each resource, and the trees that steps compute."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from dmlgpu.compiler.graph.network import Network
from dmlgpu.compiler.plan import (
    Affine,
    AffineView,
    Allocation,
    Apply,
    Body,
    Contract,
    Convolve,
    Map,
    PairedContract,
    PlanTensor,
    Role,
    RotatedContract,
    Scatter,
    Sizes,
    Source,
    Step,
)
from dmlgpu.compiler.plan.parts import read, written
from dmlgpu.compiler.rewrites.sources import identity, is_elementwise, is_identity, rewrite
from dmlgpu.compiler.rewrites.spaces import reindex

Memory: TypeAlias = tuple[Role, int | Allocation]
"""A resource of a plan, independent of the bound range."""


def memory_of(tensor: PlanTensor) -> Memory:
    """Return the resource of a tensor."""
    return tensor.binding.role, tensor.binding.index


@dataclass(frozen=True)
class Note:
    """Note of a pass: a change, or the reason why there was none.

    Attributes:
        pass_name: Name of the pass.
        subject: Step or node.
        text: The change, or the reason.
    """

    pass_name: str
    subject: str
    text: str


NoteTaker: TypeAlias = Callable[[str, str], None]
"""Records a note of the running pass: its subject, and its text."""


@dataclass(frozen=True)
class NodePass:
    """A pass over the nodes of a network.

    Attributes:
        name: Name in notes, and to disable it.
        run: Returns the network after the pass.
    """

    name: str
    run: Callable[[Network, NoteTaker], Network]


@dataclass(frozen=True)
class StepPass:
    """A pass over the steps of a plan.

    Attributes:
        name: Name in notes, and to disable it.
        run: Changes the steps.
        optional: Whether it can be disabled.
    """

    name: str
    run: Callable[[Rewriting], None]
    optional: bool = True


@dataclass(frozen=True)
class Capabilities:
    """Properties of the kernels that a target has for a step, on which passes depend.

    Attributes:
        fits: Returns whether a step's kernels can bind all their buffers.
        multiplies_integers: Returns whether the kernel of a product multiplies integers.
        reads_selections: Returns whether a kernel of a product reads the matrices that lookups in its columns select
            where they are.
        panel_matrices: Returns the matrices that the initialization moves to panels for a product.
        appends: Returns whether a kernel computes the source of a scatter, a tree, as well.
        computes_pairs: Returns whether a kernel computes two columns of a product for each element.
        normalizes: Returns whether the kernel of a product normalizes its rows, and may look up a single one.
        rotates: Returns whether a kernel stores ranges of the columns of a product, rotated: some ranges, or certain
            ones.
        saved_by_channels_last: Returns the time that a convolution saves if one side has channels innermost, in
            multiplications; negative for a loss.
    """

    fits: Callable[[Step], bool]
    multiplies_integers: Callable[[Contract], bool]
    reads_selections: Callable[[Contract], bool]
    panel_matrices: Callable[[Contract], Sequence[PlanTensor]]
    appends: Callable[[Scatter], bool]
    computes_pairs: Callable[[Contract], bool]
    normalizes: Callable[[Contract | PairedContract], bool]
    rotates: Callable[[Contract | RotatedContract], bool]
    saved_by_channels_last: Callable[[Convolve], float]


@dataclass
class Rewriting:
    """Steps in order, some of which are removed.

    Attributes:
        network: The network of the plan.
        capabilities: Of the target.
        notes: Notes of the passes.
    """

    network: Network
    capabilities: Capabilities
    notes: list[Note]
    _steps: list[Step | None]
    _pass_name: str = ""
    _rejections: dict[str, str] = field(default_factory=dict)
    _writers: dict[Memory, list[int]] = field(default_factory=lambda: defaultdict(list))
    _readers: dict[Memory, set[int]] = field(default_factory=lambda: defaultdict(set))
    _read: dict[int, dict[Memory, None]] = field(default_factory=dict)
    _written: dict[int, list[Memory]] = field(default_factory=dict)

    @classmethod
    def of(cls, steps: Sequence[Step], network: Network, capabilities: Capabilities, notes: list[Note]) -> Rewriting:
        """Return a rewriting without changes, which appends to the notes."""
        rewriting = cls(network, capabilities, notes, list(steps))
        for index in range(len(steps)):
            rewriting._enter(index)
        return rewriting

    def run(self, each: StepPass) -> None:
        """Run a pass, whose notes get its name."""
        self._pass_name = each.name
        each.run(self)

    def fits(self, step: Step) -> bool:
        """Return whether a step's kernels can bind all their buffers."""
        return self.capabilities.fits(step)

    @property
    def steps(self) -> tuple[Step, ...]:
        """Remaining steps, in order."""
        return tuple(step for step in self._steps if step is not None)

    def indexed(self) -> Iterator[tuple[int, Step]]:
        """Yield index and current state of each remaining step."""
        for index in range(len(self._steps)):
            step = self._steps[index]
            if step is not None:
                yield index, step

    def step(self, index: int) -> Step:
        """Return the step at an index."""
        step = self._steps[index]
        assert step is not None
        return step

    def is_removed(self, index: int) -> bool:
        """Return whether the step at an index was removed."""
        return self._steps[index] is None

    def replace(self, index: int, step: Step | None) -> None:
        """Replace a step, or remove it if the new one is None."""
        for memory in self._written[index]:
            self._writers[memory].remove(index)
        for memory in self._read[index]:
            self._readers[memory].discard(index)
        self._steps[index] = step
        if step is not None:
            self._enter(index)

    def _enter(self, index: int) -> None:
        step = self.step(index)
        self._written[index] = [memory_of(tensor) for tensor in written(step)]
        self._read[index] = dict.fromkeys(map(memory_of, read(step)))
        for memory in self._written[index]:
            self._writers[memory].append(index)
        for memory in self._read[index]:
            self._readers[memory].add(index)

    def memories_read(self, index: int) -> Collection[Memory]:
        """Return the resources that the step at an index reads."""
        return self._read[index]

    def writers(self, memory: Memory) -> Sequence[int]:
        """Return the indices of the steps that write to a resource."""
        return self._writers[memory]

    def readers(self, memory: Memory) -> frozenset[int]:
        """Return the indices of the steps that read a resource."""
        return frozenset(self._readers[memory])

    def producer(self, memory: Memory) -> int | None:
        """Return the index of the step that writes a resource, if a single one does and nothing that it reads changes
        afterwards, so that its value may also be computed later."""
        writers = self._writers[memory]
        if len(writers) != 1:
            return None
        (index,) = writers
        settled = all(last < index for source in self._read[index] for last in self._writers[source])
        return index if settled else None

    def only_producer(self, reader: int, memory: Memory) -> int | None:
        """Return the index of the step before ``reader`` that writes a temporary resource, if nothing else reads it."""
        if memory[0] is not Role.TEMPORARY or self.readers(memory) != {reader}:
            return None
        producer = self.producer(memory)
        return producer if producer is not None and producer < reader else None

    def drop(self, index: int, where: str) -> None:
        """Remove a step that is computed elsewhere, unless its output is still used."""
        step = self.step(index)
        if any(self._readers[memory] or memory[0] is Role.OUTPUT for memory in self._written[index]):
            self.note(step.label, f"recomputed in {where}")
        else:
            self.replace(index, None)
            self.note(step.label, f"computed in {where}")

    def reject(self, subject: str, reason: str) -> None:
        """Record the reason why a step is not fused into another, for ``explain``."""
        self._rejections[subject] = reason

    def explain(self) -> None:
        """Add a note to each remaining step with the reason, if known, why it was not fused."""
        for step in self.steps:
            if step.label in self._rejections:
                self.notes.append(Note("kept", step.label, self._rejections[step.label]))

    def note(self, subject: str, text: str) -> None:
        """Record a change by the running pass."""
        self.notes.append(Note(self._pass_name, subject, text))


def element_wise_leaves(root: Source) -> Iterator[PlanTensor]:
    """Yield the unique tensors that a tree reads only through element-wise bodies and affine views."""
    seen: set[int] = set()
    tensors: set[PlanTensor] = set()
    pending = [root]
    while pending:
        source = pending.pop()
        if id(source) in seen:
            continue
        seen.add(id(source))
        if isinstance(source, PlanTensor):
            if source not in tensors:
                tensors.add(source)
                yield source
        elif isinstance(source, Apply | AffineView) or is_identity(source):
            pending.extend(source.children)  # type: ignore[union-attr]


def simplified(root: Source) -> Source:
    """Return the tree without identity bodies; views become strides of its tensors."""

    def skip(source: Source) -> Source:
        if is_identity(source):
            return source.children[0]  # type: ignore[union-attr]
        if isinstance(source, AffineView) and is_elementwise(source.source):
            return reindex(source.source, source.sizes, source.affine)
        return source

    return rewrite(root, skip)


def as_body(source: Source) -> Body:
    """Return a source as the body of a map."""
    return source if isinstance(source, Body) else identity(source)


def refined(step: Map, sizes: Sizes, affine: Affine) -> Map:
    """Return a map over a space of more, smaller dimensions."""
    body = reindex(step.body, sizes, affine)
    assert isinstance(body, Body)
    return replace(step, body=body, output=affine.of(step.output, sizes))
