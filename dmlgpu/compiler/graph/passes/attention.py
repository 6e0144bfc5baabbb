"""Fuse a product, a softmax of its rows and a product with the weights into attention, which never stores the
scores."""

from __future__ import annotations

from dmlgpu.catalog.enums import DataType
from dmlgpu.compiler.graph.passes.epilogues import with_epilogue
from dmlgpu.compiler.graph.passes.rewriting import Rewriting, StepPass, element_wise_leaves, memory_of
from dmlgpu.compiler.plan import (
    Affine,
    Attend,
    Body,
    Contract,
    Map,
    PlanTensor,
    RegisterValue,
    Rows,
    Sizes,
    Source,
)
from dmlgpu.compiler.rewrites.sources import CONVERT
from dmlgpu.compiler.rewrites.spaces import affine_between, is_same, reindex

SOFTMAX = "softmax/activation_softmax1"
SCALED = "matrix/scaled_product"


def fuse_attention(rewriting: Rewriting) -> None:
    """Fuse float32 GEMM, an optional scale and mask, softmax along the last dimension, and GEMM."""
    for index, step in rewriting.indexed():
        if isinstance(step, Contract):
            _fuse(rewriting, index, step)


ATTENTION = StepPass("attention", fuse_attention)


def _fuse(rewriting: Rewriting, index: int, weighted: Contract) -> None:
    """Replace the steps that end in a product with weights by attention, if they compute it."""
    weights = weighted.product.a
    if not isinstance(weights, PlanTensor) or not _is_plain(weighted):
        return
    place = rewriting.only_producer(index, memory_of(weights))
    rows = None if place is None else rewriting.step(place)
    if place is None or not isinstance(rows, Rows) or not _is_softmax(rows) or not _is_whole(weights, rows.output):
        return
    match = _scores(rewriting, place, rows.source) if isinstance(rows.source, PlanTensor) else None
    if match is None:
        return
    scores, replaced = match
    attention = _attention(weighted, scores)
    if attention is None or not rewriting.fits(attention):
        return
    for other in (*replaced, place):
        rewriting.replace(other, None)
    rewriting.replace(index, attention)
    rewriting.note(weighted.label, f"with {scores.label} and {rows.label}: scores are never stored")


def _scores(rewriting: Rewriting, reader: int, tensor: PlanTensor) -> tuple[Contract, tuple[int, ...]] | None:
    """Return the product that computes the scores, scaled and masked, and the steps that it replaces."""
    place = rewriting.only_producer(reader, memory_of(tensor))
    if place is None:
        return None
    producer = rewriting.step(place)
    if isinstance(producer, Contract):
        return (producer, (place,)) if _is_whole(tensor, producer.output) else None
    if not isinstance(producer, Map):
        return None
    for leaf in element_wise_leaves(producer.body):
        before = rewriting.only_producer(place, memory_of(leaf))
        product = None if before is None else rewriting.step(before)
        if before is None or not isinstance(product, Contract):
            continue
        scaled = with_epilogue(product, producer, leaf)
        if isinstance(scaled, Contract) and _is_whole(tensor, scaled.output):
            return scaled, (before, place)
    return None


def _is_softmax(rows: Rows) -> bool:
    types = {rows.source.data_type, rows.output.data_type}
    is_along_last = rows.axes == (rows.output.rank - 1,)
    return rows.body.file == SOFTMAX and is_along_last and types == {DataType.FLOAT32} and not rows.statistics


def _is_plain(product: Contract) -> bool:
    """Return whether the output holds the plain sums."""
    body = product.epilogue
    scale = dict(body.constants).get("alpha") if body.file == SCALED else 1.0
    return body.file in (CONVERT, SCALED) and scale == 1.0 and isinstance(body.children[0], RegisterValue)


def _is_whole(tensor: PlanTensor, written: PlanTensor) -> bool:
    """Return whether two tensors are the same memory with the same coordinates."""
    affine = affine_between(tensor, written)
    return affine is not None and is_same(affine, tensor.sizes, written.sizes)


def _attention(weighted: Contract, scores: Contract) -> Attend | None:
    """Return the attention of two products; None if their spaces are not batches of plain matrices."""
    query, value = scores.product.space, weighted.product.space
    single = all(len(part) == 1 for space in (query, value) for part in (space.rows, space.columns, space.inner))
    plain = weighted.output.data_type is DataType.FLOAT32 and scores.epilogue.data_type is DataType.FLOAT32
    if not single or not plain or not 1 <= len(query.batch) <= 2:
        return None
    batch = (1, *query.batch)[-2:]
    lead = len(query.batch)
    rows, keys, head = *query.rows, *query.columns, *query.inner
    score = _matrices(scores.epilogue, (*batch, 1, rows, keys), lead, 3, 4)
    output = _matrices(weighted.output, (*batch, 1, rows, *value.columns), lead, 3, 4)
    assert isinstance(score, Body) and isinstance(output, PlanTensor)
    return Attend(
        weighted.label,
        _matrices(scores.product.a, (*batch, 1, rows, head), lead, 3, 4),
        _matrices(scores.product.b, (*batch, keys, head), lead, 3, 2),
        _matrices(weighted.product.b, (*batch, keys, *value.columns), lead, 2, 3),
        score,
        None,
        output,
    )


def _matrices(source: Source, sizes: Sizes, lead: int, rows: int, columns: int) -> Source:
    """Return matrices with ``lead`` dimensions of batches over a space of two, whose dimensions ``rows`` and
    ``columns`` are theirs."""
    picked = (*range(2 - lead, 2), rows, columns)
    steps = tuple(tuple(int(dimension == column) for dimension in range(len(sizes))) for column in picked)
    return reindex(source, sizes, Affine((0,) * len(picked), steps))
