"""Merging dimensions that lie contiguously in every tensor: fewer dimensions make index arithmetic cheap."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from dmlgpu.kernels.sources import is_elementwise, leaves, rewrite
from dmlgpu.plan import Body, Element, Source, Tensor

Groups = tuple[tuple[int, ...], ...]
"""Which of the old dimensions make up each new one, outermost first."""


def mergeable(sizes: Sequence[int], strides: Sequence[Sequence[int]], apart: Sequence[int] | None = None) -> Groups:
    """Groups of neighbouring dimensions that every tensor steps through evenly; dimensions of size 1 are dropped.

    Args:
        sizes: of the common coordinate space.
        strides: of every tensor over it.
        apart: dimensions of different mark are never merged (reduced and kept ones, say).
    """
    kept = [dimension for dimension, size in enumerate(sizes) if size > 1] or [len(sizes) - 1]
    groups = [[kept[0]]]
    for inner in kept[1:]:
        outer = groups[-1][-1]
        even = all(stride[outer] == stride[inner] * sizes[inner] for stride in strides)
        if even and (apart is None or apart[outer] == apart[inner]):
            groups[-1].append(inner)
        else:
            groups.append([inner])
    return tuple(tuple(group) for group in groups)


def merge_sizes(sizes: Sequence[int], groups: Groups) -> tuple[int, ...]:
    """Sizes after merging."""
    return tuple(math.prod(sizes[dimension] for dimension in group) for group in groups)


def merge_strides(strides: Sequence[int], groups: Groups) -> tuple[int, ...]:
    """Strides after merging: those of the innermost dimension of each group."""
    return tuple(strides[group[-1]] for group in groups)


def merge_tensor(tensor: Tensor, groups: Groups) -> Tensor:
    """The same elements of a tensor under merged dimensions."""
    return replace(tensor, sizes=merge_sizes(tensor.sizes, groups), strides=merge_strides(tensor.strides, groups))


def merge_dimensions(sizes: Sequence[int], *tensors: Sequence[int]) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """Merged sizes, and the merged strides of each tensor, for a run of dimensions that some tensors share.

    An empty run stays empty.
    """
    if not sizes:
        return (), [() for _ in tensors]
    groups = mergeable(sizes, tensors)
    return merge_sizes(sizes, groups), [merge_strides(strides, groups) for strides in tensors]


def collapse(body: Body, output: Tensor) -> tuple[Body, Tensor]:
    """An element-wise tree and its output with all mergeable dimensions merged; other trees as they are."""
    if not is_elementwise(body):
        return body, output
    groups = mergeable(output.sizes, [output.strides, *(leaf.strides for leaf in leaves(body))])

    def merge(source: Source) -> Source:
        if isinstance(source, Tensor):
            return merge_tensor(source, groups)
        sizes = merge_sizes(source.sizes, groups)
        if isinstance(source, Element):  # an identity, as all else keeps its coordinates
            return replace(source, sizes=sizes, follows=(tuple(range(len(groups))),))
        return replace(source, sizes=sizes)

    return rewrite(body, merge), merge_tensor(output, groups)
