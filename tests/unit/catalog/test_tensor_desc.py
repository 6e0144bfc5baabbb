"""Tensor descriptions: bytes, strides, overlap, encoding; the numbers come from the documents or brute force."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmlgpu.catalog.enums import DataType, TensorFlags
from dmlgpu.catalog.tensor_desc import TensorDesc, buffer_size, element_offsets, packed_strides, span
from dmlgpu.common.errors import InvalidDescription

LAYOUTS = st.integers(1, 4).flatmap(
    lambda rank: st.tuples(
        st.lists(st.integers(1, 4), min_size=rank, max_size=rank),
        st.lists(st.integers(0, 20), min_size=rank, max_size=rank),
    )
)
CONCRETE = [data_type for data_type in DataType if data_type is not DataType.UNKNOWN]
SETTINGS = settings(derandomize=True, deadline=None, max_examples=300)


def places(sizes, strides):
    coordinates = itertools.product(*map(range, sizes))
    return [sum(index * stride for index, stride in zip(at, strides, strict=True)) for at in coordinates]


@pytest.mark.parametrize(
    ("data_type", "sizes", "strides", "size"),
    [
        ("FLOAT16", (1, 1, 3, 5), None, 32),
        ("FLOAT32", (2, 3), (5, 1), 32),
        ("FLOAT32", (2, 3), (0, 1), 12),
        ("UINT8", (5,), None, 8),
        ("UINT4", (5,), None, 4),
        ("UINT4", (9,), None, 8),
        ("INT64", (3,), None, 24),
        ("FLOAT32", (65536, 65535), None, 17179607040),
    ],
)
def test_smallest_size_in_bytes(data_type, sizes, strides, size):
    assert buffer_size(DataType[data_type], sizes, strides) == size
    assert TensorDesc(DataType[data_type], sizes, strides).total_tensor_size_in_bytes == size
    assert TensorDesc(DataType[data_type], sizes, strides).byte_size == size


@pytest.mark.parametrize(
    ("sizes", "strides"), [((2, 2, 3), (6, 3, 1)), ((1, 1, 3, 5), (15, 15, 5, 1)), ((7,), (1,)), ((), ())]
)
def test_packed_strides(sizes, strides):
    assert packed_strides(sizes) == strides


def test_the_offset_of_the_documents():
    assert element_offsets((2, 2, 3), (6, 3, 1))[1, 0, 1] == 7


@SETTINGS
@given(LAYOUTS)
def test_offsets_and_span(layout):
    sizes, strides = layout
    expected = places(sizes, strides)
    assert element_offsets(sizes, strides).ravel().tolist() == expected
    assert span(sizes, strides) == max(expected) + 1


def test_derived_facts():
    desc = TensorDesc(DataType.FLOAT32, [2, 3], [5, 1], flags=TensorFlags.OWNED_BY_DML)
    assert (desc.sizes, desc.strides, desc.element_strides) == ((2, 3), (5, 1), (5, 1))
    assert (desc.dimension_count, desc.element_count, desc.physical_element_count) == (2, 6, 8)
    assert (desc.is_packed, desc.owned_by_dml) == (False, True)
    plain = TensorDesc(DataType.FLOAT32, (2, 3))
    assert (plain.element_strides, plain.is_packed, plain.owned_by_dml) == ((3, 1), True, False)


@pytest.mark.parametrize(("strides", "packed"), [((3, 1), True), ((7, 1), True), ((7, 2), False), ((0, 0), False)])
def test_strides_of_single_elements_do_not_matter(strides, packed):
    assert TensorDesc(DataType.FLOAT32, (1, 3), strides).is_packed is packed


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"sizes": (2, 1.5)}, "TensorDesc: sizes[1] must be an integer, got 1.5 of type float"),
        ({"sizes": (True,)}, "TensorDesc: sizes[0] must be an integer, got True of type bool"),
        ({"sizes": (2,), "strides": ("1",)}, "TensorDesc: strides[0] must be an integer, got '1' of type str"),
    ],
)
def test_wrong_types_are_rejected(fields, message):
    with pytest.raises(InvalidDescription) as caught:
        TensorDesc(DataType.FLOAT32, **fields)
    assert str(caught.value) == message


def test_nibbles_are_stored_low_first():
    desc = TensorDesc(DataType.UINT4, (5,))
    assert desc.encode(np.array([1, 2, 3, 4, 5])).tobytes() == bytes([0x21, 0x43, 0x05, 0x00])


@SETTINGS
@given(LAYOUTS, st.sampled_from(CONCRETE), st.integers(0, 2**32 - 1), st.integers(0, 255))
def test_encoding_stores_each_element_at_its_offset(layout, data_type, seed, fill):
    sizes, strides = layout
    rng = np.random.default_rng(seed)
    low, high = (-8, 8) if data_type.is_signed else (0, 16)
    values = rng.integers(low, high, sizes).astype(data_type.numpy)
    desc = TensorDesc(data_type, sizes, strides)
    raw = desc.encode(values, fill)
    expected = dict(zip(places(sizes, strides), values.ravel().tolist(), strict=True))
    for place in range(len(raw) * 8 // data_type.bits):
        filling = element(np.full(16, fill, np.uint8), data_type, place % 2)
        assert element(raw, data_type, place) == expected.get(place, filling)
    assert desc.decode(raw).ravel().tolist() == [expected[place] for place in places(sizes, strides)]


def element(raw, data_type, place):
    """Return one element by plain arithmetic on bytes; NaN as a string, so that it compares."""
    width = data_type.bits
    word = int.from_bytes(raw.tobytes(), "little") >> (place * width) & ((1 << width) - 1)
    if data_type.is_float:
        value = np.array([word], f"uint{width}").view(data_type.numpy)[0]
        return "nan" if np.isnan(value) else float(value)
    return word - (1 << width) if data_type.is_signed and word >> (width - 1) else word


def test_encoding_broadcasts_and_rejects_other_sizes():
    desc = TensorDesc(DataType.INT32, (2, 3))
    assert desc.decode(desc.encode(np.array([1, 2, 3]))).tolist() == [[1, 2, 3], [1, 2, 3]]
    with pytest.raises(ValueError, match="broadcast"):
        desc.encode(np.zeros((3, 3)))
