"""Walking and rewriting trees of bodies. Nodes are shared, so walks keep memos: depth must not double the work."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from dmlgpu.plan import Body, BodyKind, Held, Source, Tensor, View

IDENTITY = "elementwise/element_wise_identity"
SLICE = "layout/slice1"


def nodes(root: Source) -> Iterator[Source]:
    """Every tensor and body of a tree, shared ones once."""
    seen: set[int] = set()
    pending = [root]
    while pending:
        source = pending.pop()
        if id(source) in seen:
            continue
        seen.add(id(source))
        yield source
        if isinstance(source, Body):
            pending.extend(child for _, child in source.inputs)


def leaves(root: Source) -> Iterator[Tensor]:
    """The tensors in memory that a tree reads."""
    return (source for source in nodes(root) if isinstance(source, Tensor))


def rewrite(root: Source, change: Callable[[Source], Source]) -> Source:
    """The tree with ``change`` applied to every node, inputs first; shared nodes stay shared."""
    memo: dict[int, Source] = {}

    def visit(source: Source) -> Source:
        if id(source) not in memo:
            node = source
            if isinstance(node, Body) and node.inputs:
                node = replace(node, inputs=tuple((name, visit(child)) for name, child in node.inputs))
            memo[id(source)] = change(node)
        return memo[id(source)]

    return visit(root)


def identity(source: Source) -> Body:
    """A body that hands its input on."""
    follows = tuple(range(len(source.sizes)))
    return Body(IDENTITY, source.data_type, source.sizes, (("input", source),), follows=(follows,))


def fold_views(root: Body) -> Body:
    """The tree with affine bodies over tensors in memory turned into views of these tensors."""
    folded = folded_views(root)
    return identity(folded) if isinstance(folded, Tensor) else folded


def folded_views(root: Source) -> Source:
    """The same, for any source; one that is a view as a whole becomes a tensor."""

    def fold(source: Source) -> Source:
        if not isinstance(source, Body) or not source.start:
            return source
        ((_, tensor),) = source.inputs
        return view(tensor, source.sizes, source.start, source.steps) if isinstance(tensor, Tensor) else source

    return rewrite(root, fold)


def view(tensor: Tensor, sizes: tuple[int, ...], start: Sequence[int], steps: Sequence[Sequence[int]]) -> Tensor:
    """What an affine body sees of a tensor in memory: other sizes, strides and offset."""
    offset = tensor.offset + sum(map(operator.mul, start, tensor.strides))
    strides = tuple(sum(map(operator.mul, column, tensor.strides)) for column in zip(*steps, strict=True))
    return replace(tensor, sizes=sizes, strides=strides, offset=offset)


def diagonal(steps: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """The steps of an affine body each of whose dimensions moves along its own."""
    return tuple(tuple(step if column == row else 0 for column in range(len(steps))) for row, step in enumerate(steps))


def permuted(source: Source, order: Sequence[int]) -> Source:
    """A source over dimensions in another order: the first is its dimension ``order[0]``.

    Tensors and element-wise trees over them become what they were; what else there is gets an affine body around it.
    """
    memo: dict[int, Source] = {}

    def permute(node: Source) -> Source:
        if id(node) not in memo:
            memo[id(node)] = _permuted_node(node, order, permute)
        return memo[id(node)]

    return permute(source)


def _permuted_node(node: Source, order: Sequence[int], permute: Callable[[Source], Source]) -> Source:
    if isinstance(node, Tensor):
        return permuted_tensor(node, order)
    sizes = tuple(node.sizes[dimension] for dimension in order)
    if node.kind is BodyKind.APPLY:
        return replace(node, sizes=sizes, inputs=tuple((name, permute(child)) for name, child in node.inputs))
    steps = tuple(tuple(int(old == dimension) for old in order) for dimension in range(len(order)))
    start = (0,) * len(order)
    return Body(SLICE, node.data_type, sizes, (("input", node),), follows=(tuple(order),), start=start, steps=steps)


def permuted_tensor(tensor: Tensor, order: Sequence[int]) -> Tensor:
    """The same for a tensor in memory, or one held in registers."""
    sizes = tuple(tensor.sizes[dimension] for dimension in order)
    if isinstance(tensor, Held):
        return Held.over(tensor.data_type, sizes)
    return replace(tensor, sizes=sizes, strides=tuple(tensor.strides[dimension] for dimension in order))


def stepped(source: Source, sizes: tuple[int, ...], start: Sequence[int], strides: Sequence[int]) -> Source:
    """Some elements of a tensor or element-wise tree: from ``start``, with a stride, along each dimension."""

    def step(node: Source) -> Source:
        if isinstance(node, Held):
            return Held.over(node.data_type, sizes)
        if isinstance(node, Tensor):
            return view(node, sizes, start, diagonal(strides))
        return replace(node, sizes=sizes)

    return rewrite(source, step)


def settle_views(root: Body) -> Body:
    """Tensors are moved as raw bits only where the whole tree does nothing but move."""
    if root.moves:
        return root
    settled = computed(root)
    assert isinstance(settled, Body)
    return settled


def computed(root: Source) -> Source:
    """The same source read as numbers."""

    def compute(source: Source) -> Source:
        if isinstance(source, Tensor) and source.view is View.RAW:
            return replace(source, view=View.COMPUTE)
        return source

    return rewrite(root, compute)


def is_elementwise(root: Source) -> bool:
    """Whether every body of the tree keeps its coordinates, so that dimensions may be merged."""
    bodies = (source for source in nodes(root) if isinstance(source, Body))
    return all(body.kind is BodyKind.APPLY or body.file == IDENTITY for body in bodies)
