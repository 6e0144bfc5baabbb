"""Traversal and rewriting of trees of sources. Nodes are shared, so traversals memoize, else depth would double the
work."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from dmlgpu.catalog.enums import DataType
from dmlgpu.compiler.plan import (
    Affine,
    AffineView,
    Apply,
    Body,
    Element,
    PlanTensor,
    RegisterValue,
    Sizes,
    Source,
    View,
    Virtual,
    apply,
    constants,
)

IDENTITY = "elementwise/element_wise_identity"
CONVERT = "elementwise/cast"
JOINED = "layout/joined"
HARDMAX, HARDMAX_FLAT = "softmax/activation_hardmax1", "softmax/activation_hardmax1_flat"

NUMBER = "normalization/number"

LOOPING = ("regions/largest", "regions/reaching", "regions/roi_align1", "regions/touched", "regions/winner")
"""Bodies with long loops over regions or samples."""

MERGE = "schedules/gemm_merge"
"""Body that sums the parts of products in a loop."""

CHEAP = frozenset(
    {
        IDENTITY,
        "elementwise/scale_bias",
        "elementwise/cast",
        "quantization/dequantize",
        "quantization/no_zero_point",
        *(
            f"elementwise/element_wise_{name}"
            for name in (
                *("abs", "add", "bit_and", "bit_not", "bit_or", "bit_xor", "bit_shift_left", "bit_shift_right"),
                *("ceil", "clip1", "floor", "if", "is_infinity", "is_nan", "max", "mean", "min", "multiply", "negate"),
                *("logical_and", "logical_or", "logical_xor", "logical_not", "logical_equals", "logical_greater_than"),
                *("logical_greater_than_or_equal", "logical_less_than", "logical_less_than_or_equal"),
                *("round", "sign", "subtract", "threshold", "difference_square", "square"),
            )
        ),
        *(
            f"activation/activation_{name}"
            for name in ("relu", "leaky_relu", "parameterized_relu", "thresholded_relu", "shrink", "relu_grad")
        ),
    }
)
"""Bodies of a few instructions; all others hold a division, a transcendental function or a loop."""

AnySource = TypeVar("AnySource", bound=Source)


def nodes(root: Source) -> Iterator[Source]:
    """Yield every node of a tree, shared ones once."""
    seen: set[int] = set()
    pending = [root]
    while pending:
        source = pending.pop()
        if id(source) in seen:
            continue
        seen.add(id(source))
        yield source
        if isinstance(source, Virtual):
            pending.extend(source.children)


def leaves(root: Source) -> Iterator[PlanTensor]:
    """Return the tensors in memory that a tree reads."""
    return (source for source in nodes(root) if isinstance(source, PlanTensor))


def rewrite(root: AnySource, change: Callable[[Source], Source]) -> AnySource:
    """Return the tree with ``change`` applied to every node, inputs first; shared nodes stay shared.

    Raises:
        TypeError: where a body at the root becomes something else.
    """
    return _rewritten(root, change, {})  # type: ignore[return-value]


def _rewritten(source: Source, change: Callable[[Source], Source], memo: dict[int, Source]) -> Source:
    if id(source) not in memo:
        node = source
        if isinstance(node, Virtual):
            children = node.children
            rewritten = [_rewritten(child, change, memo) for child in children]
            if any(map(operator.is_not, rewritten, children)):
                node = node.over(rewritten)
        memo[id(source)] = change(node)
    return memo[id(source)]


def sameness() -> Callable[[Source, Source], bool]:
    """Return a memoizing function that compares two trees for equality: in trees that share nodes, ``==`` takes a time
    that doubles with every level."""
    memo: dict[tuple[int, int], tuple[Source, Source, bool]] = {}  # keeps the nodes alive, so that ids are not reused

    def same(first: Source, second: Source) -> bool:
        if first is second:
            return True
        if not isinstance(first, Virtual) or not isinstance(second, Virtual):
            return first == second
        key = id(first), id(second)
        if key not in memo:
            equal = (
                len(first.children) == len(second.children)
                and first.over(second.children) == second
                and all(map(same, first.children, second.children))
            )
            memo[key] = first, second, equal
        return memo[key][2]

    return same


def identity(source: Source) -> Element:
    """Return a body that returns its input."""
    follows = tuple(range(len(source.sizes)))
    return Element(IDENTITY, source.data_type, source.sizes, (("input", source),), follows=(follows,))


UNSIGNED = {8: DataType.UINT8, 16: DataType.UINT16, 32: DataType.UINT32, 64: DataType.UINT64}
"""Unsigned integers by their bits."""


def as_bits(tensor: PlanTensor) -> PlanTensor:
    """Return the same elements as unsigned integers of their width."""
    return replace(tensor, data_type=UNSIGNED[tensor.data_type.bits])


def joined(source: Source) -> Element:
    """Return a source with its last two dimensions merged."""
    *outer, blocks, block = source.sizes
    follows = (*range(len(outer)), len(outer) + 1)
    sizes = (*outer, blocks * block)
    return Element(JOINED, source.data_type, sizes, (("input", source),), follows=(follows,))


def number(value: int, sizes: tuple[int, ...]) -> Body:
    """Return a virtual tensor of one integer as a literal, with which compilers can fold operations."""
    return apply(NUMBER, DataType.FLOAT32, sizes, portable=True, values=constants(value=f"{value}.0f"))


def cast(source: Source, data_type: DataType) -> Body:
    """Return the elements of a source converted to a data type as CAST does."""
    return apply(CONVERT, data_type, source.sizes, portable=True, input=source)


def as_type(source: Source, data_type: DataType) -> Body:
    """Return a source converted to a data type, or its bits if it has that type."""
    if isinstance(source, PlanTensor) and source.data_type is data_type:
        return identity(replace(source, view=View.RAW))
    return source if isinstance(source, Body) and source.data_type is data_type else cast(source, data_type)


def fold_views(root: AnySource) -> AnySource:
    """Return the tree with affine views of tensors in memory turned into tensors of other strides."""

    def fold(source: Source) -> Source:
        if isinstance(source, AffineView) and isinstance(source.source, PlanTensor):
            return source.affine.of(source.source, source.sizes)
        return source

    return rewrite(root, fold)


def permuted(source: AnySource, order: Sequence[int]) -> AnySource:
    """Return a source over dimensions in another order: the first is its dimension ``order[0]``.

    Tensors and elementwise trees over them keep their kind; other sources are wrapped in an affine view.
    """
    memo: dict[int, Source] = {}

    def permute(node: Source) -> Source:
        if id(node) not in memo:
            memo[id(node)] = permute_node(node)
        return memo[id(node)]

    def permute_node(node: Source) -> Source:
        sizes = tuple(node.sizes[dimension] for dimension in order)
        match node:
            case PlanTensor():
                return replace(node, sizes=sizes, strides=tuple(node.strides[dimension] for dimension in order))
            case RegisterValue():
                return replace(node, sizes=sizes)
            case Apply():
                return replace(node.over(map(permute, node.children)), sizes=sizes)
            case _:
                return AffineView(node, sizes, Affine.permutation(order))

    return permute(source)  # type: ignore[return-value]


def stepped(source: AnySource, sizes: Sizes, start: Sequence[int], strides: Sequence[int]) -> AnySource:
    """Return some elements of an element-wise tree: from ``start``, with a stride, along each dimension."""

    def step(node: Source) -> Source:
        if isinstance(node, PlanTensor):
            return Affine.box(start, strides).of(node, sizes)
        return replace(node, sizes=sizes)

    return rewrite(source, step)


def split(source: AnySource, dimension: int, width: int) -> AnySource:
    """Return an elementwise tree with a dimension split in two: the index of a run of ``width`` elements, and the index
    within it."""
    after = dimension + 1

    def split_sizes(sizes: Sizes) -> Sizes:
        return (*sizes[:dimension], sizes[dimension] // width, width, *sizes[after:])

    def split_node(node: Source) -> Source:
        if isinstance(node, Element):  # an identity, since all other bodies keep their coordinates
            return replace(node, sizes=split_sizes(node.sizes), follows=(tuple(range(len(node.sizes) + 1)),))
        if not isinstance(node, PlanTensor):
            return replace(node, sizes=split_sizes(node.sizes))
        stride = node.strides[dimension]
        strides = (*node.strides[:dimension], stride * width, stride, *node.strides[after:])
        return replace(node, sizes=split_sizes(node.sizes), strides=strides)

    return rewrite(source, split_node)


def computed(root: AnySource) -> AnySource:
    """Return the source, read as numbers."""

    def compute(source: Source) -> Source:
        if isinstance(source, PlanTensor) and source.view is View.RAW:
            return replace(source, view=View.COMPUTE)
        return source

    return rewrite(root, compute)


def is_plain(root: Source) -> bool:
    """Return whether a tree consists only of tensors in memory and elementwise functions, so that its dimensions may be
    split."""
    return all(isinstance(node, PlanTensor | RegisterValue | Apply) for node in nodes(root))


def is_elementwise(root: Source) -> bool:
    """Return whether every node of the tree is elementwise, so that dimensions may be merged."""
    return all(isinstance(node, PlanTensor | RegisterValue | Apply) or is_identity(node) for node in nodes(root))


def is_identity(source: Source) -> bool:
    """Return whether a source only returns its input."""
    return isinstance(source, Body) and source.file == IDENTITY


def is_costly(body: Body) -> bool:
    """Return whether a body loops so long that it is never computed as part of another kernel."""
    return body.file in LOOPING


def is_cheap(root: Source) -> bool:
    """Return whether every body of a tree takes a few instructions."""
    return all(not isinstance(node, Body) or node.file in CHEAP for node in nodes(root))
