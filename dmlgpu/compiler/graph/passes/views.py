"""Copies vanish: whoever reads one reads the elements where they come from, by strides (slices, transposes, splits)."""

from __future__ import annotations

from dataclasses import replace

from dmlgpu.compiler.graph.passes.rewriting import Rewriting, memory_of
from dmlgpu.compiler.graph.passes.trees import simplified
from dmlgpu.compiler.graph.spaces import locate
from dmlgpu.compiler.plan import Map, Repeat, Role, Step, Tensor
from dmlgpu.compiler.plan.parts import read, replace_parts, written

NAME = "views"


def read_through_copies(rewriting: Rewriting) -> None:
    """Let steps of every kind read what a copy copies; copies that nobody reads any more fall away."""
    for number, step in rewriting.numbered():
        if isinstance(step, Repeat):
            continue  # what is bound of its tensors moves from turn to turn
        for tensor in read(step):
            source = _copied(rewriting, number, tensor)
            if source is None:
                continue
            viewed = _reading(rewriting.step(number), tensor, source)
            if not rewriting.fits(viewed):
                continue
            copy = rewriting.producer(memory_of(tensor))
            assert copy is not None
            label = rewriting.step(copy).label
            rewriting.replace(number, viewed)
            if tensor.binding.role is Role.TEMPORARY and not rewriting.readers(memory_of(tensor)):
                rewriting.replace(copy, None)
                rewriting.note(NAME, label, f"read as a view by {step.label}")


def _copied(rewriting: Rewriting, number: int, tensor: Tensor) -> Tensor | None:
    """Return what a tensor is a copy of, under the tensor's own coordinates; None where it is no copy."""
    if tensor.binding.role not in (Role.TEMPORARY, Role.OUTPUT):
        return None
    producer = rewriting.producer(memory_of(tensor))
    if producer is None or producer >= number:
        return None
    made = rewriting.step(producer)
    if not isinstance(made, Map) or made.keeps_neighbours:
        return None
    source = simplified(made.body)
    affine = locate(tensor, made.output) if isinstance(source, Tensor) else None
    if affine is None or not isinstance(source, Tensor):
        return None
    viewed = replace(affine.of(source, tensor.sizes), view=tensor.view)
    return viewed if all(stride >= 0 for stride in viewed.strides) else None


def _reading(step: Step, tensor: Tensor, source: Tensor) -> Step:
    """Return a step that reads another tensor."""
    outputs = written(step)

    def change(part: Tensor) -> Tensor:
        return source if part == tensor and not any(part is output for output in outputs) else part

    return replace_parts(step, Tensor, change)
