"""Memory layouts: copies become views of their source; images between convolutions have channels innermost."""

from __future__ import annotations

import math
from dataclasses import replace

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import packed_strides
from dmlgpu.compiler.graph.passes.rewriting import Rewriting, StepPass, memory_of, simplified
from dmlgpu.compiler.plan import Convolve, Map, PlanTensor, Repeat, Role, Step
from dmlgpu.compiler.plan.parts import read, replace_parts, written
from dmlgpu.compiler.rewrites.sources import leaves
from dmlgpu.compiler.rewrites.spaces import affine_between


def read_through_copies(rewriting: Rewriting) -> None:
    """Let steps read the source of a copy; unused copies are removed."""
    for index, step in rewriting.indexed():
        if isinstance(step, Repeat):
            continue  # the bound ranges of its tensors change with each iteration
        for tensor in read(step):
            source = _copied(rewriting, index, tensor)
            if source is None:
                continue
            viewed = _reading(rewriting.step(index), tensor, source)
            if not rewriting.fits(viewed):
                continue
            copy = rewriting.producer(memory_of(tensor))
            assert copy is not None
            label = rewriting.step(copy).label
            rewriting.replace(index, viewed)
            if tensor.binding.role is Role.TEMPORARY and not rewriting.readers(memory_of(tensor)):
                rewriting.replace(copy, None)
                rewriting.note(label, f"read as a view by {step.label}")


VIEWS = StepPass("views", read_through_copies)


def _copied(rewriting: Rewriting, index: int, tensor: PlanTensor) -> PlanTensor | None:
    """Return the source of a copy in the coordinates of the tensor; None if it is not a copy."""
    if tensor.binding.role not in (Role.TEMPORARY, Role.OUTPUT):
        return None
    producer = rewriting.producer(memory_of(tensor))
    if producer is None or producer >= index:
        return None
    copy = rewriting.step(producer)
    if not isinstance(copy, Map) or copy.keeps_neighbors:
        return None
    source = simplified(copy.body)
    affine = affine_between(tensor, copy.output) if isinstance(source, PlanTensor) else None
    if affine is None or not isinstance(source, PlanTensor):
        return None
    viewed = replace(affine.of(source, tensor.sizes), view=tensor.view)
    return viewed if all(stride >= 0 for stride in viewed.strides) else None


def _reading(step: Step, tensor: PlanTensor, source: PlanTensor) -> Step:
    """Return a step that reads another tensor."""
    outputs = written(step)

    def change(part: PlanTensor) -> PlanTensor:
        return source if part == tensor and not any(part is output for output in outputs) else part

    return replace_parts(step, PlanTensor, change)


def choose_layouts(rewriting: Rewriting) -> None:
    """Let convolutions write float32 with channels innermost (NHWC) if only convolutions read it, and these save more
    in total than they lose."""
    for index, step in rewriting.indexed():
        if isinstance(step, Convolve) and step.output.binding.role is Role.TEMPORARY:
            _lay_out(rewriting, index, step)


LAYOUTS = StepPass("layouts", choose_layouts)


def _lay_out(rewriting: Rewriting, index: int, step: Convolve) -> None:
    memory, written = memory_of(step.output), step.output
    if rewriting.producer(memory) != index or not _is_whole(written) or written.data_type is not DataType.FLOAT32:
        return
    readers = {other: rewriting.step(other) for other in sorted(rewriting.readers(memory))}
    places = {
        tensor: affine_between(tensor, written) if tensor in _inputs(reader) else None
        for reader in readers.values()
        for tensor in read(reader)
        if memory_of(tensor) == memory
    }
    savings = rewriting.capabilities.saved_by_channels_last
    saved = sum(savings(each) for each in (step, *readers.values()) if isinstance(each, Convolve))
    if saved <= 0 or None in places.values():
        return
    laid = _channels_last(written)
    moved = {tensor: place.of(laid, tensor.sizes) for tensor, place in places.items() if place is not None}
    for number_of_reader, reader in readers.items():
        rewriting.replace(number_of_reader, replace_parts(reader, PlanTensor, lambda tensor: moved.get(tensor, tensor)))
    rewriting.replace(index, replace(step, output=laid))
    rewriting.note(step.label, "stored with channels innermost")


def _inputs(step: Step) -> set[PlanTensor]:
    """Return the tensors over which a convolution's windows slide."""
    return set(leaves(step.convolution.input)) if isinstance(step, Convolve) and not step.transposed else set()


def _is_whole(tensor: PlanTensor) -> bool:
    """Return whether a tensor has no gaps in memory."""
    return tensor.offset == tensor.binding.offset == 0 and tensor.units == math.prod(tensor.sizes)


def _channels_last(written: PlanTensor) -> PlanTensor:
    """Return {images, groups, outputs of each, positions ..} with the channels of all groups side by side."""
    images, groups, outputs, *positions = written.sizes
    image, *along, group, output = packed_strides((images, *positions, groups, outputs))
    return replace(written, strides=(image, group, output, *along))
