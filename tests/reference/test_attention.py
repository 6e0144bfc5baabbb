"""Attention against ONNX's evaluator, onnxruntime's contributed operators, and the formula row by row."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from dmlgpu import descs, reference
from dmlgpu.catalog import operator
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.enums import MultiheadAttentionMaskType as MaskType
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.compiler import operators
from tests.reference.helpers import tensor

BATCH, QUERIES, KEYS, HEADS, SIZE, VALUE_SIZE = 2, 5, 7, 4, 8, 6
MICROSOFT = "com.microsoft"


TENSORS = [field.python_name for field in operator("MULTIHEAD_ATTENTION1").tensor_fields]


def attention(
    arrays: dict[str, Any],
    heads: tuple[int, int] = (HEADS, HEADS),
    present: dict[str, Any] | None = None,
    **fields: Any,
) -> tuple[Any, ...]:
    """MULTIHEAD_ATTENTION1 of named arrays; the output's size follows from the values."""
    before = fields.pop("before", None)
    first = next(array for name, array in arrays.items() if "query" in name)
    tensors: dict[str, Any] = dict.fromkeys(TENSORS)
    tensors |= {name: tensor(array) for name, array in arrays.items()}
    sizes = (*first.shape[:2], heads[0] * _value_size(arrays, heads[1]))
    tensors["output_tensor"] = TensorDesc(DataType.FLOAT32, sizes)
    tensors |= {name: TensorDesc(DataType.FLOAT32, sizes) for name, sizes in (present or {}).items()}
    attributes: dict[str, Any] = {"scale": 0.3, "mask_filter_value": -10000.0, "mask_type": MaskType.NONE, **fields}
    attributes |= {"query_head_count": heads[0], "key_value_head_count": heads[1]}
    desc = descs.MultiheadAttention1(**tensors, **attributes)
    operators.check(desc)
    return reference.evaluate(desc, [arrays.get(slot.field) for slot in desc.inputs], before)


def _value_size(arrays: dict[str, Any], shared: int) -> int:
    if "value_tensor" in arrays:
        return int(arrays["value_tensor"].shape[-1] // shared)
    return int(next(array for name, array in arrays.items() if "value" in name).shape[-1])


def floats(rng: np.random.Generator, *sizes: int) -> Any:
    return rng.standard_normal(sizes).astype(np.float32)


def separate(rng: np.random.Generator, queries: int = QUERIES, keys: int = KEYS, shared: int = HEADS) -> dict[str, Any]:
    return {
        "query_tensor": floats(rng, BATCH, queries, HEADS * SIZE),
        "key_tensor": floats(rng, BATCH, keys, shared * SIZE),
        "value_tensor": floats(rng, BATCH, keys, shared * VALUE_SIZE),
    }


# ---- onnxruntime's contributed operators


def contributed(operator: str, inputs: list[Any], outputs: int = 1, **attributes: Any) -> Any:
    """Run an operator of onnxruntime's own domain; None is an absent input."""
    names = ["" if array is None else f"x{index}" for index, array in enumerate(inputs)]
    results = [f"y{index}" for index in range(outputs)]
    node = helper.make_node(operator, names, results, domain=MICROSOFT, **attributes)
    declared = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in zip(names, inputs, strict=True)
        if name
    ]
    result = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in results]
    graph = helper.make_graph([node], operator, declared, result)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(MICROSOFT, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {name: array for name, array in zip(names, inputs, strict=True) if name})


def multihead(arrays: dict[str, Any], bias: Any = None, mask: Any = None, position: Any = None, **more: Any) -> Any:
    """com.microsoft.MultiHeadAttention on separate tensors."""
    parts = [arrays.get(f"{part}_tensor") for part in ("query", "key", "value")]
    past = [arrays.get(f"past_{part}_tensor") for part in ("key", "value")]
    return contributed("MultiHeadAttention", [*parts, bias, mask, position, *past], num_heads=HEADS, scale=0.3, **more)


def near(got: Any, want: Any) -> None:
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


def test_separate_tensors_agree_with_onnxruntime() -> None:
    arrays = separate(np.random.default_rng(1))
    near(attention(arrays)[0], multihead(arrays)[0])


def test_a_bias_agrees_with_onnxruntime() -> None:
    rng = np.random.default_rng(2)
    arrays, bias = separate(rng), floats(rng, HEADS * (2 * SIZE + VALUE_SIZE))
    near(attention({**arrays, "bias_tensor": bias})[0], multihead(arrays, bias=bias)[0])


def test_relative_positions_agree_with_onnxruntime() -> None:
    rng = np.random.default_rng(3)
    arrays, position = separate(rng), floats(rng, BATCH, HEADS, QUERIES, KEYS)
    near(attention({**arrays, "relative_position_bias_tensor": position})[0], multihead(arrays, position=position)[0])


def test_key_lengths_agree_with_onnxruntime() -> None:
    arrays, lengths = separate(np.random.default_rng(4)), np.array([3, 7], np.int32)
    got = attention({**arrays, "mask_tensor": lengths.reshape(1, -1)}, mask_type=MaskType.KEY_SEQUENCE_LENGTH)
    near(got[0], multihead(arrays, mask=lengths)[0])


def test_boolean_masks_agree_with_onnxruntime() -> None:
    """onnxruntime's mask has one row for all queries of a sequence."""
    rng = np.random.default_rng(5)
    arrays, mask = separate(rng), (rng.random((BATCH, KEYS)) < 0.6).astype(np.int32)
    everywhere = np.broadcast_to(mask[:, None, None], (BATCH, HEADS, QUERIES, KEYS)).copy()
    got = attention({**arrays, "mask_tensor": everywhere}, mask_type=MaskType.BOOLEAN)
    near(got[0], multihead(arrays, mask=mask)[0])


def test_past_and_present_agree_with_onnxruntime() -> None:
    rng = np.random.default_rng(6)
    arrays = separate(rng)
    past = {
        "past_key_tensor": floats(rng, BATCH, HEADS, 3, SIZE),
        "past_value_tensor": floats(rng, BATCH, HEADS, 3, SIZE),
    }
    arrays["value_tensor"] = floats(rng, BATCH, KEYS, HEADS * SIZE)
    sizes = (BATCH, HEADS, 3 + KEYS, SIZE)
    present = {"output_present_key_tensor": sizes, "output_present_value_tensor": sizes}
    want = multihead({**arrays, **past}, outputs=3)
    for got, other in zip(attention({**arrays, **past}, present=present), want, strict=True):
        near(got, other)


STACKS = {
    "stacked_query_key_tensor": ("query", "key"),
    "stacked_key_value_tensor": ("key", "value"),
    "stacked_query_key_value_tensor": ("query", "key", "value"),
}


@pytest.mark.parametrize("field", STACKS)
def test_stacked_tensors_agree_with_onnxruntime_on_their_parts(field: str) -> None:
    rng = np.random.default_rng(7)
    arrays = {f"{part}_tensor": floats(rng, BATCH, QUERIES, HEADS * SIZE) for part in ("query", "key", "value")}
    parts = [arrays[f"{part}_tensor"].reshape(BATCH, QUERIES, HEADS, SIZE) for part in STACKS[field]]
    others = {name: array for name, array in arrays.items() if name.removesuffix("_tensor") not in STACKS[field]}
    near(attention({**others, field: np.stack(parts, axis=3)})[0], multihead(arrays)[0])


@pytest.mark.parametrize("past", [0, 3])
def test_a_cache_agrees_with_onnxruntimes_grouped_queries(past: int) -> None:
    """One new row after equally many past ones (or several, after none), two query heads per key head."""
    rng, shared, capacity = np.random.default_rng(10 + past), HEADS // 2, 9
    rows = 1 if past else QUERIES
    arrays = separate(rng, rows, rows, shared)
    arrays["value_tensor"] = floats(rng, BATCH, rows, shared * SIZE)
    sizes = (BATCH, shared, capacity, SIZE)
    cache = {"past_key_tensor": floats(rng, *sizes), "past_value_tensor": floats(rng, *sizes)}
    total = past + rows
    parts = [arrays[f"{part}_tensor"] for part in ("query", "key", "value")]
    lengths = np.full(BATCH, total - 1, np.int32)
    want = contributed(
        "GroupQueryAttention",
        [*parts, *cache.values(), lengths, np.array(total, np.int32)],
        outputs=3,
        num_heads=HEADS,
        kv_num_heads=shared,
        scale=0.3,
    )
    present = {"output_present_key_tensor": sizes, "output_present_value_tensor": sizes}
    counts = np.full(BATCH, past, np.int32)
    got = attention({**arrays, **cache, "past_sequence_lengths_tensor": counts}, (HEADS, shared), present)
    near(got[0], want[0])
    for result, other in zip(got[1:], want[1:], strict=True):
        near(result[:, :, :total], other[:, :, :total])


# ---- ONNX's own operator


def test_groups_of_heads_agree_with_onnx() -> None:
    """ONNX's Attention of opset 23: queries of 4 heads on keys and values of 2."""
    rng = np.random.default_rng(11)
    tensors = separate(rng, shared=2)
    node = helper.make_node("Attention", ["q", "k", "v"], ["y"], q_num_heads=HEADS, kv_num_heads=2, scale=0.3)
    arrays = dict(zip("qkv", tensors.values(), strict=True))
    declared = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, a.shape) for n, a in arrays.items()]
    result = [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)]
    graph = helper.make_graph([node], "attention", declared, result)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)])
    (want,) = ReferenceEvaluator(model).run(None, arrays)
    near(attention(tensors, (HEADS, 2))[0], want)


# ---- the formula, one row at a time


def row_by_row(query: Any, keys: Any, values: Any, score: Any) -> Any:
    """Attention of one head in plain Python: ``score(row, key, product)`` finishes a score."""
    result = []
    for row, q in enumerate(query.tolist()):
        scores = [
            score(row, key, math.fsum(x * y for x, y in zip(q, k, strict=True))) for key, k in enumerate(keys.tolist())
        ]
        weights = [math.exp(score - max(scores)) for score in scores]
        columns = zip(*values.tolist(), strict=True)
        result.append(
            [math.fsum(w * v for w, v in zip(weights, column, strict=True)) / math.fsum(weights) for column in columns]
        )
    return np.array(result)


def one_head(rng: np.random.Generator) -> dict[str, Any]:
    return {
        "query_tensor": floats(rng, 1, 3, 4),
        "key_tensor": floats(rng, 1, 6, 4),
        "value_tensor": floats(rng, 1, 6, 2),
    }


@pytest.mark.parametrize("end, start", [(4, 1), (6, 0), (2, 2), (9, -3)])
def test_keys_outside_their_bounds_have_the_masks_score(end: int, start: int) -> None:
    arrays, mask = one_head(np.random.default_rng(12)), np.array([[end], [start]], np.int32)
    got = attention(
        {**arrays, "mask_tensor": mask}, (1, 1), mask_type=MaskType.KEY_SEQUENCE_END_START, mask_filter_value=-1.5
    )

    def score(row: int, key: int, product: float) -> float:
        return float(np.float32(0.3)) * product if start <= key < end else -1.5

    query, keys, values = (array[0] for array in arrays.values())
    near(got[0][0], row_by_row(query, keys, values, score))


def test_packed_lengths_mask_by_length_alone() -> None:
    arrays = one_head(np.random.default_rng(13))
    mask = np.array([4, 100, 200, 300, 400], np.int32)
    kind = MaskType.KEY_QUERY_SEQUENCE_LENGTH_START_END
    got = attention({**arrays, "mask_tensor": mask}, (1, 1), mask_type=kind)
    only = {name: array if name == "query_tensor" else array[:, :4] for name, array in arrays.items()}
    near(got[0], attention(only, (1, 1))[0])


def test_a_row_of_only_padding_is_the_mean_of_the_values() -> None:
    arrays, mask = one_head(np.random.default_rng(14)), np.array([[0]], np.int32)
    (got, *_) = attention({**arrays, "mask_tensor": mask}, (1, 1), mask_type=MaskType.KEY_SEQUENCE_LENGTH)
    near(got[0], np.broadcast_to(arrays["value_tensor"][0].mean(0), (3, 2)))


def test_a_row_that_a_boolean_mask_hides_completely_ignores_the_mask() -> None:
    arrays, mask = one_head(np.random.default_rng(15)), np.zeros((1, 1, 3, 6), np.int32)
    (got, *_) = attention({**arrays, "mask_tensor": mask}, (1, 1), mask_type=MaskType.BOOLEAN)
    near(got, attention(arrays, (1, 1))[0])


def test_unwritten_elements_of_a_cache_are_unchanged() -> None:
    """Two past rows, followed by a new one and three others; the query attends to the first three."""
    rng, sizes = np.random.default_rng(17), (1, 1, 6, 4)
    parts = {f"{part}_tensor": floats(rng, 1, 1, 4) for part in ("query", "key", "value")}
    before = [None, floats(rng, *sizes), floats(rng, *sizes)]
    arrays = {**parts, "past_sequence_lengths_tensor": np.array([2], np.int32)}
    present = {f"output_present_{part}_tensor": sizes for part in ("key", "value")}
    output, *caches = attention(arrays, (1, 1), present, before=before)
    for cache, old, part in zip(caches, before[1:], ("key", "value"), strict=True):
        np.testing.assert_array_equal(cache[:, :, [0, 1, 3, 4, 5]], old[:, :, [0, 1, 3, 4, 5]])
        np.testing.assert_array_equal(cache[0, :, 2], parts[f"{part}_tensor"][0])
    past = {f"past_{part}_tensor": old[:, :, :2] for part, old in zip(("key", "value"), before[1:], strict=True)}
    near(output, attention({**parts, **past}, (1, 1))[0])


def test_only_past_keys_are_all_keys() -> None:
    rng = np.random.default_rng(16)
    query, keys, values = floats(rng, 1, 3, 4), floats(rng, 1, 1, 6, 4), floats(rng, 1, 1, 6, 2)
    got = attention({"query_tensor": query, "past_key_tensor": keys, "past_value_tensor": values}, (1, 1))
    want = attention({"query_tensor": query, "key_tensor": keys[0], "value_tensor": values[0]}, (1, 1))
    near(got[0], want[0])
