"""GATHER, and what else reads and writes where indices say, against plain copies of the bytes written.

    python benchmarks/indexing.py [ADAPTER] [-k PART]

Prints a table of the time of the fastest hand-written vec4 copy of as many bytes over ours, and exits with 1 when the
target is missed: 4,096 rows of [32768, 256] float32 at 0.7 of the copy's speed. The other lines have no target. The
rows lie scattered in memory, where copies of so few bytes find theirs in a cache: a line compares with copies that do
not.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
from harness import Bench, Part, Result, fastest_copy, main, open_backend

from dmlgpu import descs
from dmlgpu.bench.ratios import ratio
from dmlgpu.enums import DataType
from dmlgpu.operator_desc import OperatorDesc
from dmlgpu.tensor import TensorDesc

FLOAT, BYTE, INDEX = DataType.FLOAT32, DataType.UINT8, DataType.UINT32
ROWS, WIDTH, PICKED = 32768, 256, 4096
SEED, ROUNDS = 1, 21


def gather(data_type: DataType, axis: int) -> descs.Gather:
    """A gather of rows, or of columns."""
    sizes = [ROWS, WIDTH]
    sizes[axis] = PICKED
    return descs.Gather(
        input_tensor=TensorDesc(data_type, (ROWS, WIDTH)),
        indices_tensor=TensorDesc(INDEX, (1, PICKED)),
        output_tensor=TensorDesc(data_type, tuple(sizes)),
        axis=axis,
        index_dimensions=1,
    )


def scatter(data_type: DataType) -> descs.ScatterNd:
    """A scatter of rows; it copies the rest."""
    whole = TensorDesc(data_type, (ROWS, WIDTH))
    return descs.ScatterNd(
        input_tensor=whole,
        indices_tensor=TensorDesc(INDEX, (PICKED, 1)),
        updates_tensor=TensorDesc(data_type, (PICKED, WIDTH)),
        output_tensor=whole,
        input_dimension_count=2,
        indices_dimension_count=2,
    )


def rows(adapter: str) -> Iterator[Result]:
    """A gather of rows, and a scatter of as many, which copies the others as well."""
    bench, rng = Bench(open_backend(adapter)), np.random.default_rng(SEED)
    picks = rng.integers(0, ROWS, PICKED, np.uint32)
    for data_type in (FLOAT, BYTE):
        table = rng.integers(0, 128, (ROWS, WIDTH)).astype(data_type.numpy)
        updates, what = table[:PICKED], f"4,096 rows of [32768, 256] {data_type.name.lower()}"
        ours = bench.operator(gather(data_type, 0), table, picks)
        at_least = 0.7 if data_type is FLOAT else None
        yield Result(f"GATHER, {what}", ratio(fastest_copy(bench, updates), ours, ROUNDS), at_least=at_least)
        uncached = fastest_copy(Bench(bench.backend, sets=bench.sets * ROWS // PICKED), updates)
        yield Result(f"GATHER, {what}, copy from memory", ratio(uncached, ours, ROUNDS))
        copy = fastest_copy(bench, np.concatenate([table, updates]))
        ours = bench.operator(scatter(data_type), table, picks[:, None], updates)
        yield Result(f"SCATTER_ND, {what}", ratio(copy, ours, ROUNDS))


def elements(adapter: str) -> Iterator[Result]:
    """Operators that look up an index for every element."""
    bench, rng = Bench(open_backend(adapter)), np.random.default_rng(SEED)
    table, lines = rng.random((ROWS, WIDTH), np.float32), TensorDesc(FLOAT, (ROWS, WIDTH))
    picks, one_each = rng.integers(0, WIDTH, (ROWS, WIDTH), np.uint32), TensorDesc(INDEX, (ROWS, 1))
    copy = fastest_copy(bench, table)
    desc: OperatorDesc = descs.GatherElements(
        input_tensor=lines, indices_tensor=TensorDesc(INDEX, (ROWS, WIDTH)), output_tensor=lines, axis=1
    )
    yield Result("GATHER_ELEMENTS, [32768, 256] float32", ratio(copy, bench.operator(desc, table, picks)))
    desc = descs.OneHot(indices_tensor=one_each, values_tensor=TensorDesc(FLOAT, (1, 2)), output_tensor=lines, axis=1)
    values = np.array([[0, 1]], np.float32)
    yield Result("ONE_HOT, [32768, 256] float32", ratio(copy, bench.operator(desc, picks[:, :1], values)))
    desc = descs.ReverseSubsequences(input_tensor=lines, sequence_lengths_tensor=one_each, output_tensor=lines, axis=1)
    yield Result("REVERSE_SUBSEQUENCES, [32768, 256] float32", ratio(copy, bench.operator(desc, table, picks[:, :1])))


PARTS: dict[str, Part] = {"rows": rows, "elements": elements}


if __name__ == "__main__":
    sys.exit(main(__doc__, PARTS))
