"""Attention against the same chain of single operators; the suite `peers` has it beside other programs.

    python benchmarks/attention.py [ADAPTER] [-k PART]

Exits with 1 when the target is missed: 8 heads x 256 x 64 no slower than GEMM, softmax, GEMM one after the other.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from harness import Bench, Call, Part, Result, main, open_backend
from numpy.typing import NDArray

from dmlgpu import descs
from dmlgpu.bench.ratios import ratio
from dmlgpu.enums import DataType, MatrixTransform, MultiheadAttentionMaskType
from dmlgpu.schema import operator
from dmlgpu.tensor import TensorDesc

HEADS, ROWS, SIZE = 8, 256, 64
SCALE = SIZE**-0.5


def tensor(*sizes: int) -> TensorDesc:
    return TensorDesc(DataType.FLOAT32, sizes)


def floats(*sizes: int) -> NDArray[np.float32]:
    return np.random.default_rng(1).standard_normal(sizes, np.float32)


def attention(heads: int, queries: int, keys: int, size: int) -> descs.MultiheadAttention1:
    """Attention of one sequence, its heads side by side in each row."""
    tensors: dict[str, Any] = {f.python_name: None for f in operator("MULTIHEAD_ATTENTION1").tensor_fields}
    rows = {"query": queries, "key": keys, "value": keys}
    tensors |= {f"{part}_tensor": tensor(1, count, heads * size) for part, count in rows.items()}
    return descs.MultiheadAttention1(
        **tensors | {"output_tensor": tensor(1, queries, heads * size)},
        scale=size**-0.5,
        mask_filter_value=-10000.0,
        query_head_count=heads,
        key_value_head_count=heads,
        mask_type=MultiheadAttentionMaskType.NONE,
    )


def fused(bench: Bench, heads: int, queries: int, keys: int, size: int) -> Call:
    """Our attention."""
    desc = attention(heads, queries, keys, size)
    return bench.operator(desc, *(floats(*slot.tensor.sizes) for slot in desc.inputs if slot.tensor is not None))


def chain(bench: Bench, heads: int, queries: int, keys: int, size: int) -> Call:
    """GEMM, softmax and GEMM, each run and waited for by itself, on tensors with a head after the other."""
    query, key, scores = (heads, queries, size), (heads, keys, size), (heads, queries, keys)
    products = [
        descs.Gemm(
            a_tensor=tensor(*a),
            b_tensor=tensor(*b),
            c_tensor=None,
            output_tensor=tensor(*output),
            trans_a=MatrixTransform.NONE,
            trans_b=transform,
            alpha=alpha,
            beta=0.0,
        )
        for a, b, output, transform, alpha in (
            (query, key, scores, MatrixTransform.TRANSPOSE, size**-0.5),
            (scores, key, query, MatrixTransform.NONE, 1.0),
        )
    ]
    softmax = descs.ActivationSoftmax1(input_tensor=tensor(*scores), output_tensor=tensor(*scores), axes=(2,))
    calls = [
        bench.operator(products[0], floats(*query), floats(*key)),
        bench.operator(softmax, floats(*scores)),
        bench.operator(products[1], floats(*scores), floats(*key)),
    ]
    return lambda number: [call(number) for call in calls]


SHAPES = {
    "8 heads x 256 x 64": (HEADS, ROWS, ROWS, SIZE),
    "one query on 4,096 keys": (HEADS, 1, 4096, SIZE),
    "1 head x 2,048 x 64": (1, 2048, 2048, SIZE),
}


def operators(adapter: str) -> Iterator[Result]:
    """Time of the chain over ours; the target is for the first shape."""
    bench = Bench(open_backend(adapter))
    for number, (name, shape) in enumerate(SHAPES.items()):
        measured = ratio(chain(bench, *shape), fused(bench, *shape))
        yield Result(f"attention, {name}, against single operators", measured, at_least=None if number else 1.0)


PARTS: dict[str, Part] = {"operators": operators}

if __name__ == "__main__":
    sys.exit(main(__doc__, PARTS))
