"""Merging dimensions that lie contiguously in every tensor: fewer dimensions make index arithmetic cheap."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from dmlgpu.compiler.plan import Body, Element, PlanTensor, RegisterValue, Source
from dmlgpu.compiler.rewrites.sources import AnySource, is_elementwise, leaves, rewrite
from dmlgpu.compiler.sizes.arithmetic import is_many

Groups = tuple[tuple[int, ...], ...]
"""Old dimensions of each new dimension, outermost first."""


def mergeable(
    sizes: Sequence[int], strides: Sequence[Sequence[int]], apart: Sequence[int] | None = None, keeps_ones: bool = False
) -> Groups:
    """Return the groups of adjacent dimensions that every tensor steps through evenly.

    Args:
        sizes: of the common coordinate space.
        strides: of every tensor over it.
        apart: marks of dimensions; those with different marks (reduced and kept ones, for example) are never merged.
        keeps_ones: whether dimensions of size 1 are treated as all others; else they are dropped.
    """
    wide = [dimension for dimension, size in enumerate(sizes) if keeps_ones or is_many(size)]
    dimensions = wide or [len(sizes) - 1]
    groups = [[dimensions[0]]]
    for inner in dimensions[1:]:
        outer = groups[-1][-1]
        even = all(stride[outer] == stride[inner] * sizes[inner] for stride in strides)
        if even and (apart is None or apart[outer] == apart[inner]):
            groups[-1].append(inner)
        else:
            groups.append([inner])
    return tuple(tuple(group) for group in groups)


def merge_sizes(sizes: Sequence[int], groups: Groups) -> tuple[int, ...]:
    """Return sizes after merging."""
    return tuple(math.prod(sizes[dimension] for dimension in group) for group in groups)


def merge_strides(strides: Sequence[int], groups: Groups) -> tuple[int, ...]:
    """Return the strides after merging: those of the innermost dimension of each group."""
    return tuple(strides[group[-1]] for group in groups)


def merge_tensor(tensor: PlanTensor, groups: Groups) -> PlanTensor:
    """Return a tensor with merged dimensions."""
    return replace(tensor, sizes=merge_sizes(tensor.sizes, groups), strides=merge_strides(tensor.strides, groups))


def merge_dimensions(sizes: Sequence[int], *tensors: Sequence[int]) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """Return merged sizes, and the merged strides of each tensor, for a run of dimensions that some tensors share. An
    empty run stays empty."""
    if not sizes:
        return (), [() for _ in tensors]
    groups = mergeable(sizes, tensors)
    return merge_sizes(sizes, groups), [merge_strides(strides, groups) for strides in tensors]


def merge_tree(root: AnySource, groups: Groups) -> AnySource:
    """Return an elementwise tree with merged dimensions."""

    def merge(node: Source) -> Source:
        if isinstance(node, PlanTensor):
            return merge_tensor(node, groups)
        sizes = merge_sizes(node.sizes, groups)
        if isinstance(node, RegisterValue):
            repeated = tuple(index for index, group in enumerate(groups) if group[-1] in node.repeated)
            return replace(node, sizes=sizes, repeated=repeated)
        if isinstance(node, Element):  # an identity, since all other bodies keep their coordinates
            return replace(node, sizes=sizes, follows=(tuple(range(len(groups))),))
        return replace(node, sizes=sizes)

    return rewrite(root, merge)


def row_groups(
    sizes: Sequence[int], axes: Sequence[int], tensors: Sequence[PlanTensor], across: Sequence[PlanTensor] = ()
) -> tuple[Groups, Groups]:
    """Return the groups of the dimensions across rows, in order, and of those along them, in the order of ``axes``.

    Args:
        sizes: of the common coordinate space.
        axes: along which rows lie.
        tensors: over that space.
        across: tensors that have size 1 along rows.
    """
    outer = [dimension for dimension in range(len(sizes)) if dimension not in axes]

    def groups(dimensions: Sequence[int], over: Sequence[PlanTensor]) -> Groups:
        if not dimensions:
            return ()
        strides = [[tensor.strides[dimension] for dimension in dimensions] for tensor in over]
        merged = mergeable([sizes[dimension] for dimension in dimensions], strides)
        return tuple(tuple(dimensions[index] for index in group) for group in merged)

    return groups(outer, [*tensors, *across]), groups(list(axes), tensors)


def collapse(body: Body, output: PlanTensor, *, keeps_ones: bool = False) -> tuple[Body, PlanTensor]:
    """Return an element-wise tree and its output with all mergeable dimensions merged, those of size 1 dropped unless
    they are kept; other trees as they are."""
    if not is_elementwise(body):
        return body, output
    strides = [output.strides, *(leaf.strides for leaf in leaves(body))]
    groups = mergeable(output.sizes, strides, keeps_ones=keeps_ones)
    return merge_tree(body, groups), merge_tensor(output, groups)
