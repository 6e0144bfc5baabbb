"""ARGMIN, ARGMAX and REDUCE: what they refuse, output sizes, upgrades, plans."""

from __future__ import annotations

import pytest

from dmlgpu import descs, operators
from dmlgpu.enums import AxisDirection, DataType, ReduceFunction
from dmlgpu.errors import InvalidDescription, OperatorNotImplemented
from dmlgpu.operators.lowering import lowering
from dmlgpu.plan import ReduceSchedule
from dmlgpu.target import Profile, Target
from dmlgpu.tensor import TensorDesc

F32, F16, I32, I64, U64 = (DataType[name] for name in ("FLOAT32", "FLOAT16", "INT32", "INT64", "UINT64"))
ANY = Target("any")


def argmin(data_type=F32, axes=(1,), sizes=(4, 5, 6), *, desc_class=descs.Argmin, direction=0, output=None):
    reduced = tuple(1 if axis in axes else size for axis, size in enumerate(sizes))
    return desc_class(
        input_tensor=TensorDesc(data_type, sizes),
        output_tensor=TensorDesc(I64, output or reduced),
        axes=axes,
        axis_direction=AxisDirection(direction),
    )


def reduce(function, data_type=F32, axes=(1,), sizes=(4, 5, 6), output_type=None):
    reduced = tuple(1 if axis in axes else size for axis, size in enumerate(sizes))
    return descs.Reduce(
        function=function,
        input_tensor=TensorDesc(data_type, sizes),
        output_tensor=TensorDesc(output_type or data_type, reduced),
        axes=axes,
    )


@pytest.mark.parametrize(
    ("desc", "message"),
    [
        (argmin(axes=()), "ARGMIN: axes must name at least one axis, got none"),
        (argmin(axes=(1, 3)), "ARGMIN: axes[1] must be below input_tensor's dimension count (3), got 3"),
        (argmin(axes=(2, 1, 2)), "ARGMIN: axes[2] must not repeat an axis, got 2 again"),
        (
            argmin(axes=(2, 0), output=(4, 1, 1), desc_class=descs.Argmax),
            "ARGMAX: output_tensor.sizes must be [1, 5, 1] (input_tensor.sizes with 1 along axes), got [4, 1, 1]",
        ),
        (reduce(ReduceFunction.SUM, axes=()), "REDUCE: axes must name at least one axis, got none"),
    ],
)
def test_what_is_refused(desc, message):
    with pytest.raises(InvalidDescription) as caught:
        operators.check(desc)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "function",
    [f for f in ReduceFunction if f.name not in ("SUM", "ARGMIN", "ARGMAX")],
    ids=lambda function: function.name,
)
def test_other_functions_are_refused_by_name(function):
    with pytest.raises(OperatorNotImplemented) as caught:
        operators.check(reduce(function))
    assert str(caught.value) == (
        f"REDUCE with function {function.name}: dmlgpu does not implement this operator yet (see `dmlgpu ops`)"
    )


@pytest.mark.parametrize(("axes", "sizes"), [((1,), (4, 1, 6)), ((2, 0), (1, 5, 1)), ((0, 1, 2), (1, 1, 1))])
def test_output_sizes(axes, sizes):
    operators.check(argmin(axes=axes))
    assert lowering("ARGMIN").output_sizes(argmin(axes=axes)) == {"output_tensor": sizes}


@pytest.mark.parametrize(
    ("function", "desc_class"), [(ReduceFunction.ARGMIN, descs.Argmin), (ReduceFunction.ARGMAX, descs.Argmax)]
)
def test_reduce_finds_places_as_the_operators_of_their_own_do(function, desc_class):
    older = reduce(function, output_type=I64)
    assert operators.upgrade(older) == argmin(desc_class=desc_class, direction=AxisDirection.INCREASING)


def test_sums_are_not_upgraded():
    desc = reduce(ReduceFunction.SUM)
    assert operators.upgrade(desc) is desc


@pytest.mark.parametrize(
    ("desc", "constants"),
    [
        (argmin(), {"order": "ascending", "decreasing": False}),
        (argmin(direction=1), {"order": "ascending", "decreasing": True}),
        (argmin(desc_class=descs.Argmax), {"order": "descending", "decreasing": False}),
    ],
)
def test_argmin_and_argmax_are_one_body_in_two_orders(desc, constants):
    plan = operators.lower(desc, ANY)
    (step,) = plan.steps
    assert (plan.operator, step.file, step.words) == (desc.operator, "reduction/argmin", True)
    assert dict(step.constants) == constants


@pytest.mark.parametrize("data_type", [I64, U64])
def test_64_bit_elements_are_ranked_by_two_words(data_type):
    (step,) = operators.lower(argmin(data_type), ANY).steps
    assert step.file == "reduction/argmin_wide" and step.words


@pytest.mark.parametrize(
    ("data_type", "file", "accumulator", "bits"),
    [
        (F32, "reduction/reduce_sum_float", F32, 64),
        (F16, "reduction/reduce_sum_float", F32, 64),
        (I32, "reduction/reduce_sum", I32, 32),
        (I64, "reduction/reduce_sum", I64, 64),
    ],
)
def test_sums_keep_their_rounding_errors_or_wrap(data_type, file, accumulator, bits):
    plan = operators.lower(reduce(ReduceFunction.SUM, data_type, (0,), (1 << 20,)), Target("any", Profile.DISCRETE))
    first, second = plan.steps
    assert (first.file, first.output.data_type, first.output.unit_bits) == (file, accumulator, bits)
    assert (first.schedule, second.schedule) == (ReduceSchedule.PARTIAL, ReduceSchedule.TREE)
    assert second.element is data_type and second.output.data_type is data_type
    assert plan.temporaries == (first.output.sizes[-1] * bits // 8,)
