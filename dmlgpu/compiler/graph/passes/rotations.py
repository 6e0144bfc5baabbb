"""Fusion of the steps that read ranges of a product's columns, such as rotary position embeddings, into the product.

A rotation computes each column of a head from its own sum and from that of its partner, which is half a head away, or
adjacent. The product computes both, so it stores rotated queries, and rotated keys and values where the caches have
them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dmlgpu.compiler.graph.passes.appends import is_independent, may_join
from dmlgpu.compiler.graph.passes.gates import value_of_sum
from dmlgpu.compiler.graph.passes.inlining import is_small
from dmlgpu.compiler.graph.passes.rewriting import Rewriting, StepPass, element_wise_leaves, memory_of, simplified
from dmlgpu.compiler.plan import (
    PAIR,
    Affine,
    Apply,
    ColumnRange,
    Contract,
    Map,
    PlanTensor,
    Role,
    RotatedContract,
    Scatter,
    Sizes,
    Source,
    View,
)
from dmlgpu.compiler.rewrites.sources import computed, leaves, rewrite
from dmlgpu.compiler.rewrites.spaces import affine_between
from dmlgpu.compiler.sizes.arithmetic import is_many


def fuse_rotations(rewriting: Rewriting) -> None:
    """Compute all readers of a product where it stores its sums, if they rotate columns or store others as they are."""
    rotates = rewriting.capabilities.rotates
    for index, step in rewriting.indexed():
        if not isinstance(step, Contract) or step.output.binding.role is not Role.TEMPORARY:
            continue
        memory = memory_of(step.output)
        readers = sorted(rewriting.readers(memory))
        steps = [rewriting.step(reader) for reader in readers]
        if rewriting.producer(memory) != index or not all(map(may_join, steps)) or not rotates(step):
            continue
        fused = _fused(step, [each for each in steps if isinstance(each, Map | Scatter)])
        if fused is None:
            continue
        if isinstance(fused, RotatedContract) and not _may_wait(rewriting, readers):
            fused = "another step needs what one of its readers stores before the last of them"
        if isinstance(fused, RotatedContract) and not (rewriting.fits(fused) and rotates(fused)):
            fused = "its readers would bind too many buffers, or have no whole units"
        if isinstance(fused, str):
            rewriting.reject(step.label, f"its columns are not rotated where they are stored: {fused}")
            continue
        for reader in readers:
            rewriting.replace(reader, fused if reader == readers[-1] else None)
        rewriting.replace(index, None)
        for each in steps:
            rewriting.note(each.label, f"computed from columns and their partners where {step.label} stores")


ROTATIONS = StepPass("rotations", fuse_rotations)


def _may_wait(rewriting: Rewriting, readers: Sequence[int]) -> bool:
    """Return whether all readers may be computed where the last one is."""
    between = (index for index, _ in rewriting.indexed() if readers[0] < index <= readers[-1])
    return all(
        is_independent(rewriting, [reader for reader in readers if reader < index], rewriting.step(index))
        for index in between
    )


@dataclass(frozen=True)
class _ColumnReader:
    """A reader of a product.

    Attributes:
        range: the range of columns that it stores.
        first: its first column.
        apart: columns from a column to its partner; 0 if it reads no partners.
    """

    range: ColumnRange
    first: int
    apart: int


def _fused(writer: Contract, steps: Sequence[Map | Scatter]) -> RotatedContract | str | None:
    """Return a product that its readers store, or the reason why there is none; None if nothing is rotated."""
    space = writer.product.space
    if len(space.columns) != 1 or any(map(is_many, space.batch)):
        return None
    readers: list[_ColumnReader] = []
    for step in steps:
        reader = _reader(writer, step)
        if reader is None:
            return None if not readers else f"{step.label} reads them unevenly"
        readers.append(reader)
    apart = max((reader.apart for reader in readers), default=0)
    if not apart:
        return None
    readers.sort(key=lambda reader: reader.first)
    reason = _objection(readers, apart, space.columns[0])
    return reason or RotatedContract(writer.label, writer.product, apart, tuple(reader.range for reader in readers))


def _objection(readers: Sequence[_ColumnReader], apart: int, columns: int) -> str:
    """Return the reason why readers, in order, do not store all columns in pairs; empty if they do."""
    if any(reader.apart not in (0, apart) for reader in readers):
        return "partners have several distances"
    ends = [0, *itertools.accumulate(reader.range.count for reader in readers)]
    if any(reader.first != end or end % (2 * apart) for reader, end in zip(readers, ends, strict=False)):
        return "ranges of columns overlap, leave some out, or do not end with a head"
    is_whole = ends[-1] == columns and columns % 4 == 0
    return "" if is_whole else "some columns are not read, or they have no units of four"


def _reader(writer: Contract, step: Map | Scatter) -> _ColumnReader | None:
    """Return a reader of a product with sums instead of the product's results; None if it reads others than columns and
    their partners, one of each for an element."""
    tree = simplified(computed(step.body if isinstance(step, Map) else step.source))
    memory, sizes = memory_of(writer.output), tree.sizes
    own = list(dict.fromkeys(leaf for leaf in leaves(tree) if memory_of(leaf) == memory))
    if not own or any(leaf.view is View.INDEX for leaf in own) or not set(own) <= set(element_wise_leaves(tree)):
        return None
    affines = [affine_between(leaf, writer.output) for leaf in own]
    maps = [_Flat.of(writer, affine) for affine in affines if affine is not None]
    result = _matched(maps, sizes, math.prod(writer.product.space.rows)) if len(maps) == len(own) else None
    if result is None:
        return None
    order, rows, columns, apart = result
    values: dict[PlanTensor, Source] = {}
    for leaf, affine, name in zip(own, affines, (PAIR[place] for place in order), strict=True):
        assert affine is not None
        values[leaf] = value_of_sum(writer.epilogue, name, sizes, affine)
    summed = simplified(
        rewrite(tree, lambda source: values.get(source, source) if isinstance(source, PlanTensor) else source)
    )
    if not isinstance(summed, Apply) or not is_small(summed):
        return None
    output = replace(step.output, view=View.COMPUTE)
    stored: Map | Scatter
    if isinstance(step, Map):
        stored = replace(step, body=summed, output=output)
    else:
        stored = replace(step, source=summed, output=output)
    return _ColumnReader(ColumnRange(stored, rows, columns), maps[order.index(0)].first, apart)


@dataclass(frozen=True)
class _Flat:
    """A map from coordinates to rows, as one index, and columns of a product.

    Attributes:
        rows, columns: step of each dimension.
        first: the first column.
    """

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    first: int

    @classmethod
    def of(cls, writer: Contract, affine: Affine) -> _Flat:
        """Return the map of an affine one to the coordinates of the output."""
        batch, sizes = len(writer.product.space.batch), writer.product.space.rows
        weights = [math.prod(sizes[place + 1 :]) for place in range(len(sizes))]
        rows = affine.steps[batch : batch + len(sizes)]
        flat = (
            sum(weight * step for weight, step in zip(weights, column, strict=True))
            for column in zip(*rows, strict=True)
        )
        return cls(tuple(flat), affine.steps[-1], affine.start[-1])


def _matched(
    maps: Sequence[_Flat], sizes: Sizes, rows: int
) -> tuple[Sequence[int], tuple[int, ...], tuple[int, ...], int] | None:
    """Return which of one or two maps lead to columns, 0, and which to their partners, 1; the dimensions that are the
    digits of rows and of columns; and the distance to partners, 0 without them. None for other maps."""
    for order in ((0, 1), (1, 0))[: len(maps)] if len(maps) <= len(PAIR) else ():
        own = maps[order.index(0)]
        moving = [dimension for dimension, size in enumerate(sizes) if is_many(size)]
        of_rows = _digits([dimension for dimension in moving if own.rows[dimension]], own.rows, sizes)
        of_columns = _digits([dimension for dimension in moving if own.columns[dimension]], own.columns, sizes)
        if of_rows is None or of_columns is None or sorted(of_rows + of_columns) != moving:
            continue
        if math.prod(sizes[dimension] for dimension in of_rows) != rows:
            continue
        if len(maps) == 1:
            return order[:1], of_rows, of_columns, 0
        apart = _distance(own, maps[order.index(1)], sizes)
        if apart:
            return order, of_rows, of_columns, apart
    return None


def _digits(dimensions: Sequence[int], steps: Sequence[int], sizes: Sizes) -> tuple[int, ...] | None:
    """Return dimensions in the order in which their coordinates are the digits of an index, the highest first, given
    the step of each; None if they are not."""
    order: list[int] = []
    rest, weight = list(reversed(dimensions)), 1
    while rest:
        lowest = next((dimension for dimension in rest if steps[dimension] == weight), None)
        if lowest is None:
            return None
        order.insert(0, lowest)
        rest.remove(lowest)
        weight *= sizes[lowest]
    return tuple(order)


def _distance(own: _Flat, other: _Flat, sizes: Sizes) -> int:
    """Return the distance of partners if the second map leads to those of the first one; 0 if it does not."""
    turned = [place for place, step in enumerate(own.columns) if other.columns[place] != step]
    if own.rows != other.rows or len(turned) != 1 or sizes[turned[0]] != 2:
        return 0
    apart = own.columns[turned[0]]
    return apart if other.columns[turned[0]] == -apart and other.first == own.first + apart else 0
