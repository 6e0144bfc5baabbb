"""Attention in all its forms, rotary embeddings, linear attention."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.fuzz.onnx_nodes.draw import MICROSOFT, Array, Draw, NodeCase, generator

_FLOATS = ("float32", "float32", "float16")


def _mask(draw: Draw, dtype: str, shape: tuple[int, ...]) -> Array:
    """A mask of booleans or floats, with some rows hidden throughout."""
    if draw.chance(0.5):
        return draw.array("bool", shape)
    mask = draw.array(dtype, shape, -2, 2)
    hidden = draw.array("bool", shape)
    return np.where(hidden, np.array(-np.inf, dtype), mask) if draw.chance(0.5) else mask


@generator("Attention")
def attention(draw: Draw) -> NodeCase:
    dtype = draw.pick(*_FLOATS)
    batch, heads = draw.integer(1, 2), draw.integer(1, 2)
    groups = draw.pick(1, 1, 2)
    size, value_size = draw.pick(2, 4, 8), draw.pick(2, 4)
    queries, keys = draw.integer(1, 5), draw.integer(1, 6)
    past = draw.integer(1, 3) if draw.chance(0.3) else 0
    flat = draw.chance(0.3)

    def rows(count: int, number: int, width: int) -> Array:
        shape = (batch, number, count * width) if flat else (batch, count, number, width)
        return draw.tensor(dtype, shape, -2, 2)

    inputs: list[Array | None] = [
        rows(groups * heads, queries, size),
        rows(heads, keys, size),
        rows(heads, keys, value_size),
    ]
    total = past + keys
    shape = draw.broadcast((batch, groups * heads, queries, total))
    if len(shape) < 2 or shape[-1] != total:
        shape = (queries, total)
    inputs.append(_mask(draw, dtype, shape) if draw.chance(0.6) else None)
    outputs = 1
    if past:
        inputs += [draw.array(dtype, (batch, heads, past, width)) for width in (size, value_size)]
        outputs = 3
    elif draw.version >= 24 and draw.chance(0.3):
        inputs += [None, None, draw.array("int64", (batch,), 1, keys)]
    options: dict[str, Any] = {
        "is_causal": draw.maybe(0, 1),
        "softcap": draw.maybe(0.0, 2.0, probability=0.3),
    }
    if draw.version >= 25:
        options |= {name: draw.maybe(0, 1, 3, probability=0.2) for name in ("left_window_size", "right_window_size")}
    if flat:
        options |= {"q_num_heads": groups * heads, "kv_num_heads": heads}
    if outputs == 1 and draw.chance(0.15):
        outputs = 4
        options["qk_matmul_output_mode"] = draw.pick(0, 1, 2, 3)
    absent = (1, 2) if outputs == 4 else ()
    case = draw.case(*inputs, outputs=outputs, absent=absent, length=64, scale=4, **options)
    if draw.chance(0.3):
        case.attributes["scale"] = 0.5
    return case


@generator("RotaryEmbedding")
def rotary(draw: Draw) -> NodeCase:
    batch, heads, steps, size = draw.integer(1, 2), draw.integer(1, 3), draw.integer(1, 4), draw.pick(2, 4, 8)
    dtype = draw.pick(*_FLOATS)
    flat = draw.chance(0.4)
    x = draw.tensor(dtype, (batch, steps, heads * size) if flat else (batch, heads, steps, size))
    part = draw.pick(0, 0, 2) if size > 2 else 0
    half = (part or size) // 2
    positions = draw.array("int64", (batch, steps), 0, 5) if draw.chance(0.6) else None
    shape = (6, half) if positions is not None else (batch, steps, half)
    tables = [draw.array(dtype, shape, -1, 1) for _ in range(2)]
    options = {"interleaved": draw.maybe(0, 1), "rotary_embedding_dim": part or None}
    if flat:
        options["num_heads"] = heads
    return draw.case(x, *tables, positions, **options)


@generator("RotaryEmbedding", domain=MICROSOFT)
def microsoft_rotary(draw: Draw) -> NodeCase:
    batch, heads, steps, size = draw.integer(1, 2), draw.integer(1, 3), draw.integer(1, 4), draw.pick(2, 4, 8)
    flat = draw.chance(0.6)
    x = draw.tensor("float32", (batch, steps, heads * size) if flat else (batch, heads, steps, size))
    # One number is where all batches begin.
    positions = draw.array("int64", *(((batch, steps), 0, 5) if draw.chance(0.5) else ((1,), 0, 2)))
    tables = [draw.array("float32", (8, size // 2), -1, 1) for _ in range(2)]
    return draw.case(x, positions, *tables, interleaved=draw.maybe(0, 1))


@generator("Attention", domain=MICROSOFT)
def microsoft_attention(draw: Draw) -> NodeCase:
    batch, steps, heads, size, width = (
        draw.integer(1, 2),
        draw.integer(1, 5),
        draw.integer(1, 3),
        draw.pick(2, 4),
        draw.integer(2, 6),
    )
    x = draw.tensor("float32", (batch, steps, width), -2, 2)
    hidden = heads * size
    weights, bias = draw.array("float32", (width, 3 * hidden), -1, 1), draw.array("float32", (3 * hidden,), -1, 1)
    inputs: list[Array | None] = [x, weights, bias if draw.chance(0.8) else None]
    past = draw.integer(1, 3) if draw.chance(0.2) else 0
    total = past + steps
    masks = [
        None,
        draw.array("int32", (batch, total), 0, 1),
        draw.array("int32", (batch,), 1, total),
        np.concatenate([draw.array("int32", (batch,), 1, total), np.zeros(batch, "int32")]),  # ends, then beginnings
        draw.array("int32", (batch, steps, total), 0, 1),
    ]
    mask = draw.pick(*masks)
    # A row that hides everything is left open.
    if mask is not None and mask.ndim > 1:
        mask[..., 0] = 1
    inputs.append(mask)
    inputs.append(draw.array("float32", (2, batch, heads, past, size)) if past else None)
    inputs.append(draw.array("float32", (batch, heads, steps, total)) if draw.chance(0.3) else None)
    options = {"num_heads": heads, "unidirectional": draw.maybe(0, 1)}
    return draw.case(*inputs, outputs=2 if past or draw.chance(0.3) else 1, length=64, scale=16, **options)


@generator("MultiHeadAttention", domain=MICROSOFT)
def multi_head(draw: Draw) -> NodeCase:
    batch, heads, size, value_size = draw.integer(1, 2), draw.integer(1, 3), draw.pick(2, 4), draw.pick(2, 4)
    queries, keys = draw.integer(1, 5), draw.integer(1, 5)
    dtype = "float32"
    q = draw.tensor(dtype, (batch, queries, heads * size), -2, 2)
    k = draw.tensor(dtype, (batch, keys, heads * size), -2, 2)
    v = draw.tensor(dtype, (batch, keys, heads * value_size), -2, 2)
    past = draw.integer(1, 3) if draw.chance(0.2) else 0
    total = keys + past
    bias = draw.array(dtype, (heads * (2 * size + value_size),)) if draw.chance(0.4) else None
    mask = draw.pick(
        None, draw.array("int32", (batch, total), 0, 1), draw.array("int32", (batch, queries, total), 0, 1)
    )
    if mask is not None:
        mask[..., 0] = 1
    extra = draw.array(dtype, (draw.pick(1, batch), draw.pick(1, heads), queries, total)) if draw.chance(0.3) else None
    inputs: list[Array | None] = [q, k, v, bias, mask, extra]
    if past:
        inputs += [draw.array(dtype, (batch, heads, past, width)) for width in (size, value_size)]
    options = {"num_heads": heads, "unidirectional": draw.maybe(0, 1)}
    case = draw.case(*inputs, outputs=3 if past or draw.chance(0.2) else 1, length=64, scale=16, **options)
    if draw.chance(0.2):
        case.attributes["scale"] = 0.5
    return case


@generator("GroupQueryAttention", domain=MICROSOFT)
def group_query(draw: Draw) -> NodeCase:
    batch, heads, groups, size = draw.integer(1, 2), draw.integer(1, 2), draw.pick(1, 2), draw.pick(8, 16)
    capacity = draw.integer(4, 8)
    first = draw.chance(0.5)
    steps = draw.integer(2, capacity) if first else 1
    q = draw.tensor("float32", (batch, steps, groups * heads * size), -2, 2)
    k, v = (draw.tensor("float32", (batch, steps, heads * size), -2, 2) for _ in range(2))
    past = [draw.array("float32", (batch, heads, capacity, size)) for _ in range(2)]
    lengths = np.full((batch,), steps - 1, "int32") if first else draw.array("int32", (batch,), 0, capacity - 1)
    total = np.array(steps if first else int(lengths.max()) + 1, "int32")
    # Contents of invalid rows of the cache are unspecified.
    for cache in past:
        for row, length in enumerate(lengths):
            cache[row, :, 0 if first else length :] = 0
    options: dict[str, Any] = {"num_heads": groups * heads, "kv_num_heads": heads}
    options["local_window_size"] = draw.maybe(2, 3, probability=0.2)
    options["softcap"] = draw.maybe(2.0, probability=0.2)
    inputs: list[Array | None] = [q, k, v, *past, lengths, total]
    if draw.chance(0.4):
        inputs += [draw.array("float32", (capacity, size // 2), -1, 1) for _ in range(2)]
        options |= {"do_rotary": 1, "rotary_interleaved": draw.maybe(0, 1)}
    case = draw.case(*inputs, outputs=3, length=64, scale=16, **options)
    if draw.chance(0.2):
        case.attributes["scale"] = 0.5
    return case


@generator("EmbedLayerNormalization", domain=MICROSOFT)
def embed(draw: Draw) -> NodeCase:
    batch, steps, width = draw.integer(1, 2), draw.integer(1, 4), draw.integer(2, 6)
    words = draw.array("int32", (batch, steps), 0, 4)
    segments = draw.array("int32", (batch, steps), 0, 1) if draw.chance(0.6) else None
    tables = [draw.array("float32", (count, width)) for count in (5, 6, 2)]
    rows = [draw.array("float32", (width,)) for _ in range(2)]
    mask = draw.array("int32", (batch, steps), 0, 1) if draw.chance(0.4) else None
    outputs = 2
    table = tables[2] if segments is not None else None
    return draw.case(
        words, segments, *tables[:2], table, *rows, mask, outputs=outputs, epsilon=1e-3, length=width, scale=16
    )


@generator("BiasAdd", "BiasSplitGelu", domain=MICROSOFT)
def stable_diffusion(draw: Draw) -> NodeCase:
    batch, steps, width = draw.integer(1, 2), draw.integer(1, 4), 2 * draw.integer(1, 4)
    x, bias = draw.tensor("float32", (batch, steps, width)), draw.tensor("float32", (width,))
    return draw.case(x, bias, *([draw.tensor("float32", x.shape)] if draw.op_type == "BiasAdd" else []))


@generator("CausalConvWithState")
def causal_conv(draw: Draw) -> NodeCase:
    batch, channels, steps, width = draw.integer(1, 2), draw.integer(1, 4), draw.integer(1, 6), draw.integer(1, 4)
    dtype = draw.pick(*_FLOATS)
    x = draw.tensor(dtype, (batch, channels, steps))
    weight = draw.array(dtype, (channels, 1, width))
    bias = draw.array(dtype, (channels,)) if draw.chance(0.5) else None
    state = draw.array(dtype, (batch, channels, width - 1)) if draw.chance(0.5) and width > 1 else None
    return draw.case(x, weight, bias, state, activation=draw.maybe("none", "silu"), outputs=2, length=width, scale=16)


@generator("LinearAttention")
def linear_attention(draw: Draw) -> NodeCase:
    batch, heads, steps, size, value_size = (
        draw.integer(1, 2),
        draw.integer(1, 2),
        draw.integer(1, 4),
        draw.pick(2, 4),
        draw.pick(2, 4),
    )
    rule = draw.pick("linear", "gated", "delta", "gated_delta")
    dtype = draw.pick(*_FLOATS)
    q, k = (draw.tensor(dtype, (batch, steps, heads * size), -1, 1) for _ in range(2))
    v = draw.tensor(dtype, (batch, steps, heads * value_size), -1, 1)
    state = draw.array(dtype, (batch, heads, size, value_size)) if draw.chance(0.5) else None
    decay = (
        draw.array(dtype, (batch, steps, heads * draw.pick(1, size)), -1, 0)
        if rule in ("gated", "gated_delta")
        else None
    )
    beta = draw.array(dtype, (batch, steps, heads), 0, 1) if rule in ("delta", "gated_delta") else None
    options = {"q_num_heads": heads, "kv_num_heads": heads, "update_rule": rule}
    return draw.case(q, k, v, state, decay, beta, outputs=2, length=64, scale=16, **options)
