"""SCATTER_ELEMENTS and SCATTER_ND: what they refuse, output sizes, plans."""

from __future__ import annotations

import pytest

from dmlgpu import descs, operators
from dmlgpu.enums import DataType
from dmlgpu.operators.lowering import lowering
from dmlgpu.plan import Binding, Map, Role, Scatter, ScatterSchedule, View
from dmlgpu.target import Target
from dmlgpu.tensor import TensorDesc
from tests.unit.refusals import refusal

F32, I64, U32 = DataType.FLOAT32, DataType.INT64, DataType.UINT32
ANY = Target("any")


def floats(*sizes, strides=None):
    return TensorDesc(F32, sizes, strides)


def indices(*sizes, strides=None):
    return TensorDesc(I64, sizes, strides)


def scatter(**changes):
    fields = {
        "input_tensor": floats(4, 5, 6),
        "indices_tensor": indices(4, 3, 6),
        "updates_tensor": floats(4, 3, 6),
        "output_tensor": floats(4, 5, 6),
        "axis": 1,
    }
    return descs.ScatterElements(**fields | changes)


def blocks(**changes):
    fields = {
        "input_tensor": floats(5, 6, 8),
        "indices_tensor": indices(1, 3, 1),
        "updates_tensor": floats(3, 6, 8),
        "output_tensor": floats(5, 6, 8),
        "input_dimension_count": 3,
        "indices_dimension_count": 2,
    }
    return descs.ScatterNd(**fields | changes)


@pytest.mark.parametrize(
    ("desc", "message"),
    [
        (scatter(axis=3), "SCATTER_ELEMENTS: axis must be below output_tensor's dimension count (3), got 3"),
        (
            scatter(output_tensor=floats(4, 3, 6)),
            "SCATTER_ELEMENTS: output_tensor.sizes must be [4, 5, 6] (input_tensor.sizes), got [4, 3, 6]",
        ),
        (
            scatter(indices_tensor=indices(4, 3, 5), updates_tensor=floats(4, 3, 5)),
            "SCATTER_ELEMENTS: indices_tensor.sizes[2] must be input_tensor.sizes[2] (6), got 5",
        ),
        (
            scatter(updates_tensor=floats(4, 2, 6)),
            "SCATTER_ELEMENTS: updates_tensor.sizes must be [4, 3, 6] (indices_tensor.sizes), got [4, 2, 6]",
        ),
        (
            blocks(input_dimension_count=4),
            "SCATTER_ND: input_dimension_count must be between 1 and input_tensor's dimension count (3), got 4",
        ),
        (
            blocks(input_dimension_count=2),
            "SCATTER_ND: input_tensor.sizes must be 1 in the leading dimensions that input_dimension_count (2)"
            " leaves out, got [5]",
        ),
        (
            blocks(indices_dimension_count=0),
            "SCATTER_ND: indices_dimension_count must be between 1 and indices_tensor's dimension count (3), got 0",
        ),
        (
            blocks(indices_tensor=indices(2, 3, 1)),
            "SCATTER_ND: indices_tensor.sizes must be 1 in the leading dimensions that indices_dimension_count (2)"
            " leaves out, got [2]",
        ),
        (
            blocks(indices_tensor=indices(1, 3, 4)),
            "SCATTER_ND: indices_tensor.sizes[-1] must be at most input_dimension_count (3), got 4",
        ),
        (
            blocks(indices_tensor=indices(2, 3, 1), indices_dimension_count=3),
            "SCATTER_ND: updates_tensor.sizes must have at least 4 dimensions to hold the tuple and window dimensions,"
            " got 3",
        ),
        (
            blocks(output_tensor=floats(5, 8, 6)),
            "SCATTER_ND: output_tensor.sizes must be [5, 6, 8] (input_tensor.sizes), got [5, 8, 6]",
        ),
        (
            blocks(updates_tensor=floats(4, 6, 8)),
            "SCATTER_ND: updates_tensor.sizes must be [3, 6, 8] (leading 1s, tuple, window), got [4, 6, 8]",
        ),
    ],
)
def test_what_is_refused(desc, message):
    assert refusal(desc) == message


@pytest.mark.parametrize(
    "desc", [scatter(), blocks(), blocks(indices_tensor=indices(1, 3, 2), updates_tensor=floats(1, 3, 8))]
)
def test_output_sizes(desc):
    operators.check(desc)
    assert lowering(desc.operator).output_sizes(desc) == {"output_tensor": desc.input_tensor.sizes}


def test_the_older_name_of_the_operator_is_an_alias():
    assert descs.by_name("SCATTER") is descs.ScatterElements


def test_scatter_copies_then_stores():
    plan = operators.lower(scatter(), ANY)
    copy, store = plan.steps
    assert isinstance(copy, Map) and isinstance(store, Scatter)
    assert (copy.label, store.label, store.schedule, plan.temporaries) == (
        "copy",
        "scatter",
        ScatterSchedule.STORE,
        (),
    )
    assert store.source.binding == Binding(Role.INPUT, 2) and store.source.view is View.RAW
    assert [(name, tensor.binding.index, tensor.view) for name, tensor in store.inputs] == [("indices", 1, View.INDEX)]
    assert dict(store.constants) == {"axis": 1}


def test_scatter_merges_before_and_after_its_axis():
    sizes, updates = (2, 3, 5, 4, 6), (2, 3, 7, 4, 6)
    desc = scatter(
        input_tensor=floats(*sizes),
        output_tensor=floats(*sizes),
        indices_tensor=indices(*updates),
        updates_tensor=floats(*updates),
        axis=2,
    )
    store = operators.lower(desc, ANY).steps[-1]
    assert (store.source.sizes, store.output.sizes, dict(store.constants)) == ((6, 7, 24), (6, 5, 24), {"axis": 1})
    assert (store.output.strides, store.source.strides) == ((120, 24, 1), (168, 24, 1))


def test_a_deterministic_scatter_marks_the_last_update_first():
    plan = operators.lower(
        scatter(output_tensor=floats(4, 5, 6, strides=(32, 6, 1))), Target("any", deterministic=True)
    )
    copy, clear, mark, store = plan.steps
    assert [step.label for step in plan.steps] == ["copy", "clear marks", "mark", "scatter marked"]
    assert (mark.schedule, store.schedule) == (ScatterSchedule.MARK, ScatterSchedule.STORE_MARKED)
    assert plan.temporaries == (4 * 4 * 5 * 6,)
    assert clear.output == mark.output == dict(store.inputs)["marks"]
    assert (mark.output.data_type, mark.output.binding) == (U32, Binding(Role.TEMPORARY, 0))
    assert mark.output.strides == (30, 6, 1) and store.output.strides == (32, 6, 1)
    assert copy.output.binding == store.output.binding == Binding(Role.OUTPUT, 0)


def block_step(desc, target=ANY):
    plan = operators.lower(desc, target)
    assert plan.steps[0].label == "copy"
    store = plan.steps[-1]
    return store, store.source, dict(store.inputs)["indices"], store.output


def test_blocks_are_scattered_in_units():
    store, updates, index, output = block_step(blocks())
    assert (updates.sizes, updates.strides, updates.lanes) == ((3, 12), (12, 1), 4)
    assert (output.sizes, output.strides, output.lanes) == ((5, 12), (12, 1), 4)
    assert (index.sizes, index.strides, index.view) == ((3, 1), (1, 1), View.INDEX)
    assert dict(store.constants) == {"tuple": 1, "lead": 1}


@pytest.mark.parametrize(
    ("changes", "lanes"),
    [
        ({"updates_tensor": floats(3, 6, 8, strides=(49, 8, 1))}, 1),
        ({"output_tensor": floats(5, 6, 8, strides=(50, 8, 1))}, 2),
        ({"updates_tensor": floats(3, 6, 8, strides=(48, 1, 6))}, 1),
        ({"indices_tensor": indices(1, 3, 3), "updates_tensor": floats(1, 1, 3)}, 1),
    ],
)
def test_units_are_no_wider_than_both_tensors_allow(changes, lanes):
    _, updates, _, output = block_step(blocks(**changes))
    assert (updates.lanes, output.lanes) == (lanes, lanes)


def test_marks_count_units():
    plan = operators.lower(blocks(), Target("any", deterministic=True))
    assert [step.label for step in plan.steps] == ["copy", "clear marks", "mark", "scatter marked"]
    mark = plan.steps[2]
    assert mark.output.sizes == (5, 12) and mark.output.lanes == 1 and mark.source.lanes == 4
    assert plan.temporaries == (4 * 5 * 12,)


def test_a_single_element_is_scattered():
    desc = blocks(indices_tensor=indices(1, 1, 3), updates_tensor=floats(1, 1, 1), indices_dimension_count=1)
    operators.check(desc)
    _, updates, index, output = block_step(desc)
    assert (updates.sizes, index.sizes, output.sizes) == ((1,), (3,), (5, 6, 8))


def test_updates_that_share_an_index_are_scattered_in_units():
    desc = scatter(
        input_tensor=floats(4, 5, 8),
        output_tensor=floats(4, 5, 8),
        indices_tensor=indices(4, 3, 8, strides=(3, 1, 0)),
        updates_tensor=floats(4, 3, 8),
    )
    store = operators.lower(desc, ANY).steps[-1]
    assert (store.source.sizes, store.output.sizes, store.source.lanes, store.output.lanes) == (
        (4, 3, 2),
        (4, 5, 2),
        4,
        4,
    )
