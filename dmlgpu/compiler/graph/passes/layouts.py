"""Where what one convolution hands to others lies in memory: with channels innermost, if that makes them faster."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import packed_strides
from dmlgpu.compiler.graph.passes.rewriting import Rewriting, memory_of
from dmlgpu.compiler.graph.spaces import locate
from dmlgpu.compiler.plan import Convolve, Role, Step, Tensor
from dmlgpu.compiler.plan.parts import read, replace_parts
from dmlgpu.compiler.rewrites.sources import leaves

NAME = "layouts"

Savings: TypeAlias = Callable[[Convolve], float]
"""The multiplications whose time channels innermost, on one of its sides, save a convolution; negative if they cost."""


def choose_layouts(rewriting: Rewriting, savings: Savings) -> None:
    """Let convolutions write float32 with channels innermost (NHWC) if only convolutions read it, and these save more
    together than they lose."""
    for number, step in rewriting.numbered():
        if isinstance(step, Convolve) and step.output.binding.role is Role.TEMPORARY:
            _lay_out(rewriting, number, step, savings)


def _lay_out(rewriting: Rewriting, number: int, step: Convolve, savings: Savings) -> None:
    memory, written = memory_of(step.output), step.output
    if rewriting.producer(memory) != number or not _is_whole(written) or written.data_type is not DataType.FLOAT32:
        return
    readers = {other: rewriting.step(other) for other in sorted(rewriting.readers(memory))}
    places = {
        tensor: locate(tensor, written) if tensor in _inputs(reader) else None
        for reader in readers.values()
        for tensor in read(reader)
        if memory_of(tensor) == memory
    }
    saved = sum(savings(each) for each in (step, *readers.values()) if isinstance(each, Convolve))
    if saved <= 0 or None in places.values():
        return
    laid = _channels_last(written)
    moved = {tensor: place.of(laid, tensor.sizes) for tensor, place in places.items() if place is not None}
    for number_of_reader, reader in readers.items():
        rewriting.replace(number_of_reader, replace_parts(reader, Tensor, lambda tensor: moved.get(tensor, tensor)))
    rewriting.replace(number, replace(step, output=laid))
    rewriting.note(NAME, step.label, "stored with channels innermost")


def _inputs(step: Step) -> set[Tensor]:
    """Return the tensors over which a convolution's windows slide."""
    return set(leaves(step.convolution.input)) if isinstance(step, Convolve) and not step.transposed else set()


def _is_whole(tensor: Tensor) -> bool:
    """Return whether a tensor fills its memory."""
    return tensor.offset == tensor.binding.offset == 0 and tensor.units == math.prod(tensor.sizes)


def _channels_last(written: Tensor) -> Tensor:
    """Return {images, groups, outputs of each, positions ..} with the channels of all groups side by side."""
    images, groups, outputs, *positions = written.sizes
    image, *along, group, output = packed_strides((images, *positions, groups, outputs))
    return replace(written, strides=(image, group, output, *along))
