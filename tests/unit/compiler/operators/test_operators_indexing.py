"""GATHER, GATHER_ELEMENTS, GATHER_ND, GATHER_ND1, REVERSE_SUBSEQUENCES: validation, output sizes, plans."""

from __future__ import annotations

import pytest

from dmlgpu import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.compiler import operators
from dmlgpu.compiler.operators.lowering import lowering
from dmlgpu.compiler.target import Target
from tests.schedules import steps_of
from tests.unit.rejections import rejection

F32, I64, U32 = DataType.FLOAT32, DataType.INT64, DataType.UINT32
ANY = Target("any")


def floats(*sizes, strides=None):
    return TensorDesc(F32, sizes, strides)


def indices(*sizes, strides=None):
    return TensorDesc(I64, sizes, strides)


def gather1(data, index, output, batch=0, **changes):
    fields = {
        "input_tensor": data,
        "indices_tensor": index,
        "output_tensor": output,
        "input_dimension_count": len(data.sizes),
        "indices_dimension_count": len(index.sizes),
        "batch_dimension_count": batch,
    }
    return descs.GatherNd1(**fields | changes)


def gather(data, index, output, **changes):
    fields = {
        "input_tensor": data,
        "indices_tensor": index,
        "output_tensor": output,
        "input_dimension_count": len(data.sizes),
        "indices_dimension_count": len(index.sizes),
    }
    return descs.GatherNd(**fields | changes)


def rows(**changes):
    fields = {
        "input_tensor": floats(5, 4),
        "indices_tensor": indices(1, 3),
        "output_tensor": floats(3, 4),
        "axis": 0,
        "index_dimensions": 1,
    }
    return descs.Gather(**fields | changes)


def elements(**changes):
    fields = {
        "input_tensor": floats(4, 5, 6),
        "indices_tensor": indices(4, 3, 6),
        "output_tensor": floats(4, 3, 6),
        "axis": 1,
    }
    return descs.GatherElements(**fields | changes)


def lengths(*sizes, strides=None):
    return TensorDesc(U32, sizes, strides)


def reverse(**changes):
    fields = {
        "input_tensor": floats(4, 5, 6),
        "sequence_lengths_tensor": lengths(4, 1, 6),
        "output_tensor": floats(4, 5, 6),
        "axis": 1,
    }
    return descs.ReverseSubsequences(**fields | changes)


@pytest.mark.parametrize(
    ("desc", "message"),
    [
        (
            gather1(floats(5, 4), indices(3, 1), floats(3, 4), input_dimension_count=3),
            "GATHER_ND1: input_dimension_count must be between 1 and input_tensor's dimension count (2), got 3",
        ),
        (
            gather1(floats(5, 4), indices(3, 1), floats(3, 4), indices_dimension_count=0),
            "GATHER_ND1: indices_dimension_count must be between 1 and indices_tensor's dimension count (2), got 0",
        ),
        (
            gather1(floats(5, 4), indices(3, 1), floats(3, 4), input_dimension_count=1),
            "GATHER_ND1: input_tensor.sizes must be 1 in the leading dimensions that input_dimension_count (1)"
            " leaves out, got [5]",
        ),
        (
            gather1(floats(5, 4), indices(5, 1), floats(5, 1), batch=2),
            "GATHER_ND1: batch_dimension_count must be below input_dimension_count (2) and indices_dimension_count (2),"
            " got 2",
        ),
        (
            gather1(floats(5, 4), indices(3, 3), floats(3, 1)),
            "GATHER_ND1: indices_tensor.sizes[-1] must be at most input_dimension_count (2), got 3",
        ),
        (
            gather1(floats(3, 5, 4), indices(3, 4), floats(3, 1, 1), batch=1),
            "GATHER_ND1: indices_tensor.sizes[-1] must be at most input_dimension_count - batch_dimension_count"
            " (3 - 1 = 2), got 4",
        ),
        (
            gather1(floats(2, 5, 4), indices(3, 6, 1), floats(3, 6, 4), batch=1),
            "GATHER_ND1: indices_tensor.sizes must agree with input_tensor in its batch dimensions [2], got [3]",
        ),
        (
            gather1(floats(5, 4), indices(3, 1), floats(1, 3, 5)),
            "GATHER_ND1: output_tensor.sizes must be [1, 3, 4] (leading 1s, tuple, window), got [1, 3, 5]",
        ),
        (
            gather1(floats(5, 4, 2), indices(3, 1), floats(3, 8)),
            "GATHER_ND1: output_tensor.sizes must have at least 3 dimensions to hold the tuple and window dimensions,"
            " got 2",
        ),
        (
            gather(floats(5, 4), indices(3, 3), floats(3, 1)),
            "GATHER_ND: indices_tensor.sizes[-1] must be at most input_dimension_count (2), got 3",
        ),
        (
            gather(floats(5, 4), indices(2, 3, 1), floats(1, 3, 4), indices_dimension_count=2),
            "GATHER_ND: indices_tensor.sizes must be 1 in the leading dimensions that indices_dimension_count (2)"
            " leaves out, got [2]",
        ),
        (
            gather(floats(5, 4), indices(3, 1), floats(4, 3)),
            "GATHER_ND: output_tensor.sizes must be [3, 4] (leading 1s, tuple, window), got [4, 3]",
        ),
        (
            rows(axis=2),
            "GATHER: axis must be below input_tensor's dimension count (2), got 2",
        ),
        (
            rows(index_dimensions=3),
            "GATHER: index_dimensions must be at most indices_tensor's dimension count (2), got 3",
        ),
        (
            rows(indices_tensor=indices(2, 3)),
            "GATHER: indices_tensor.sizes must be 1 in the leading dimensions that index_dimensions (1) leaves out,"
            " got [2]",
        ),
        (
            rows(index_dimensions=2, indices_tensor=indices(2, 3), output_tensor=floats(6, 4)),
            "GATHER: output_tensor.sizes must have at least 3 dimensions to hold the picked blocks [2, 3, 4], got 2",
        ),
        (
            rows(output_tensor=floats(3, 5)),
            "GATHER: output_tensor.sizes must be [3, 4] (input_tensor.sizes with the index dimensions in place of the"
            " axis), got [3, 5]",
        ),
        (
            rows(index_dimensions=0, indices_tensor=indices(1, 1), output_tensor=floats(4, 1)),
            "GATHER: output_tensor.sizes must be [1, 4] (input_tensor.sizes with the index dimensions in place of the"
            " axis), got [4, 1]",
        ),
        (elements(axis=3), "GATHER_ELEMENTS: axis must be below input_tensor's dimension count (3), got 3"),
        (
            elements(indices_tensor=indices(4, 3, 5)),
            "GATHER_ELEMENTS: indices_tensor.sizes[2] must be input_tensor.sizes[2] (6), got 5",
        ),
        (
            elements(output_tensor=floats(4, 5, 6)),
            "GATHER_ELEMENTS: output_tensor.sizes must be [4, 3, 6] (indices_tensor.sizes), got [4, 5, 6]",
        ),
        (reverse(axis=3), "REVERSE_SUBSEQUENCES: axis must be below input_tensor's dimension count (3), got 3"),
        (
            reverse(sequence_lengths_tensor=lengths(4, 5, 1)),
            "REVERSE_SUBSEQUENCES: sequence_lengths_tensor.sizes must be [4, 1, 6] (input_tensor.sizes with 1 on axis"
            " 1), got [4, 5, 1]",
        ),
        (
            reverse(output_tensor=floats(4, 6, 5)),
            "REVERSE_SUBSEQUENCES: output_tensor.sizes must be [4, 5, 6] (input_tensor.sizes), got [4, 6, 5]",
        ),
    ],
)
def test_invalid_descriptions_are_rejected(desc, message):
    assert rejection(desc) == message


@pytest.mark.parametrize(
    ("desc", "sizes"),
    [
        (gather1(floats(5, 4), indices(3, 1), floats(3, 4)), (3, 4)),
        (gather1(floats(5, 4), indices(3, 2), floats(1, 3)), (1, 3)),
        (gather1(floats(5, 4), indices(2), floats(1)), (1,)),
        (gather1(floats(2, 5, 4), indices(2, 3, 1), floats(1, 2, 3, 4), batch=1), (1, 2, 3, 4)),
        (gather(floats(1, 5, 4), indices(3, 1), floats(3, 4), input_dimension_count=2), (3, 4)),
        (rows(), (3, 4)),
        (rows(axis=1, output_tensor=floats(5, 3)), (5, 3)),
        (rows(index_dimensions=0, indices_tensor=indices(1, 1), output_tensor=floats(1, 4)), (1, 4)),
        (
            rows(
                input_tensor=floats(1, 5, 4),
                indices_tensor=indices(1, 2, 3),
                output_tensor=floats(2, 3, 4),
                axis=1,
                index_dimensions=2,
            ),
            (2, 3, 4),
        ),
        (rows(index_dimensions=2), (3, 4)),
        (elements(), (4, 3, 6)),
        (reverse(), (4, 5, 6)),
    ],
)
def test_output_sizes(desc, sizes):
    operators.check(desc)
    assert lowering(desc.operator).output_sizes(desc) == {"output_tensor": sizes}


def test_gather_nd_is_gather_nd1_without_batches():
    older = gather(floats(5, 4), indices(3, 1), floats(3, 4))
    assert operators.upgrade(older) == gather1(floats(5, 4), indices(3, 1), floats(3, 4), batch=0)


@pytest.mark.parametrize(
    ("desc", "sizes", "lanes"),
    [
        pytest.param(
            gather1(floats(2, 3, 5, 4, 6), indices(2, 3, 7, 8, 1), floats(2, 3, 7, 8, 4, 6), batch=2),
            (6, 56, 6),
            4,
            id="batches, tuples and windows",
        ),
        pytest.param(gather1(floats(5, 4), indices(3, 2), floats(3)), (3,), 1, id="single elements"),
        pytest.param(gather1(floats(5, 4), indices(2), floats(1)), (1,), 1, id="a single element"),
        pytest.param(
            gather1(floats(1, 1, 5, 4), indices(1, 3, 1), floats(1, 1, 3, 4), input_dimension_count=2),
            (3, 1),
            4,
            id="dimensions that the counts leave out",
        ),
        pytest.param(
            rows(
                input_tensor=floats(2, 3, 5, 4, 6),
                indices_tensor=indices(1, 1, 1, 1, 56),
                output_tensor=floats(2, 3, 56, 4, 6),
                axis=2,
            ),
            (6, 56, 6),
            4,
            id="blocks, the same in all batches",
        ),
        pytest.param(
            rows(index_dimensions=0, indices_tensor=indices(1, 1), output_tensor=floats(1, 4)), (1,), 4, id="one index"
        ),
        pytest.param(
            elements(
                input_tensor=floats(2, 3, 5, 4, 6),
                indices_tensor=indices(2, 3, 7, 4, 6),
                output_tensor=floats(2, 3, 7, 4, 6),
                axis=2,
            ),
            (6, 7, 24),
            1,
            id="before and after an axis",
        ),
        pytest.param(
            elements(
                input_tensor=floats(4, 5, 8),
                indices_tensor=indices(4, 3, 8, strides=(3, 1, 0)),
                output_tensor=floats(4, 3, 8),
            ),
            (4, 3, 2),
            4,
            id="elements that share an index",
        ),
        pytest.param(
            reverse(sequence_lengths_tensor=lengths(4, 1, 6, strides=(1, 0, 0))), (4, 5, 3), 2, id="lengths of rows"
        ),
        pytest.param(reverse(), (4, 5, 6), 1, id="a length for each element"),
    ],
)
def test_dimensions_are_merged_and_elements_packed(desc, sizes, lanes):
    (step,) = steps_of(desc, ANY)
    assert (step.output.sizes, step.lanes) == (sizes, lanes)
