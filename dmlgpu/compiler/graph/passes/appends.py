"""Fusion of maps into the scatters that store their results, and of independent updates of caches into one step."""

from __future__ import annotations

from dataclasses import replace

from dmlgpu.compiler.graph.passes.inlining import (
    inlined,
    is_fusable,
    producer_of,
    reason_to_keep,
    take_in,
)
from dmlgpu.compiler.graph.passes.rewriting import Rewriting, StepPass, memory_of
from dmlgpu.compiler.plan import Map, PlanTensor, Scatter, Step, Together, View
from dmlgpu.compiler.plan.parts import read, written
from dmlgpu.compiler.rewrites.sources import is_costly, is_identity
from dmlgpu.compiler.rewrites.spaces import affine_between, split


def fuse_appends(rewriting: Rewriting) -> None:
    """Compute the elements that a scatter stores, if nothing else reads them: the rotated keys that a cache gets."""
    for index, step in rewriting.indexed():
        if not isinstance(step, Scatter) or not isinstance(step.source, PlanTensor):
            continue
        match = producer_of(rewriting, index, step.source)
        if match is not None:
            producer, writer = match
            take_in(rewriting, index, producer, _computed(rewriting, step, step.source, writer))


APPENDS = StepPass("appends", fuse_appends)


def _computed(rewriting: Rewriting, step: Scatter, source: PlanTensor, writer: Map) -> Scatter | str:
    """Return a scatter that computes its source by a map, or the reason why there is none."""
    if not is_fusable(writer.body) or writer.body.moves:
        return "only moves elements, or changes coordinates, for"
    reason = reason_to_keep(rewriting, writer, source, repeats=False)
    if reason is not None:
        return reason
    if affine_between(source, writer.output) is None:
        parted = _split(step, source, writer.output)
        if parted is None:
            return "lies unevenly for"
        step, source = parted
    leaf = replace(source, view=View.COMPUTE)
    tree = inlined(leaf, leaf, writer)
    if tree is None:
        return "lies unevenly for"
    computed = replace(step, source=tree, output=replace(step.output, view=View.COMPUTE))
    return computed if rewriting.capabilities.appends(computed) else "has elements that share words in"


def _split(step: Scatter, source: PlanTensor, written_by: PlanTensor) -> tuple[Scatter, PlanTensor] | None:
    """Return a scatter, and its source, with dimensions from ``rest`` on split like those of the tensor that a map
    writes; None if others are to be split."""
    parted = split(source, written_by)
    if parted is None or step.rest is None or parted[0][: step.rest] != source.sizes[: step.rest]:
        return None
    sizes, affine = parted
    own = source.rank - step.rest
    shift = step.output.rank - source.rank
    last = range(step.rest, len(sizes))
    if shift or own != 1:
        return None
    output = affine.of(step.output, (*step.output.sizes[: step.rest], *sizes[step.rest :]))
    inputs = tuple((name, affine.of(tensor, sizes)) for name, tensor in step.inputs)
    follows = (*step.follows[: step.rest], *last)
    return replace(step, output=output, inputs=inputs, follows=follows), affine.of(source, sizes)


def join_updates(rewriting: Rewriting) -> None:
    """Compute scatters, and the scatters and maps next to them, in one kernel if none depends on another.

    Copies between them come first. Other maps stay by themselves: there are many combinations of them, and each would
    be another kernel to compile.
    """
    group: list[int] = []
    for index, step in tuple(rewriting.indexed()):
        if not ((may_join(step) or _is_copy(step)) and is_independent(rewriting, group, step)):
            _join(rewriting, group)
            group = []
        if may_join(step):
            group.append(index)
    _join(rewriting, group)


TOGETHER = StepPass("together", join_updates)


def may_join(step: Step) -> bool:
    """Return whether a step may be part of another kernel. A copy stays by itself: it is none if both sides are one
    buffer."""
    if isinstance(step, Scatter):
        return step.distinct
    if not isinstance(step, Map) or type(step) is not Map or is_identity(step.body):
        return False
    return not is_costly(step.body) and not step.keeps_neighbors


def _is_copy(step: Step) -> bool:
    return isinstance(step, Map) and is_identity(step.body)


def is_independent(rewriting: Rewriting, group: list[int], step: Step) -> bool:
    """Return whether a step and those of a group neither read nor write what another one writes."""
    reads, writes = ({memory_of(tensor) for tensor in tensors(step)} for tensors in (read, written))
    for other in map(rewriting.step, group):
        own = {memory_of(tensor) for tensor in written(other)}
        if own & (reads | writes) or writes & {memory_of(tensor) for tensor in read(other)}:
            return False
    return True


def _join(rewriting: Rewriting, group: list[int]) -> None:
    """Replace the steps of a group by one where the last one is, if scatters are among them; maps stay by themselves
    if a kernel cannot bind all tensors."""
    steps = {index: step for index in group if isinstance(step := rewriting.step(index), Map | Scatter)}
    scatters = {index: step for index, step in steps.items() if isinstance(step, Scatter)}
    for members in (steps, scatters):
        if not scatters or len(members) < 2:
            continue
        first, *others = members.values()
        joined = Together(f"{first.label} and {len(others)} more", tuple(members.values()))
        if rewriting.fits(joined):
            last = max(members)
            for index in members:
                rewriting.replace(index, joined if index == last else None)
            for other in others:
                rewriting.note(other.label, f"in the kernel of {first.label}")
            return
        rewriting.reject(first.label, "with the scatters next to it, too many buffers would be bound")
