"""Layers with a state instead of attention: causal convolutions, and the selective scan of Mamba-2.

These operators are dmlgpu's own, for networks of GGUF files. Their states are caches without rows: a step replaces
them. Only the first tokens of a sequence count; the others, which fill a batch or a chunk, change no state. A sequence
with no tokens before has states of 0, regardless of its caches.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dmlgpu.catalog.enums import DataType, MatrixTransform, ReduceFunction
from dmlgpu.frontends.onnx.attention import hidden_where, repeated
from dmlgpu.frontends.onnx.expressions import broadcast_to, cast, reshaped, same, sequence, spread, transposed
from dmlgpu.frontends.onnx.node import OnnxNode
from dmlgpu.frontends.onnx.operators import DMLGPU
from dmlgpu.frontends.onnx.registry import operator
from dmlgpu.frontends.onnx.values import OnnxValue
from dmlgpu.tensors import directml
from dmlgpu.tensors import directmlx as dml
from dmlgpu.tensors.tensor import Tensor

FLOAT32, INT32 = DataType.FLOAT32, DataType.INT32

SCAN_ROWS = 128
"""Maximum rows of a scan's products: scores of a head take the square of them."""


@operator("CausalConvolution", domain=DMLGPU)
def causal_convolution(node: OnnxNode) -> tuple[OnnxValue, OnnxValue]:
    """Convolve each channel of {batch, rows, channels} with the rows before it.

    Inputs are rows, weights {channels, taps}, an optional bias {channels}, the state {batch, taps - 1, channels}, which
    has the last rows before, and the numbers of tokens before and of those that count, INT32 {batch}. Outputs are the
    result and the state afterwards. ``activation`` may be "silu".
    """
    node.check_rank(0, 3)
    batch, rows, channels = node.shape(0)
    taps = node.shape(1)[1]
    x, weight, bias = node.tensor(0), node.tensor(1), node.optional_tensor(2)
    wide = dml.join([_begun(node, 3, 4), x], 1)
    total = None
    for tap in range(taps):
        part = dml.slice(wide, (0, tap, 0), (batch, rows, channels))
        column = dml.slice(weight, (0, tap), (channels, 1))
        product = dml.multiply(part, broadcast_to(reshaped(column, (1, 1, channels)), part.sizes))
        total = product if total is None else dml.add(total, product)
    assert total is not None
    if bias is not None:
        total = dml.add(total, broadcast_to(reshaped(bias, (1, 1, channels)), total.sizes))
    if node.text("activation") == "silu":
        total = dml.multiply(total, dml.activation_sigmoid(total))
    places = spread(dml.add, reshaped(node.tensor(5), (batch, 1, 1)), sequence(x, (1, taps - 1, 1), INT32))
    state_sizes = (batch, taps - 1, channels)
    state = directml.gather_elements(wide, dml.identity(broadcast_to(places, state_sizes)), axis=1)
    return node.valued(total, (batch, rows, channels)), node.valued(state, state_sizes)


@dataclass(frozen=True)
class _Scan:
    """Operands of a scan, FLOAT32, or some of their rows.

    Attributes:
        values: Values times steps, {batch, heads, rows, size}.
        decays: Logarithms of the factors of the state, {batch, heads, rows, 1}, at most 0.
        keys, queries: Rows that values are written to and read by, {batch, groups, rows, entries}.
    """

    values: Tensor
    decays: Tensor
    keys: Tensor
    queries: Tensor

    def part(self, start: int, count: int) -> _Scan:
        """Return some of the rows."""

        def cut(x: Tensor) -> Tensor:
            result: Tensor = dml.slice(x, (0, 0, start, 0), (*x.sizes[:2], count, x.sizes[3]))
            return result

        return _Scan(*map(cut, (self.values, self.decays, self.keys, self.queries)))


@operator("SelectiveScan", domain=DMLGPU)
def selective_scan(node: OnnxNode) -> tuple[OnnxValue, OnnxValue]:
    """Compute the state space of Mamba-2 per head: S <- exp(dt a) S + dt x b^T, y = S c + d x.

    Inputs are x {batch, rows, heads * size}, b and c {batch, rows, groups * entries}, dt {batch, rows, heads}, a, d and
    the bias of dt {heads}, the state FLOAT {batch, heads, size, entries}, and the numbers of tokens before and of those
    that count, INT32 {batch}. Outputs are y and the state afterwards. dt is the softplus of its input and bias. A group
    of heads shares b and c.

    Rows are computed by products, ``SCAN_ROWS`` at once: y of a row is that of the state before, decayed, and a sum
    over the rows up to it, whose weights are (c . b) times the decay between them.
    """
    node.check_rank(0, 3)
    (batch, rows, _), (_, heads, size, entries) = node.shape(0), node.shape(7)
    groups = node.shape(1)[2] // entries
    by_head = (batch, rows, heads, 1)
    x = reshaped(cast(node.tensor(0), FLOAT32), (batch, rows, heads, size))
    dt = reshaped(cast(node.tensor(3), FLOAT32), by_head)
    dt = dml.activation_softplus(dml.add(dt, _per_head(node, 6, by_head)))
    counts = broadcast_to(reshaped(node.tensor(9), (batch, 1, 1, 1)), by_head)
    counting = dml.less_than(broadcast_to(sequence(x, (1, rows, 1, 1), INT32), by_head), counts)
    dt = dml.if_(counting, dt, same(dt, 0))
    scan = _Scan(
        _heads_first(dml.multiply(x, broadcast_to(dt, x.sizes))),
        _heads_first(dml.multiply(dt, _per_head(node, 4, by_head))),
        *(
            _heads_first(reshaped(cast(node.tensor(index), FLOAT32), (batch, rows, groups, entries)))
            for index in (1, 2)
        ),
    )
    state = _begun(node, 7, 8)
    parts = []
    if rows == 1:
        y, state = _one_row(scan, state)
        parts.append(y)
    else:
        for start in range(0, rows, SCAN_ROWS):
            count = min(SCAN_ROWS, rows - start)
            y, state = _several_rows(scan if count == rows else scan.part(start, count), state)
            parts.append(y)
    y = transposed(parts[0] if len(parts) == 1 else dml.join(parts, 2), (0, 2, 1, 3))
    y = dml.add(y, dml.multiply(x, _per_head(node, 5, x.sizes)))
    shape = (batch, rows, heads * size)
    return node.valued(cast(reshaped(y, shape), node.data_type(0)), shape), node.valued(state, node.shape(7))


def _one_row(scan: _Scan, state: Tensor) -> tuple[Tensor, Tensor]:
    """Return y {batch, heads, 1, size} of a row, and the state afterwards."""
    batch, heads, size, _ = state.sizes
    column = reshaped(scan.values, (batch, heads, size, 1))
    keys, queries = (broadcast_to(repeated(x, heads), state.sizes) for x in (scan.keys, scan.queries))
    decayed = dml.multiply(state, broadcast_to(dml.exp(scan.decays), state.sizes))
    state = dml.add(decayed, dml.multiply(broadcast_to(column, state.sizes), keys))
    y = dml.reduce(dml.multiply(state, queries), ReduceFunction.SUM, axes=(3,))
    return reshaped(y, (batch, heads, 1, size)), state


def _several_rows(scan: _Scan, state: Tensor) -> tuple[Tensor, Tensor]:
    """Return y {batch, heads, rows, size} of rows, and the state afterwards."""
    batch, heads, rows, _ = scan.values.sizes
    sums = directml.cumulative_summation(
        dml.identity(scan.decays), axis=2, axis_direction="increasing", has_exclusive_sum=False
    )
    square = (batch, heads, rows, rows)
    earlier = reshaped(sums, (batch, heads, 1, rows))
    lasting = dml.subtract(broadcast_to(sums, square), broadcast_to(earlier, square))
    numbers = sequence(sums, (1, 1, rows, 1), INT32), sequence(sums, (1, 1, 1, rows), INT32)
    is_later = spread(dml.less_than, *numbers)
    lasting = dml.exp(dml.add(lasting, broadcast_to(hidden_where(is_later, -math.inf, FLOAT32), square)))
    scores = directml.gemm(scan.queries, scan.keys, trans_b=MatrixTransform.TRANSPOSE)
    inner = directml.gemm(dml.multiply(repeated(scores, heads), lasting), scan.values)
    keys, queries = (repeated(x, heads) for x in (scan.keys, scan.queries))
    outer = directml.gemm(queries, state, trans_b=MatrixTransform.TRANSPOSE)
    y = dml.add(inner, dml.multiply(outer, broadcast_to(dml.exp(sums), outer.sizes)))
    last = dml.slice(sums, (0, 0, rows - 1, 0), (batch, heads, 1, 1))
    rest = dml.exp(dml.subtract(broadcast_to(last, sums.sizes), sums))
    written = dml.multiply(scan.values, broadcast_to(rest, scan.values.sizes))
    added = directml.gemm(written, keys, trans_a=MatrixTransform.TRANSPOSE)
    return y, dml.add(dml.multiply(state, broadcast_to(dml.exp(last), state.sizes)), added)


def _heads_first(x: Tensor) -> Tensor:
    """Return {batch, rows, heads, size} as {batch, heads, rows, size}."""
    result: Tensor = dml.identity(transposed(x, (0, 2, 1, 3)))
    return result


def _per_head(node: OnnxNode, index: int, sizes: tuple[int, ...]) -> Tensor:
    """Return an input {heads} as FLOAT32 in sizes {batch, rows, heads, ..}."""
    x = cast(node.tensor(index), FLOAT32)
    return broadcast_to(reshaped(x, (1, 1, sizes[2], 1)), sizes)


def _begun(node: OnnxNode, index: int, before: int) -> Tensor:
    """Return a state, 0 in sequences with no tokens before."""
    state = node.tensor(index)
    counts = reshaped(node.tensor(before), (state.sizes[0], *(1,) * (len(state.sizes) - 1)))
    begun = dml.greater_than(counts, same(counts, 0))
    return dml.if_(broadcast_to(begun, state.sizes), state, same(state, 0))
