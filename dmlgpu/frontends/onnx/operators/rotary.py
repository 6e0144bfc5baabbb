"""RotaryEmbedding, and the rotation that GroupQueryAttention shares."""

from __future__ import annotations

from collections.abc import Sequence

from dmlgpu.catalog.enums import DataType
from dmlgpu.frontends.onnx.node import Node, broadcast_to, reshaped, transposed
from dmlgpu.frontends.onnx.operators.fused_activation import MICROSOFT
from dmlgpu.frontends.onnx.registry import AS_FUNCTION, Result, operator
from dmlgpu.frontends.onnx.values import Value
from dmlgpu.tensors.graphs import directmlx as dml
from dmlgpu.tensors.graphs import functions
from dmlgpu.tensors.graphs.expression import Expression


def rotated(x: Expression, cos: Expression, sin: Expression, *, interleaved: bool) -> Expression:
    """Return pairs of numbers of each head turned by angles.

    Args:
        x: {batch, rows, heads, size}.
        cos, sin: {batch or 1, rows, 1, pairs}; numbers of a head behind the pairs stay as they are.
        interleaved: whether pairs are neighbours; else the first half pairs with the second.
    """
    batch, rows, heads, size = x.sizes
    pairs = cos.sizes[3]
    turned, *rest = dml.split(x, 3, (2 * pairs, size - 2 * pairs)) if size > 2 * pairs else (x,)
    axis = 4 if interleaved else 3
    wide = (batch, rows, heads, pairs, 2) if interleaved else (batch, rows, heads, 2, pairs)
    one, other = (
        reshaped(half, (batch, rows, heads, pairs)) for half in dml.split(reshaped(turned, wide), axis, (1, 1))
    )
    cos, sin = broadcast_to(cos, one.sizes), broadcast_to(sin, one.sizes)
    parts = (
        dml.subtract(dml.multiply(one, cos), dml.multiply(other, sin)),
        dml.add(dml.multiply(one, sin), dml.multiply(other, cos)),
    )
    each = (*wide[:axis], 1, *wide[axis + 1 :])
    found = reshaped(dml.join([reshaped(part, each) for part in parts], axis), (batch, rows, heads, 2 * pairs))
    return dml.join([found, *rest], 3) if rest else found


def angles(table: Expression, places: Expression) -> Expression:
    """Return the rows {batch, rows, 1, pairs} of a table {places, pairs} that places {batch, rows} name."""
    batch, rows = places.sizes
    found = functions.gather(
        reshaped(table, (1, *table.sizes)), reshaped(places, (1, batch, rows)), axis=1, index_dimensions=2
    )
    return reshaped(found, (batch, rows, 1, table.sizes[1]))


@operator("RotaryEmbedding", since=23)
def rotary_embedding_as_function(node: Node) -> Sequence[Result]:
    """ONNX's own body, whose Gather would take negative places."""
    if node.has(3):
        node.check_range(3, 0, node.shape(1)[0] - 1, "position_ids")
    return AS_FUNCTION


@operator("RotaryEmbedding", domain=MICROSOFT)
def rotary_embedding(node: Node) -> Value:
    """Turn pairs of numbers by angles that depend on the place: given for all, or counted from one number on."""
    if node.flag("is_packed_batching"):
        raise node.refusal("attribute is_packed_batching is not supported")
    node.check_rank(0, 3, 4)
    node.check_rank(2, 2)
    x, shape = node.tensor(0), node.shape(0)
    heads, given = node.integer("num_heads"), node.integer("rotary_embedding_dim")
    pairs = node.shape(2)[1]
    if len(shape) == 4:
        x = transposed(x, (0, 2, 1, 3))
    elif given or heads:
        if heads < 1 or shape[2] % heads:
            raise node.refusal(f"num_heads must divide {shape[2]}, got {heads}")
        x = reshaped(x, (*shape[:2], heads, shape[2] // heads))
    else:
        x = reshaped(x, (*shape[:2], shape[2] // (2 * pairs), 2 * pairs))
    batch, rows = x.sizes[:2]
    last = node.shape(2)[0] - (1 if node.shape(1) == (batch, rows) else rows)
    node.check_range(1, 0, last, "position_ids")
    places = dml.cast(node.tensor(1), DataType.INT32)
    if places.sizes != (batch, rows):
        counted = dml.fill_value_sequence(node.builder, (1, rows), DataType.INT32, 0, 1)
        places = dml.add(broadcast_to(counted, (batch, rows)), broadcast_to(reshaped(places, (1, 1)), (batch, rows)))
    cos, sin = (angles(node.tensor(number), places) for number in (2, 3))
    found = rotated(x, cos, sin, interleaved=node.flag("interleaved"))
    if len(shape) == 4:
        return node.valued(transposed(found, (0, 2, 1, 3)))
    return node.valued(found, shape)
