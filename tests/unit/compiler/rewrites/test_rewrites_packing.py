"""Packing: the widest unit, and every reason for a narrower one."""

from __future__ import annotations

import math

import pytest

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import packed_strides
from dmlgpu.compiler.plan import Affine, AffineView, Lookup, PlanBinding, PlanTensor, Role, View, apply, constants
from dmlgpu.compiler.rewrites.packing import pack, packs_source
from dmlgpu.compiler.rewrites.sources import identity

CAST = [data_type for data_type in DataType if data_type.bits >= 8]
F32, F16, I8, U8, I64, F64 = (DataType[n] for n in ("FLOAT32", "FLOAT16", "INT8", "UINT8", "INT64", "FLOAT64"))


def tensor(sizes, strides=None, data_type=F32, view=View.COMPUTE, *, index=0, offset=0):
    strides = packed_strides(sizes) if strides is None else strides
    return PlanTensor(PlanBinding(Role.INPUT, index), data_type, tuple(sizes), tuple(strides), view, offset)


def output(sizes, strides=None, data_type=F32):
    strides = packed_strides(sizes) if strides is None else strides
    return PlanTensor(PlanBinding(Role.OUTPUT, 0), data_type, tuple(sizes), tuple(strides))


def copy(sizes, strides=None, data_type=F32, offset=0):
    return identity(tensor(sizes, strides, data_type, View.RAW, offset=offset))


def subtract(a, b, sizes=None):
    return apply("elementwise/element_wise_subtract", a.data_type, sizes or a.sizes, a=a, b=b)


def lanes(body, result):
    packed, packed_output = pack(body, result)
    assert packed_output.lanes == packed.lanes
    return packed_output.lanes


@pytest.mark.parametrize("data_type", [t for t in DataType if t is not DataType.UNKNOWN], ids=lambda t: t.name)
def test_moved_elements_pack_up_to_128_bits(data_type):
    body, result = pack(copy((3, 64), data_type=data_type), output((3, 64), data_type=data_type))
    widest = 128 // data_type.bits
    assert (result.lanes, result.sizes, result.strides) == (widest, (3, 64 // widest), (64 // widest, 1))
    assert body.sizes == result.sizes and body.inputs[0][1].strides == result.strides


@pytest.mark.parametrize(("size", "bits"), [(16, 128), (24, 64), (20, 32), (18, 16), (17, 8)])
def test_moved_bytes_pack_as_widely_as_the_row_divides(size, bits):
    assert lanes(copy((3, size), data_type=U8), output((3, size), data_type=U8)) == bits // 8


@pytest.mark.parametrize(
    ("body", "result", "expected"),
    [
        pytest.param(copy((3, 8)), output((3, 8)), 4, id="all even"),
        pytest.param(copy((3, 6)), output((3, 6)), 2, id="rows of 6"),
        pytest.param(copy((3, 7)), output((3, 7)), 1, id="odd rows"),
        pytest.param(copy((3, 8), (9, 1)), output((3, 8)), 1, id="odd stride of the input"),
        pytest.param(copy((3, 8), (10, 1)), output((3, 8)), 2, id="stride of the input divides by 2"),
        pytest.param(copy((3, 8)), output((3, 8), (9, 1)), 1, id="odd stride of the output"),
        pytest.param(copy((3, 8), (1, 3)), output((3, 8)), 1, id="transposed input"),
        pytest.param(copy((3, 8), (16, 2)), output((3, 8)), 1, id="gaps in the input"),
        pytest.param(copy((3, 8)), output((3, 8), (16, 2)), 1, id="gaps in the output"),
        pytest.param(copy((3, 8), (-8, 1), offset=16), output((3, 8)), 4, id="mirrored rows"),
        pytest.param(copy((3, 8), (8, -1), offset=7), output((3, 8)), 1, id="mirrored within rows"),
        pytest.param(copy((3, 8), offset=2), output((3, 8)), 2, id="offset divides by 2"),
        pytest.param(copy((3, 8), offset=1), output((3, 8)), 1, id="odd offset"),
        pytest.param(copy((3, 8), (8, 0)), output((3, 8)), 1, id="repeated element, moved"),
        pytest.param(copy((3, 8), (0, 1)), output((3, 8)), 4, id="repeated row"),
        pytest.param(copy((8, 3), (1, 8)), output((8, 3), (1, 8)), 4, id="along the first dimension"),
        pytest.param(copy((1, 8), (3, 1)), output((1, 8), (5, 1)), 4, id="size 1 may have any stride"),
        pytest.param(copy((1, 1)), output((1, 1)), 1, id="one element"),
    ],
)
def test_tensors_that_pack(body, result, expected):
    assert lanes(body, result) == expected


def test_units_cover_their_elements():
    body, result = pack(copy((3, 8), (-12, 1), offset=24), output((3, 8), (20, 1)))
    source = body.inputs[0][1]
    assert (source.sizes, source.strides, source.offset, source.lanes) == ((3, 2), (-3, 1), 6, 4)
    assert (result.sizes, result.strides) == ((3, 2), (5, 1))


@pytest.mark.parametrize("data_type", [F32, F16, I8, DataType.UINT16], ids=lambda t: t.name)
def test_arithmetic_packs_by_four(data_type):
    a = tensor((3, 8), data_type=data_type)
    assert lanes(subtract(a, a), output((3, 8), data_type=data_type)) == 4


def test_arithmetic_with_odd_operands_does_not_pack():
    assert lanes(subtract(tensor((3, 8)), tensor((3, 8), (9, 1), index=1)), output((3, 8))) == 1


@pytest.mark.parametrize("strides", [(1, 0), (0, 0)])
def test_a_repeated_operand_of_arithmetic_is_read_once_for_all_lanes(strides):
    body, _ = pack(subtract(tensor((3, 8)), tensor((3, 8), strides, index=1, offset=5)), output((3, 8)))
    repeated = body.inputs[1][1]
    assert (repeated.lanes, repeated.broadcast, repeated.unit_bits) == (4, True, 32)
    assert (repeated.sizes, repeated.strides, repeated.offset) == ((3, 2), strides, 5)


@pytest.mark.parametrize("data_type", [I64, DataType.UINT64, F64], ids=lambda t: t.name)
def test_64_bit_arithmetic_does_not_pack(data_type):
    a = tensor((3, 8), data_type=data_type)
    assert lanes(subtract(a, a), output((3, 8), data_type=data_type)) == 1


@pytest.mark.parametrize(("source", "target"), [(I64, F32), (F32, I64)], ids=["from", "to"])
def test_casts_from_and_to_64_bits_do_not_pack(source, target):
    body = apply("elementwise/cast", target, (3, 8), input=tensor((3, 8), data_type=source))
    assert lanes(body, output((3, 8), data_type=target)) == 1


@pytest.mark.parametrize("source", CAST, ids=lambda t: t.name)
@pytest.mark.parametrize("target", CAST, ids=lambda t: t.name)
def test_fused_trees_without_64_bit_elements_pack(source, target):
    body = apply("elementwise/cast", target, (3, 8), portable=True, input=tensor((3, 8), data_type=source))
    seen = AffineView(body, (3, 8), Affine.box((0, 0)))
    for tree in (body, seen, apply("elementwise/cast", F32, (3, 8), portable=True, input=body)):
        assert packs_source(tree, 1, 4) == (max(source.bits, target.bits) < 64)


@pytest.mark.parametrize("middle", [I64, F64], ids=lambda t: t.name)
def test_64_bit_values_between_narrow_tensors_do_not_pack(middle):
    wide = apply("elementwise/cast", middle, (3, 8), portable=True, input=tensor((3, 8)))
    body = apply("elementwise/cast", I8, (3, 8), portable=True, input=wide)
    assert lanes(body, output((3, 8), data_type=I8)) == 1


@pytest.mark.parametrize(
    ("start", "step", "expected"), [((1, 4), (1, 1), 4), ((2, 2), (-1, 1), 2), ((1, 3), (1, 1), 1), ((1, 0), (1, 2), 1)]
)
def test_a_slice_of_arithmetic_packs_where_it_starts_and_steps_in_units(start, step, expected):
    computed = subtract(tensor((3, 16)), tensor((3, 16), index=1))
    body, _ = pack(identity(AffineView(computed, (2, 8), Affine.box(start, step))), output((2, 8)))
    packed = body.inputs[0][1]
    assert packed.lanes == expected
    assert packed.affine == Affine.box((start[0], start[1] // expected), step)


@pytest.mark.parametrize(("start", "step", "expected"), [(4, 8, 4), (4, 6, 2), (1, 8, 1)])
def test_a_view_of_arithmetic_packs_where_it_steps_over_whole_units(start, step, expected):
    computed = subtract(tensor((24,)), tensor((24,), index=1))
    body, _ = pack(identity(AffineView(computed, (2, 8), Affine((start,), ((step, 1),)))), output((2, 8)))
    packed = body.inputs[0][1]
    assert (packed.lanes, packed.affine) == (expected, Affine((start // expected,), ((step // expected, 1),)))


def gather(source, indices, sizes, follows):
    return Lookup(
        "indexing/gather_nd1",
        F32,
        sizes,
        (("input", source), ("indices", indices)),
        constants(batch=0, tuple=1, lead=1),
        follows=(follows, (None,) * len(sizes)),
    )


def test_a_gather_packs_along_its_window_for_all_indices():
    indices = tensor((3, 1), (7, 5), I64, View.INDEX, index=1)
    body, _ = pack(gather(tensor((5, 8), view=View.RAW), indices, (3, 8), (None, 1)), output((3, 8)))
    assert body.lanes == 4
    assert dict(body.inputs)["input"].sizes == (5, 2) and dict(body.inputs)["indices"] is indices


def test_a_gather_does_not_pack_along_its_indexed_dimension():
    indices = tensor((8, 1), (1, 1), I64, View.INDEX, index=1)
    assert lanes(gather(tensor((5,), view=View.RAW), indices, (8,), (None,)), output((8,))) == 1
    body = gather(tensor((5, 3), (4, 1), view=View.RAW), indices, (8, 3), (None, 1))
    assert lanes(body, output((8, 3), (1, 8))) == 1


def test_shared_nodes_are_packed_once():
    node = subtract(tensor((4, 8)), tensor((4, 8), index=1))
    for _ in range(60):
        node = subtract(node, node)
    packed, _ = pack(node, output((4, 8)))
    for _ in range(60):
        (_, a), (_, b) = packed.inputs
        assert a is b
        packed = a
    assert packed.lanes == 4 and math.prod(packed.sizes) == 8


def test_a_tensor_that_is_used_twice_stays_one():
    x = tensor((8,))
    packed, _ = pack(subtract(x, x), output((8,)))
    (_, a), (_, b) = packed.inputs
    assert a.lanes == 4
    assert a is b
