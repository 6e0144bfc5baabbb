"""Views of one tensor in another, compared with NumPy's strides."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlgpu import DataType
from dmlgpu.catalog.tensor_desc import packed_strides
from dmlgpu.compiler.plan import Affine, AffineView, PlanBinding, PlanTensor, RegisterValue, Role, apply
from dmlgpu.compiler.rewrites.spaces import affine_between, compose, is_same, reindex, split
from dmlgpu.compiler.sizes.arithmetic import Recording

BINDING = PlanBinding(Role.TEMPORARY, 0)
SIZES = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)


def tensor(sizes: tuple[int, ...], strides: tuple[int, ...] | None = None, offset: int = 0) -> PlanTensor:
    return PlanTensor(BINDING, DataType.FLOAT32, sizes, strides or packed_strides(sizes), offset=offset)


def places(view: PlanTensor) -> list[int]:
    """Return the offset of each element of a tensor, in row-major order."""
    return [
        view.offset + sum(c * stride for c, stride in zip(at, view.strides, strict=True))
        for at in itertools.product(*map(range, view.sizes))
    ]


def places_through(affine: Affine, sizes: tuple[int, ...], written: PlanTensor) -> list[int]:
    """Return the offsets of the elements to which a map leads, and check that they are elements."""
    numbers = []
    for at in itertools.product(*map(range, sizes)):
        there = [
            start + sum(step * c for step, c in zip(row, at, strict=True))
            for start, row in zip(affine.start, affine.steps, strict=True)
        ]
        assert all(0 <= c < size for c, size in zip(there, written.sizes, strict=True))
        numbers.append(written.offset + sum(c * stride for c, stride in zip(there, written.strides, strict=True)))
    return numbers


@st.composite
def written_tensors(draw: st.DrawFn) -> PlanTensor:
    """Draw tensors with dimensions in any order and gaps, whose elements do not overlap."""
    sizes = draw(SIZES)
    order = draw(st.permutations(range(len(sizes))))
    strides, step = [0] * len(sizes), draw(st.integers(1, 2))
    for dimension in order:
        strides[dimension] = step
        step *= sizes[dimension] + draw(st.integers(0, 1))
    return tensor(sizes, tuple(strides), draw(st.integers(0, 3)))


@given(written_tensors(), st.data())
def test_views_map_to_their_elements(written: PlanTensor, data: st.DataObject) -> None:
    start = tuple(data.draw(st.integers(0, size - 1)) for size in written.sizes)
    order = data.draw(st.permutations(range(written.rank)))
    sizes = tuple(data.draw(st.integers(1, written.sizes[dimension] - start[dimension])) for dimension in order)
    strides = tuple(data.draw(st.sampled_from([written.strides[dimension], 0])) for dimension in order)
    offset = written.offset + sum(c * stride for c, stride in zip(start, written.strides, strict=True))
    view = tensor(sizes, strides, offset)
    affine = affine_between(view, written)
    assert affine is not None
    assert places_through(affine, view.sizes, written) == places(view)


@given(written_tensors(), SIZES, st.data())
def test_located_views_have_the_same_elements(written: PlanTensor, sizes: tuple[int, ...], data: st.DataObject) -> None:
    strides = tuple(data.draw(st.integers(-3, 12)) for _ in sizes)
    view = tensor(sizes, strides, data.draw(st.integers(0, 12)))
    affine = affine_between(view, written)
    if affine is not None:
        assert places_through(affine, view.sizes, written) == places(view)


def test_other_types_offsets_and_overlapping_elements_are_not_located() -> None:
    written = tensor((4, 6))
    assert affine_between(PlanTensor(BINDING, DataType.INT32, (4, 6), (6, 1)), written) is None
    assert affine_between(tensor((4, 6), offset=1), written) is None
    assert affine_between(tensor((24,)), written) is None
    assert affine_between(tensor((2,)), tensor((2, 2), (1, 1))) is None


def test_offsets_of_bindings_count() -> None:
    view = PlanTensor(PlanBinding(Role.TEMPORARY, 0, 32), DataType.FLOAT32, (2,), (1,))
    affine = affine_between(view, tensor((4, 6)))
    assert affine is not None
    assert affine.start == (1, 2)


@given(SIZES, st.data())
def test_split_views_are_located(sizes: tuple[int, ...], data: st.DataObject) -> None:
    written = tensor(sizes)
    total = len(places(written))
    view = tensor((total,))
    parted = split(view, written)
    if parted is None:
        assert sum(size > 1 for size in sizes) <= 1
        return
    finer, affine = parted
    seen = affine.of(view, finer)
    assert places(seen) == places(view)
    assert affine_between(seen, written) is not None


def test_views_of_symbolic_sizes_are_split() -> None:
    recording = Recording([5, 7])
    with recording.active():
        rows, columns = recording.symbols
        parted = split(tensor((rows * columns,)), tensor((rows, columns)))
        assert parted is not None
        replay = recording.replay(parted[0])
    assert [replay(sizes) for sizes in ((9, 2), (3, 70), (4, 1))] == [(9, 2), (3, 70), None]


def test_splitting_views_decides_nothing_about_sizes_of_one() -> None:
    """One token is a prompt of length 1: strides of dimensions are not compared to those of others."""
    recording = Recording([2, 5])
    with recording.active():
        batch, rows = recording.symbols
        view = tensor((batch, rows, 576), (rows * 576, 576, 1))
        parted = split(view, tensor((rows, batch, 9, 64), (576, rows * 576, 64, 1)))
        assert parted is not None
        replay = recording.replay(parted[0])
    assert [replay(sizes) for sizes in ((3, 7), (1, 1))] == [(3, 7, 9, 64), (1, 1, 9, 64)]


def test_dimensions_of_one_element_split_nothing() -> None:
    recording = Recording([1])
    with recording.active():
        assert split(tensor((6,)), tensor((6, *recording.symbols))) is None


@pytest.mark.parametrize("turned", [False, True])
def test_views_of_symbolic_sizes_lead_to_their_elements_also_for_sizes_of_1(turned: bool) -> None:
    """Of one row, the stride of the batch is that of a row."""

    def tensors(batch: int, rows: int) -> tuple[PlanTensor, PlanTensor]:
        written = tensor((batch, rows, 6))
        view = tensor((batch, 2, rows, 3), (rows * 6, 3, 6, 1))
        return (tensor((rows, batch, 6), (6, rows * 6, 1)) if turned else view), written

    recording = Recording([1, 4])
    with recording.active():
        affine = affine_between(*tensors(*recording.symbols))
        replay = recording.replay(affine)
    for sizes in ((1, 4), (1, 1), (1, 9)):
        view, written = tensors(*sizes)
        followed = replay(sizes)
        assert followed is not None, sizes
        assert places(view) == places_through(followed, view.sizes, written)


def test_dimensions_of_symbolic_sizes_are_their_own_also_if_rows_have_one_element() -> None:
    """Of one row, the stride of the heads is that of a row."""
    recording = Recording([6, 1, 1500])
    with recording.active():
        written = tensor(recording.symbols)
        affine = affine_between(written, written)
        assert affine is not None
        assert is_same(affine, written.sizes, written.sizes)
        replay = recording.replay(affine)
    assert replay((6, 3, 70)) == affine  # no size was compared to 1


@given(written_tensors(), st.data())
def test_maps_compose(written: PlanTensor, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(written.rank)))
    outer = Affine.permutation(order)
    sizes = tuple(written.sizes[dimension] for dimension in order)
    inner = Affine.box((0,) * written.rank, (1,) * written.rank)
    again = compose(outer, inner)
    assert places_through(again, sizes, written) == places(outer.of(written, sizes))


def test_trees_are_viewed_from_another_space() -> None:
    sizes, turned = (2, 3), (3, 2)
    a, b = tensor(sizes), tensor(sizes, (0, 1))
    held = RegisterValue.product(DataType.FLOAT32, sizes)
    body = apply("elementwise/element_wise_add", DataType.FLOAT32, sizes, a=a, b=b)
    tree = apply("elementwise/element_wise_multiply", DataType.FLOAT32, sizes, a=body, b=held)
    seen = reindex(tree, turned, Affine.permutation((1, 0)))
    inner, stands = seen.children
    assert [child.strides for child in inner.children] == [(1, 3), (1, 0)]
    assert (seen.sizes, inner.sizes, stands.sizes) == (turned, turned, turned)


def test_views_within_a_tree_turn_with_it() -> None:
    view = AffineView(
        apply("elementwise/element_wise_abs", DataType.FLOAT32, (4,), input=tensor((4,))), (2,), Affine((1,), ((2,),))
    )
    seen = reindex(view, (2,), Affine((1,), ((-1,),)))
    assert isinstance(seen, AffineView)
    assert (seen.affine.start, seen.affine.steps) == ((3,), ((-2,),))
