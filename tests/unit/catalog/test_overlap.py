"""Overlap of elements, compared with enumeration of all offsets; huge layouts take little time and memory."""

import itertools
import time
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmlgpu import descs
from dmlgpu.catalog import overlap, validation
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.overlap import has_overlap
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.common.errors import InvalidDescription

MAX_OFFSETS = 3000
LAYOUTS = st.integers(1, 6).flatmap(
    lambda rank: st.tuples(
        st.lists(st.integers(1, [MAX_OFFSETS, 50, 14, 7, 5, 3][rank - 1]), min_size=rank, max_size=rank),
        st.sampled_from([4, 20, 200, 5000]).flatmap(
            lambda most: st.lists(st.integers(0, most), min_size=rank, max_size=rank)
        ),
    )
)


def places(sizes, strides):
    coordinates = itertools.product(*map(range, sizes))
    return [sum(index * stride for index, stride in zip(at, strides, strict=True)) for at in coordinates]


@settings(derandomize=True, deadline=None, max_examples=400)
@given(LAYOUTS)
def test_overlap_agrees_with_enumeration_of_offsets(layout):
    expected = places(*layout)
    assert has_overlap(*layout) == (len(set(expected)) < len(expected))


@pytest.mark.parametrize(
    ("sizes", "strides", "overlap"),
    [
        ((2, 3), (3, 1), False),
        ((3, 2), (1, 3), False),
        ((2, 3), (2, 1), True),
        ((2, 3), (2, 3), False),
        ((3, 3), (2, 3), False),
        ((4, 3), (2, 3), True),
        ((2, 1), (0, 0), True),
        ((1, 5), (0, 1), False),
        ((1, 1), (0, 0), False),
        ((65536, 65535), (65535, 1), False),
        ((4, 2**28), (0, 1), True),
        ((2**16, 2**16), (2**16 - 1, 2**16), False),
        ((2**16 + 1, 2**16), (2**16 - 1, 2**16), True),
        # Three dimensions: 6 * 10 = 4 * 15 is the first coincidence of all, and one step short of it there is none.
        ((10, 6, 4), (6, 10, 15), True),
        ((5, 3, 2), (6, 10, 15), False),
    ],
)
def test_overlap(sizes, strides, overlap):
    assert has_overlap(sizes, strides) is overlap


P, Q, R = 1021, 1019, 1013
"""Primes: i * Q * R + j * P * R + k * P * Q is another number for all i < P, j < Q, k < R (Chinese remainders)."""
INTERLEAVED = [
    ((P, Q, R), (Q * R, P * R, P * Q), False),
    ((P + 1, Q + 1, R), (Q * R, P * R, P * Q), True),
    ((P, Q // 2, R // 2, 2), (Q * R, P * R, P * Q, P * Q * R), False),
    ((36, 10, 17, 3, 3, 11, 9, 2), (34221, 4031, 441108, 142068740, 867213590, 12181560, 60768802, 325698), None),
]


@pytest.mark.parametrize(("sizes", "strides", "overlap"), INTERLEAVED)
def test_huge_interleaved_strides_take_neither_time_nor_memory(sizes, strides, overlap):
    tracemalloc.start()
    start = time.process_time()
    result = has_overlap(sizes, strides)
    spent, (_, peak) = time.process_time() - start, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert spent < 1
    assert peak < 1 << 20
    assert overlap is None or result is overlap


def test_undecidable_overlap_is_rejected_with_a_message(monkeypatch):
    monkeypatch.setattr(overlap, "MAX_STEPS", 3)
    sizes, strides, _ = INTERLEAVED[3]
    desc = descs.ElementWiseIdentity(
        input_tensor=TensorDesc(DataType.UINT8, sizes), output_tensor=TensorDesc(DataType.UINT8, sizes, strides)
    )
    with pytest.raises(InvalidDescription) as caught:
        validation.validate(desc)
    assert str(caught.value) == (
        "ELEMENT_WISE_IDENTITY: output_tensor.strides must give each element of an output a place of its own, which is"
        f" not decided in 3 steps, got {list(strides)} for sizes {list(sizes)}"
    )
