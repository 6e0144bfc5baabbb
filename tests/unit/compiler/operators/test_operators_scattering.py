"""SCATTER_ELEMENTS and SCATTER_ND: validation, output sizes, plans."""

from __future__ import annotations

import pytest

from dmlgpu import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import TensorDesc, aligned
from dmlgpu.compiler import operators
from dmlgpu.compiler import stages as compiler
from dmlgpu.compiler.operators.lowering import lowering
from dmlgpu.compiler.schedule.steps.ordering import ScatterSchedule, ScheduledScatter
from dmlgpu.compiler.target import Policies, Profile, Target
from tests.schedules import steps_of
from tests.unit.rejections import rejection

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
def test_invalid_descriptions_are_rejected(desc, message):
    assert rejection(desc) == message


@pytest.mark.parametrize(
    "desc", [scatter(), blocks(), blocks(indices_tensor=indices(1, 3, 2), updates_tensor=floats(1, 3, 8))]
)
def test_output_sizes(desc):
    operators.check(desc)
    assert lowering(desc.operator).output_sizes(desc) == {"output_tensor": desc.input_tensor.sizes}


def test_the_older_name_of_the_operator_is_an_alias():
    assert descs.by_name("SCATTER") is descs.ScatterElements


@pytest.mark.parametrize(
    ("desc", "source", "output", "lanes"),
    [
        pytest.param(scatter(), (4, 3, 6), (4, 5, 6), 1, id="elements"),
        pytest.param(
            scatter(
                input_tensor=floats(2, 3, 5, 4, 6),
                output_tensor=floats(2, 3, 5, 4, 6),
                indices_tensor=indices(2, 3, 7, 4, 6),
                updates_tensor=floats(2, 3, 7, 4, 6),
                axis=2,
            ),
            (6, 7, 24),
            (6, 5, 24),
            1,
            id="before and after an axis",
        ),
        pytest.param(
            scatter(
                input_tensor=floats(4, 5, 8),
                output_tensor=floats(4, 5, 8),
                indices_tensor=indices(4, 3, 8, strides=(3, 1, 0)),
                updates_tensor=floats(4, 3, 8),
            ),
            (4, 3, 2),
            (4, 5, 2),
            4,
            id="updates that share an index",
        ),
        pytest.param(blocks(), (3, 12), (5, 12), 4, id="blocks"),
        pytest.param(
            blocks(updates_tensor=floats(3, 6, 8, strides=(49, 8, 1))), (3, 48), (5, 48), 1, id="odd blocks of updates"
        ),
        pytest.param(
            blocks(output_tensor=floats(5, 6, 8, strides=(50, 8, 1))), (3, 24), (5, 24), 2, id="pairs in the output"
        ),
        pytest.param(
            blocks(updates_tensor=floats(3, 6, 8, strides=(48, 1, 6))), (3, 6, 8), (5, 6, 8), 1, id="permuted updates"
        ),
        pytest.param(
            blocks(indices_tensor=indices(1, 1, 3), updates_tensor=floats(1, 1, 1)), (1,), (5, 6, 8), 1, id="an element"
        ),
    ],
)
def test_a_copy_then_updates_merged_and_packed_as_both_tensors_allow(desc, source, output, lanes):
    operators.check(desc)
    copy, store = steps_of(desc, ANY)
    assert copy.label == "copy" and isinstance(store, ScheduledScatter) and store.schedule is ScatterSchedule.STORE
    assert (store.source.sizes, store.output.sizes) == (source, output)
    assert (store.source.lanes, store.output.lanes) == (lanes, lanes)


@pytest.mark.parametrize(
    ("desc", "marks"), [(scatter(output_tensor=floats(4, 5, 6, strides=(32, 6, 1))), 4 * 5 * 6), (blocks(), 5 * 12)]
)
def test_a_deterministic_scatter_marks_the_last_update_of_each_unit_first(desc, marks):
    target = Target("any", policies=Policies(deterministic=True))
    _, clear, mark, store = steps_of(desc, target)
    labels = [kernel.label.split(" x")[0] for kernel in compiler.compile_operator(desc, target).kernels]
    assert labels == [f"{desc.operator.lower()} {label}" for label in ("copy", "clear marks", "mark", "scatter marked")]
    assert (mark.schedule, store.schedule) == (ScatterSchedule.MARK, ScatterSchedule.STORE_MARKED)
    assert mark.output == dict(store.inputs)["marks"] and mark.output.binding == clear.output.binding
    assert compiler.compile_operator(desc, target).temporary_size == aligned(4 * marks)


@pytest.mark.parametrize(
    ("profile", "width", "run"),
    [(Profile.CPU, 32, (1, 1)), (Profile.CPU, 24, None), (Profile.DISCRETE, 32, None)],
)
def test_four_units_of_a_row_share_a_lookup_on_cpus(profile, width, run):
    rows = TensorDesc(F32, (500, width))
    desc = descs.ScatterNd(
        input_tensor=rows,
        indices_tensor=TensorDesc(U32, (300, 1)),
        updates_tensor=TensorDesc(F32, (300, width)),
        output_tensor=rows,
        input_dimension_count=2,
        indices_dimension_count=2,
    )
    _, scatter = steps_of(desc, Target("any", profile))
    assert scatter.run == run
    assert scatter.launch.items_per_invocation == (4 if profile is Profile.CPU else 1)
