"""Inputs that tell formulas apart: what they are, and that fixed and random cases have them."""

from __future__ import annotations

import numpy as np
import pytest

from dmlgpu import TensorDesc, descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.compiler.stages import compile_operator
from dmlgpu.compiler.target import Profile, Target
from dmlgpu.conformance.cases.case import Arrays, Case
from dmlgpu.conformance.cases.discriminating import (
    BOTH_SIGNS,
    SHARE,
    DiscriminatingInputs,
    with_discriminating,
    with_rivals,
)
from dmlgpu.conformance.cases.keys import Key
from dmlgpu.conformance.cases.layouts import TensorLayout
from dmlgpu.conformance.cases.registry import OPERATOR_CASES, case_by_name
from dmlgpu.conformance.running.runner import grids, with_folded_grids

SIZES = (5, 60)


def modulus(data_type: DataType) -> Case:
    tensor = TensorDesc(data_type, SIZES)
    desc = descs.ElementWiseModulusFloor(a_tensor=tensor, b_tensor=tensor, output_tensor=tensor)
    return Case("modulus", desc, lambda rng: (np.full(SIZES, 99, data_type.numpy),) * 2)


def pairs(arrays: Arrays) -> list[tuple[float, ...]]:
    return list(zip(*(np.asarray(array).ravel().tolist() for array in arrays), strict=True))


@pytest.mark.parametrize("data_type", [DataType.INT8, DataType.UINT16, DataType.FLOAT32])
def test_a_third_of_the_places_gets_every_row_that_the_type_has(data_type: DataType) -> None:
    discriminating = DiscriminatingInputs("truncated for floored", ("a_tensor", "b_tensor"), BOTH_SIGNS)
    drawn = pairs(with_discriminating(modulus(data_type), [discriminating]).inputs())
    chosen = [pair for pair in drawn if pair != (99, 99)]
    assert len(chosen) == round(SHARE * len(drawn))
    due = {(a, b) for a, b in BOTH_SIGNS if data_type.is_signed or data_type.is_float or min(a, b) >= 0}
    assert set(chosen) == due


def test_rows_may_follow_from_the_description() -> None:
    tensor = TensorDesc(DataType.INT16, SIZES)
    desc = descs.ElementWiseThreshold(input_tensor=tensor, output_tensor=tensor, min=7.0)
    case = Case("threshold", desc, lambda rng: (np.zeros(SIZES, np.int16),))
    discriminating = DiscriminatingInputs(
        "the border", ("input_tensor",), lambda desc: [(desc.min,), (desc.min + 0.5,)]
    )
    (array,) = with_discriminating(case, [discriminating]).inputs()
    assert sorted(np.unique(np.asarray(array))) == [0, 7]


def test_inputs_that_are_absent_or_of_other_sizes_stay() -> None:
    case = modulus(DataType.INT32)
    for fields in (("a_tensor", "nothing"), ("nothing",)):
        changed = with_discriminating(case, [DiscriminatingInputs("", fields, ((1, 2), (3, 4)))])
        assert set(pairs(changed.inputs())) == {(99, 99)}


def test_the_largest_and_the_smallest_element_have_rivals() -> None:
    array = with_rivals(np.random.default_rng(1), np.arange(600))
    assert 60 < (array == 599).sum() < 140
    assert 60 < (array == 0).sum() < 140


@pytest.mark.parametrize("stem", ["element_wise_divide", "element_wise_modulus_floor", "element_wise_modulus_truncate"])
@pytest.mark.parametrize("seed", [0, 12345])
def test_quotients_have_exact_multiples_of_every_sign(stem: str, seed: int) -> None:
    case = OPERATOR_CASES[stem].case_of(Key((DataType.INT32,), (20, 30), TensorLayout.PACKED, "", seed))
    drawn = pairs(case.inputs())
    exact = {(a > 0, b > 0) for a, b in drawn if a and b not in (0, 1, -1) and a % b == 0}
    assert len(exact) == 4


@pytest.mark.parametrize("direction", ["argmin", "argmax"])
def test_equal_keys_are_there_in_every_case(direction: str) -> None:
    key = Key((DataType.FLOAT32, DataType.UINT32), (64, 64), TensorLayout.PACKED, "inner")
    (array,) = OPERATOR_CASES[direction].case_of(key).inputs()
    assert array is not None
    best = array.max(1) if direction == "argmax" else array.min(1)
    assert ((array == best[:, None]).sum(1) > 1).mean() > 0.9


@pytest.mark.parametrize("index_type", ["int32", "int64", "uint32", "uint64"])
def test_indices_are_first_last_and_one_beyond(index_type: str) -> None:
    case = case_by_name(f"gather_elements-float32-{index_type}-65x64-packed-s0")
    desc, indices = case.desc, case.inputs()[1]
    assert isinstance(desc, descs.GatherElements)
    assert indices is not None
    extent = (65, 64)[desc.axis]
    due = {0, extent - 1, extent} | ({-1, -extent, -extent - 1} if index_type.startswith("int") else set())
    assert due <= set(indices.ravel().tolist())


def test_quantized_products_have_ties_and_saturate() -> None:
    name = "quantized_linear_matrix_multiply-uint8-uint8-uint8-33x7x5-strided-ties-s0"
    case = case_by_name(name)
    (result,) = case.expected(case.inputs())
    a, a_scale, a_zero, b, b_scale, b_zero, scale, _ = (np.asarray(x, np.float64) for x in case.inputs())
    product = (a - a_zero) @ (b - b_zero)
    quotients = product * (a_scale * b_scale) / scale
    assert (quotients % 1 == 0.5).mean() > 0.03
    assert {0, 255} & set(result.ravel().tolist())


def test_lowered_limits_fold_grids() -> None:
    case = case_by_name("element_wise_add-float32-63x129-packed-s0")
    for profile in Profile:
        plain = Target("GPU", profile)
        folded = with_folded_grids(case.desc, plain)
        (before,), (after,) = (grids(compile_operator(case.desc, target)) for target in (plain, folded))
        assert before[1] == 1 < after[1]
        assert before[0] <= after[0] * after[1] < 2 * before[0]
        assert max(after) <= folded.max_workgroups_per_dimension


@pytest.mark.parametrize("stem", ["element_wise_floor", "element_wise_tanh", "element_wise_pow"])
def test_scales_and_biases_are_not_neutral(stem: str) -> None:
    types = tuple([DataType.FLOAT32] * len(OPERATOR_CASES[stem].types[0]))
    for seed in range(20):
        desc = OPERATOR_CASES[stem].case_of(Key(types, (4, 5), TensorLayout.PACKED, "scaled", seed)).desc
        scaling = desc.values["scale_bias"]
        assert scaling.scale != 1 and scaling.bias != 0


@pytest.mark.parametrize("aligned", [False, True])
def test_regions_lie_on_the_outermost_places_inside(aligned: bool) -> None:
    """Empty ones, all of whose samples have one coordinate: that of the region less the offset."""
    sizes, borders = (2, 3, 9, 8), set()
    for seed in range(40):
        key = Key((DataType.FLOAT32, DataType.UINT32), sizes, TensorLayout.PACKED, "corners" if aligned else "", seed)
        case = OPERATOR_CASES["roi_align1"].case_of(key)
        assert isinstance(case.desc, descs.RoiAlign1)
        rois = np.asarray(case.inputs()[1], np.float64).reshape(-1, 4)
        for axis, scale in ((0, case.desc.spatial_scale_x), (1, case.desc.spatial_scale_y)):
            near = rois[rois[:, axis] == rois[:, axis + 2], axis] * scale - case.desc.input_pixel_offset
            borders |= {(place, axis) for place in np.round(near, 3)}
    assert {(place, axis) for axis, size in ((0, 8), (1, 9)) for place in (-1, 0, size - 1, size)} <= borders


def test_caches_are_empty_full_and_between() -> None:
    lengths, rooms = set(), 0
    for seed in range(20):
        key = Key((DataType.FLOAT32,), (6, 2, 1, 4), TensorLayout.PACKED, "cache", seed)
        case = OPERATOR_CASES["multihead_attention1"].case_of(key)
        assert isinstance(case.desc, descs.MultiheadAttention1) and case.desc.past_key_tensor is not None
        room = case.desc.past_key_tensor.sizes[-2]
        numbers = {slot.field: index for index, slot in enumerate(case.desc.inputs)}
        cached = np.asarray(case.inputs()[numbers["past_sequence_lengths_tensor"]])
        lengths |= {"full" if length == room else "empty" if length <= 0 else "between" for length in cached.ravel()}
        rooms += len(set(cached.ravel().tolist())) > 1
    assert lengths == {"full", "empty", "between"} and rooms > 15


def test_masks_that_hide_rows_hide_scores_that_differ() -> None:
    for seed in range(10):
        key = Key((DataType.FLOAT32,), (3, 4, 2, 4), TensorLayout.PACKED, "boolean", seed)
        case = OPERATOR_CASES["multihead_attention"].case_of(key)
        assert isinstance(case.desc, descs.MultiheadAttention) and case.desc.scale != 0
        mask = np.asarray(case.inputs()[7]).reshape(3, 2, 4, -1)
        assert (mask == 0).all(-1).any() and not (mask == 0).all()


@pytest.mark.parametrize("variant", ["", "owned"])
def test_norms_near_epsilon_occur_in_owned_and_bound_inputs(variant: str) -> None:
    shares = []
    for seed in range(12):
        case = OPERATOR_CASES["lp_normalization"].case_of(
            Key((DataType.FLOAT32,), (30, 30), TensorLayout.PACKED, variant, seed)
        )
        assert isinstance(case.desc, descs.LpNormalization)
        if 0 < case.desc.epsilon < 0.01:  # far below ordinary norms
            norms = np.linalg.norm(np.asarray(case.inputs()[0], np.float64), case.desc.p, case.desc.axis)
            shares.append((norms < 200 * case.desc.epsilon).mean())
    assert 0.15 < np.mean(shares) < 0.5


def test_powers_of_one_and_minus_one_have_negative_exponents() -> None:
    key = Key((DataType.INT32, DataType.INT32), (20, 30), TensorLayout.PACKED, "")
    drawn = set(pairs(OPERATOR_CASES["element_wise_pow"].case_of(key).inputs()))
    assert {(base, exponent) for base in (-1, 0, 1) for exponent in (-3, -2, -1, 0)} <= drawn


def test_halved_sums_of_overflowing_ones_are_finite() -> None:
    (a, b) = case_by_name("element_wise_mean-float32-5x13-mixed-owned-s0").inputs()
    assert a is not None and b is not None
    with np.errstate(over="ignore"):
        assert np.isinf(a + b).any() and np.isfinite(a / 2 + b / 2)[np.isinf(a + b)].any()


@pytest.mark.parametrize("stem", ["rnn", "lstm", "gru"])
def test_sequences_are_empty_one_step_long_and_whole(stem: str) -> None:
    key = Key((DataType.FLOAT32,), (5, 60, 2), TensorLayout.PACKED, "whole")
    case = OPERATOR_CASES[stem].case_of(key)
    numbers = {slot.field: index for index, slot in enumerate(case.desc.inputs)}
    lengths = np.asarray(case.inputs()[numbers["sequence_lengths_tensor"]])
    assert all((lengths == length).mean() > 0.1 for length in (0, 1, 5))
