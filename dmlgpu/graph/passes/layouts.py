"""Where what one convolution hands to others lies in memory: with channels innermost, if that makes them faster."""

from __future__ import annotations

import math
from dataclasses import replace

from dmlgpu.enums import DataType
from dmlgpu.graph.passes.rewriting import Rewriting, memory_of
from dmlgpu.graph.spaces import locate
from dmlgpu.kernels.sources import leaves
from dmlgpu.plan import Convolve, Role, Step, Tensor
from dmlgpu.plan.parts import read, replace_parts
from dmlgpu.schedule.convolution import IMPLICIT_GEMM
from dmlgpu.schedule.convolution_choice import WINOGRAD, choose
from dmlgpu.target import Profile, Target
from dmlgpu.tensor import packed_strides

NAME = "layouts"

SAVED_BY_WINDOWS, LOST_BY_TILES = 0.25, 0.03
"""Shares of the time that the multiplications of a plain convolution take: what products over windows of several
elements save, and what Winograd's filtering loses, measured on lavapipe."""


def choose_layouts(rewriting: Rewriting, target: Target) -> None:
    """Let convolutions write float32 with channels innermost (NHWC) where only convolutions read it, and windows of
    several elements, read by products, gain more than Winograd's filtering loses.

    Only for processors, on which that was measured.
    """
    if target.profile is not Profile.CPU:
        return
    for number, step in rewriting.numbered():
        if isinstance(step, Convolve) and step.output.binding.role is Role.TEMPORARY:
            _lay_out(rewriting, number, step, target)


def _lay_out(rewriting: Rewriting, number: int, step: Convolve, target: Target) -> None:
    memory, written = memory_of(step.output), step.output
    if rewriting.producer(memory) != number or not _is_whole(written) or written.data_type is not DataType.FLOAT32:
        return
    readers = {reader: rewriting.step(reader) for reader in sorted(rewriting.readers(memory))}
    places = {
        tensor: locate(tensor, written) if tensor in _inputs(reader) else None
        for reader in readers.values()
        for tensor in read(reader)
        if memory_of(tensor) == memory
    }
    saved = sum(_saved(one, target) for one in (step, *readers.values()) if isinstance(one, Convolve))
    if saved <= 0 or None in places.values():
        return
    laid = _channels_last(written)
    moved = {tensor: place.of(laid, tensor.sizes) for tensor, place in places.items() if place is not None}
    for reader, one in readers.items():
        rewriting.replace(reader, replace_parts(one, Tensor, lambda tensor: moved.get(tensor, tensor)))
    rewriting.replace(number, replace(step, output=laid))
    rewriting.note(NAME, step.label, "stored with channels innermost")


def _inputs(step: Step) -> set[Tensor]:
    """Return the tensors over which a convolution's windows slide."""
    return set(leaves(step.convolution.input)) if isinstance(step, Convolve) and not step.transposed else set()


def _is_whole(tensor: Tensor) -> bool:
    """Return whether a tensor fills its memory."""
    return tensor.offset == tensor.binding.offset == 0 and tensor.units == math.prod(tensor.sizes)


def _saved(step: Convolve, target: Target) -> float:
    """Return the multiplications whose time channels innermost, on one of its sides, save a convolution."""
    if step.transposed:
        return 0.0
    convolution = step.convolution
    window = math.prod(axis.size for axis in convolution.windows)
    count = math.prod(step.output.sizes) * convolution.filter.sizes[2] * window
    match choose(convolution, target).name:
        case name if name in WINOGRAD:
            return -LOST_BY_TILES * count
        case name if name == IMPLICIT_GEMM:
            return SAVED_BY_WINDOWS * count if window > 1 else 0.0
        case _:
            return -count


def _channels_last(written: Tensor) -> Tensor:
    """Return {images, groups, outputs of each, positions ..} with the channels of all groups side by side."""
    images, groups, outputs, *positions = written.sizes
    image, *along, group, output = packed_strides((images, *positions, groups, outputs))
    return replace(written, strides=(image, group, output, *along))
