"""Random nodes of attention: masks of -inf and of booleans, combined with causality, windows, lengths and a past."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from tests.unit.frontends.onnx.onnx_against import expected_of, model_of_node

Draw = np.random.Generator
MICROSOFT = "com.microsoft"

_FILTER = -64.0
"""Bias that hides a key, but small enough that float32 preserves the differences between hidden scores."""


@dataclass(frozen=True)
class Drawn:
    """A node: its inputs, outputs and attributes as ``onnx_against.model_of_node`` takes them.

    Attributes:
        lengths: Number of valid rows of the present keys and values, by sequence; empty for all.
    """

    op_type: str
    inputs: list[np.ndarray | None]
    outputs: list[str]
    attributes: dict[str, Any]
    domain: str = ""
    version: int = 22
    lengths: tuple[int, ...] = ()

    def model(self, inputs: list[np.ndarray | None] | None = None) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
        """Return a model of the node, optionally with other inputs, and its feeds."""
        return model_of_node(
            self.op_type,
            self.inputs if inputs is None else inputs,
            self.outputs,
            domain=self.domain,
            version=self.version,
            **self.attributes,
        )


def _normal(rng: Draw, *shape: int, kind: Any = np.float32) -> np.ndarray:
    return rng.standard_normal(shape).astype(kind)


def _hiding(rng: Draw, shape: tuple[int, ...], kind: Any, *, least: bool = True) -> np.ndarray:
    """A float mask: numbers, some -inf, rows that are -inf throughout; sometimes the least number of float32, too."""
    mask = rng.standard_normal(shape)
    mask[rng.random(shape) < rng.choice([0.2, 0.6])] = -np.inf
    mask[rng.random((*shape[:-1], 1)).repeat(shape[-1], -1) < 0.3] = -np.inf
    if least and kind is np.float32 and rng.random() < 0.2:
        mask[rng.random(shape) < 0.3] = np.finfo(np.float32).min
    return mask.astype(kind)


def _mask(rng: Draw, sizes: tuple[int, int, int, int], kind: Any, shortest: int) -> np.ndarray | None:
    """A mask that broadcasts to {batch, heads, rows, keys}, perhaps with fewer keys, or none."""
    sort = rng.choice(["none", "bool", "float", "float"])
    if sort == "none":
        return None
    rank = int(rng.integers(2, 5))
    shape = tuple(size if rng.random() < 0.7 else 1 for size in sizes[:3])[4 - rank :]
    shape = (*shape, int(rng.integers(shortest, sizes[3] + 1)) if rng.random() < 0.2 else sizes[3])
    if sort == "float":
        return _hiding(rng, shape, kind)
    mask = rng.random(shape) < 0.5
    mask[rng.random((*shape[:-1], 1)).repeat(shape[-1], -1) < 0.3] = False
    return mask


def attention(seed: int) -> Drawn:
    """Attention of ONNX."""
    rng = np.random.default_rng(seed)
    version = int(rng.choice([23, 24, 25]))
    kind = np.float32 if rng.random() < 0.75 else np.float16
    batch, shared, group = (int(rng.integers(1, most)) for most in (3, 3, 4))
    rows, new, size, width = (int(rng.integers(1, most)) for most in (5, 7, 6, 6))
    heads = shared * group
    lengths = version >= 24 and rng.random() < 0.4
    past = int(rng.integers(1, 4)) if not lengths and rng.random() < 0.4 else 0
    keys = new + past
    inputs: list[np.ndarray | None] = [
        _normal(rng, batch, heads, rows, size, kind=kind),
        _normal(rng, batch, shared, new, size, kind=kind),
        _normal(rng, batch, shared, new, width, kind=kind),
    ]
    attributes: dict[str, Any] = {"is_causal": int(rng.random() < 0.6)}
    if rng.random() < 0.5:
        inputs = [x.transpose(0, 2, 1, 3).reshape(batch, x.shape[2], -1) for x in inputs if x is not None]
        attributes |= {"q_num_heads": heads, "kv_num_heads": shared}
    inputs.append(_mask(rng, (batch, heads, rows, keys), kind, keys if lengths else 1))
    inputs += [_normal(rng, batch, shared, past, head_size, kind=kind) if past else None for head_size in (size, width)]
    if lengths:
        inputs.append(rng.integers(0, keys + 1, batch))
    if version == 25 and rng.random() < 0.6:
        attributes |= {f"{side}_window_size": int(rng.integers(-1, 3)) for side in ("left", "right")}
    if rng.random() < 0.3:
        attributes["softcap"] = 1.5
    if rng.random() < 0.3:
        attributes["scale"] = 0.7
    outputs = ["y", *(["k", "v"] if past else [])]
    if rng.random() < 0.4:
        outputs = [*outputs, *[""] * (3 - len(outputs)), "scores"]
        attributes["qk_matmul_output_mode"] = int(rng.integers(0, 4))
    return Drawn("Attention", inputs, outputs, attributes, version=version)


def multi_head_attention(seed: int) -> Drawn:
    """MultiHeadAttention of com.microsoft: masks of integers, a bias with -inf, causality, a past."""
    rng = np.random.default_rng(seed)
    batch, heads = (int(rng.integers(1, 3)) for _ in range(2))
    rows, size, width = (int(rng.integers(1, most)) for most in (5, 6, 6))
    causal = bool(rng.random() < 0.4)
    past = int(rng.integers(1, 4)) if rng.random() < 0.4 else 0
    width = size if past else width
    new = rows if past else int(rng.integers(1, 7))
    keys = new + past
    inputs: list[np.ndarray | None] = [
        _normal(rng, batch, rows, heads * size),
        _normal(rng, batch, new, heads * size),
        _normal(rng, batch, new, heads * width),
        _normal(rng, heads * (2 * size + width)) if rng.random() < 0.3 else None,
        _integer_mask(rng, batch, rows, keys),
        _hiding(rng, (int(rng.choice([1, batch])), int(rng.choice([1, heads])), rows, keys), np.float32)
        if rng.random() < 0.6
        else None,
    ]
    inputs += [_normal(rng, batch, heads, past, size) if past else None for _ in range(2)]
    attributes = {"num_heads": heads, "unidirectional": int(causal), "mask_filter_value": _FILTER}
    return Drawn("MultiHeadAttention", inputs, ["y", *(["k", "v"] if past else [])], attributes, MICROSOFT)


def _integer_mask(rng: Draw, batch: int, rows: int, keys: int) -> np.ndarray | None:
    """A mask of one of com.microsoft's shapes, or none."""
    sort = rng.choice(["none", "ends", "keys", "rows and keys"])
    if sort == "none":
        return None
    if sort == "ends":
        return rng.integers(0, keys + 1, batch).astype(np.int32)
    shape = (batch, keys) if sort == "keys" else (batch, rows, keys)
    return rng.integers(0, 2, shape).astype(np.int32)


def fused_attention(seed: int) -> Drawn:
    """Attention of com.microsoft: as ``multi_head_attention``, with its projection."""
    rng = np.random.default_rng(seed)
    batch, heads = (int(rng.integers(1, 3)) for _ in range(2))
    rows, size = int(rng.integers(1, 5)), int(rng.integers(1, 5))
    past = int(rng.integers(1, 4)) if rng.random() < 0.4 else 0
    keys = rows + past
    inputs: list[np.ndarray | None] = [
        _normal(rng, batch, rows, 4),
        _normal(rng, 4, 3 * heads * size),
        _normal(rng, 3 * heads * size),
        _integer_mask(rng, batch, rows, keys),
        _normal(rng, 2, batch, heads, past, size) if past else None,
        _hiding(rng, (int(rng.choice([1, batch])), int(rng.choice([1, heads])), rows, keys), np.float32)
        if not past and rng.random() < 0.8
        else None,
    ]
    attributes = {"num_heads": heads, "unidirectional": int(rng.random() < 0.5), "mask_filter_value": _FILTER}
    return Drawn("Attention", inputs, ["y", *(["present"] if past else [])], attributes, MICROSOFT)


def group_query_attention(seed: int) -> Drawn:
    """GroupQueryAttention: lengths, a window, a bias with -inf, a softcap, sinks."""
    rng = np.random.default_rng(seed)
    kind = np.float32 if rng.random() < 0.75 else np.float16
    batch, shared, group = (int(rng.integers(1, most)) for most in (3, 3, 4))
    size = 8 * int(rng.integers(1, 3))
    heads = shared * group
    past = int(rng.integers(2, 7)) if rng.random() < 0.6 else 0
    rows = int(rng.integers(1, min(past or 4, 4) + 1)) if not past or batch == 1 else 1
    keys = max(past, rows)
    last = rng.integers(rows - 1, keys, batch) if past else np.full(batch, rows - 1)
    attributes: dict[str, Any] = {"num_heads": heads, "kv_num_heads": shared}
    if rng.random() < 0.5:
        attributes["local_window_size"] = int(rng.integers(0, 4))
    if rng.random() < 0.3:
        attributes["softcap"] = 1.5
    inputs: list[np.ndarray | None] = [
        _normal(rng, batch, rows, heads * size, kind=kind),
        *(_normal(rng, batch, rows, shared * size, kind=kind) for _ in range(2)),
        *(_normal(rng, batch, shared, past, size, kind=kind) if past else None for _ in range(2)),
        last.astype(np.int32),
        np.array(int(last.max()) + 1, np.int32),
        *(None,) * 3,
    ]
    total = int(last.max()) + 1
    biased = rng.random() < 0.5
    inputs.append(_hiding(rng, (1, int(rng.choice([1, heads])), rows, total), kind, least=False) if biased else None)
    sink = rng.random()
    if sink < 0.2:
        inputs.append(_normal(rng, heads, kind=kind))
    elif sink < 0.4:
        attributes["smooth_softmax"] = 1
    return Drawn(
        "GroupQueryAttention",
        inputs,
        ["y", "k", "v"],
        attributes,
        MICROSOFT,
        lengths=tuple(int(position) + 1 for position in last),
    )


# ---- results of others

Results = list[np.ndarray]


def expected(drawn: Drawn) -> list[Results]:
    """Return the results of onnxruntime and, if it supports the operator, of ONNX's reference.

    They differ from each other and from ONNX's specification in these cases:

    - The reference takes causality of the first query for all if the mask has one row, and onnxruntime rejects masks
      that are shorter than the keys: both are given the mask in full.
    - The reference returns scores after the softcap for ``qk_matmul_output_mode`` 0.
    - onnxruntime has -3.4e38 for -inf in the scores of mode 2, and hides nothing of some masks where there is a past.
    - GroupQueryAttention of onnxruntime has 0 for a query that sees no key, or NaN, depending on types and lengths.
    """
    if drawn.domain == MICROSOFT:
        (y, *rest) = expected_of(*drawn.model())
        y = np.where(np.isnan(y), 0, y) if drawn.op_type == "GroupQueryAttention" else y
        return [[y, *rest]]
    model, feeds = drawn.model(_in_full(drawn))
    return [expected_of(model, feeds), ReferenceEvaluator(model).run(None, feeds)]


def _in_full(drawn: Drawn) -> list[np.ndarray | None]:
    """Return the inputs with the mask of all queries and keys."""
    query, key, value, mask, past, *rest = drawn.inputs
    if mask is None:
        return drawn.inputs
    assert query is not None
    assert key is not None
    rows, keys = query.shape[-2], key.shape[-2] + (0 if past is None else past.shape[2])
    filler = False if mask.dtype == np.bool_ else -np.inf
    mask = np.pad(mask, [(0, 0)] * (mask.ndim - 1) + [(0, keys - mask.shape[-1])], constant_values=filler)
    mask = np.ascontiguousarray(np.broadcast_to(mask, (*mask.shape[:-2], rows, keys)))
    return [query, key, value, mask, past, *rest]


def is_right(drawn: Drawn, results: dict[str, np.ndarray], *, tolerance: float = 1e-5) -> bool:
    """Return whether each output agrees with one of the others in its valid rows."""
    alike = [
        [_agree(drawn, name, result, other, tolerance) for other in others]
        for (name, result), *others in zip(results.items(), *expected(drawn), strict=True)
    ]
    return all(map(any, alike))


def _agree(drawn: Drawn, name: str, result: np.ndarray, other: np.ndarray, tolerance: float) -> bool:
    if result.shape != other.shape or result.dtype != other.dtype:
        return False
    if result.dtype == np.float16:
        tolerance = 5e-3
    counts = list(drawn.lengths) if name in ("k", "v") else []
    pairs = [(result[at, :, :count], other[at, :, :count]) for at, count in enumerate(counts)] or [(result, other)]
    return all(
        np.allclose(mine.astype(float), its.astype(float), rtol=tolerance, atol=tolerance, equal_nan=True)
        for mine, its in pairs
    )
