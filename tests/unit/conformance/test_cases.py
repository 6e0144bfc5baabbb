"""The conformance cases: names, reproducibility, coverage, and that no operator lacks its part."""

import ast
import itertools
import math
import os
import re
import subprocess
import sys
import zlib
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

import dmlgpu
from dmlgpu import descs
from dmlgpu.catalog import loader
from dmlgpu.catalog.enums import DataType, FeatureLevel
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.catalog.validation import validate
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.conformance.cases import registry
from dmlgpu.conformance.cases.case import Case
from dmlgpu.conformance.cases.keys import QUICK, QUICK_FAULTS, quick_names
from dmlgpu.conformance.cases.layouts import TensorLayout
from dmlgpu.conformance.cases.operator_cases import with_owned_input
from dmlgpu.conformance.cases.registry import OPERATOR_CASES, case_by_name, case_names
from dmlgpu.conformance.cases.tolerance import EXACT
from dmlgpu.conformance.running.outcome import compare
from tests.strategies import cases_of

ROOT = Path(__file__).parents[3]
each_operator = pytest.mark.parametrize("stem", OPERATOR_CASES)


def names(stem, profile="standard"):
    return OPERATOR_CASES[stem].names(profile)


def parts(name):
    """Types, sizes, layout, variant of a name."""
    stem, *rest = name.split("-")
    count = len(OPERATOR_CASES[stem].types[0])
    return rest[:count], [int(size) for size in rest[count].split("x")], rest[count + 1], "-".join(rest[count + 2 : -1])


def keyed(stem):
    return [parts(name) for name in names(stem) if "-example" not in name]


def test_every_implemented_operator_is_in_the_catalog():
    assert registry.implemented() <= set(loader.catalog())


@each_operator
def test_names_are_unique_and_fit_pytest(stem):
    assert len(set(names(stem))) == len(names(stem))
    assert all(re.fullmatch(rf"{stem}-[a-z0-9_.-]+", name) for name in names(stem))


def test_the_standard_profile_has_dozens_of_cases_per_operator():
    assert 15 * len(OPERATOR_CASES) <= len(case_names("standard")) <= 45 * len(OPERATOR_CASES)


@each_operator
def test_the_standard_profile_contains_the_quick_one(stem):
    assert set(names(stem, "quick")) <= set(names(stem))


@pytest.mark.parametrize("stem", list(OPERATOR_CASES)[::5])
def test_the_full_profile_contains_the_standard_one(stem):
    assert set(names(stem)) < set(names(stem, "full"))


def test_the_full_profile_has_more_invocations_than_one_row_of_workgroups():
    full = names("element_wise_add", "full")
    assert any(math.prod(parts(name)[1]) > 65535 * 64 for name in full if "-example" not in name)


@each_operator
def test_a_name_gives_the_same_case_again(stem):
    """Of every seventh standard case."""
    for name in names(stem)[::7]:
        case, again = case_by_name(name), case_by_name(name)
        assert case.name == name
        assert case == again
        for array, other in zip(case.inputs(), again.inputs(), strict=True):
            assert (array is None) == (other is None)
            assert array is None or array.tobytes() == other.tobytes()


def digest():
    """What all standard names are, and what every ninth stands for."""
    names = case_names("standard")
    return zlib.crc32(repr((names, [case_by_name(name).desc for name in names[::9]])).encode())


@pytest.mark.slow
def test_another_process_has_the_same_cases():
    code = "from tests.unit.conformance.test_cases import digest; print(digest())"
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    environment = os.environ | {"PYTHONHASHSEED": seed}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert int(done.stdout) == digest()


@each_operator
def test_every_case_is_valid_and_its_reference_has_the_right_sizes(stem, pytestconfig):
    """All standard descriptions; the reference's results of every fourth, with --profile of all."""
    share = 1 if pytestconfig.getoption("--profile") else 4
    for index, name in enumerate(names(stem)):
        case = case_by_name(name)
        validate(case.desc, FeatureLevel.LEVEL_6_4)
        if index % share == 0:
            check_results(case)


def check_results(case):
    """The sizes and types of a case's arrays are its description's, and its tolerance accepts the right results."""
    arrays = case.inputs()
    for slot, array in zip(case.desc.inputs, arrays, strict=True):
        assert (array is None) == (slot.tensor is None), case.name
        if array is not None:
            assert (array.shape, array.dtype) == (slot.tensor.sizes, slot.tensor.data_type.numpy), case.name
    magnitudes = case.magnitudes(arrays)
    assert all(len(outcome) == len(case.desc.outputs) for outcome in case.outcomes(arrays))
    for slot, array, magnitude in zip(case.desc.outputs, case.expected(arrays), magnitudes, strict=True):
        if slot.tensor is not None:
            assert (array.shape, array.dtype) == (slot.tensor.sizes, slot.tensor.data_type.numpy), case.name
            assert compare(array, array, case.tolerance, magnitude).ok, case.name


@each_operator
def test_quick_cases_cover_types_layouts_variants_and_ranks(stem):
    keys = keyed(stem)
    object_ = OPERATOR_CASES[stem]
    for position, expected in enumerate(zip(*object_.types, strict=True)):
        assert {types[position] for types, *_ in keys} == {t.name.lower() for t in expected}
    assert {layout for _, _, layout, _ in keys} == set(TensorLayout)
    wanted_variants = set(itertools.chain(*(object_.allowed_variants(t, TensorLayout.PACKED) for t in object_.types)))
    chosen = {key.variant for key in object_.chosen_keys()}
    assert {variant for *_, variant in keys} == wanted_variants | chosen
    assert {len(sizes) for _, sizes, _, _ in keys} == set(object_.ranks)


def owned_labels(name):
    return [slot.label for slot in case_by_name(name).desc.inputs if slot.tensor and slot.tensor.owned_by_dml]


def test_one_input_is_owned_whether_single_or_of_an_array():
    labels = {label for seed in range(20) for label in owned_labels(f"quantize-float32-int8-4x6-packed-owned-s{seed}")}
    assert labels == {"input_tensor", "quantization_tensors[0]", "quantization_tensors[1]"}
    assert len(owned_labels("quantize-float32-int8-4x6-packed-owned-s0")) == 1


def test_an_absent_input_is_never_owned():
    tensor = TensorDesc(DataType.FLOAT32, (2,))
    desc = descs.ElementWiseQuantizeLinear(
        input_tensor=tensor,
        scale_tensor=tensor,
        zero_point_tensor=None,
        output_tensor=TensorDesc(DataType.INT8, (2,)),
    )
    cases = [with_owned_input(Case("case", desc, tuple), np.random.default_rng(seed)) for seed in range(20)]
    owned = [[slot.field for slot in case.desc.inputs if slot.tensor and slot.tensor.owned_by_dml] for case in cases]
    assert {tuple(fields) for fields in owned} == {("input_tensor",), ("scale_tensor",)}


def test_quick_casts_cover_every_pair_of_types():
    assert {tuple(types) for types, *_ in keyed("cast")} == {
        tuple(t.name.lower() for t in pair) for pair in OPERATOR_CASES["cast"].types
    }


@each_operator
def test_hypothesis_draws_valid_cases(stem, pytestconfig):
    """Some of each operator, with --profile a hundred: the same in every run."""

    @settings(max_examples=100 if pytestconfig.getoption("--profile") else 8)
    @given(case=cases_of(OPERATOR_CASES[stem]))
    def check(case):
        validate(case.desc, FeatureLevel.LEVEL_6_4)
        assert case_by_name(case.name) == case

    check()


def scatter(name):
    case = case_by_name(name)
    inputs = case.inputs()
    return case, inputs


@pytest.mark.slow
def test_scatter_targets_differ_or_meet_at_most_in_pairs():
    """Of every fifth case, but for large ones."""
    for name in names("scatter_elements", "full")[::5]:
        case, (source, indices, _) = scatter(name)
        if "example" in name or source.size > 1 << 16:
            continue
        axis, extent = case.desc.axis, source.shape[case.desc.axis]
        lines = np.moveaxis(indices, axis, -1).reshape(-1, indices.shape[axis])
        most = 2 if "duplicates" in name else 1
        for line in lines.tolist():
            targets = Counter(i + extent if i < 0 else i for i in line)
            assert all(count <= most for target, count in targets.items() if 0 <= target < extent), name


def test_a_scatter_with_duplicates_has_rivals():
    name = next(name for name in names("scatter_elements") if "duplicates" in name)
    case, inputs = scatter(name)
    assert len(case.outcomes(inputs)) == 2
    assert len(case.outcomes(inputs, deterministic=True)) == 1


def test_special_values_of_float32_have_a_flushed_outcome():
    full_names = names("element_wise_multiply", "full")
    name = next(name for name in full_names if name.startswith("element_wise_multiply-float32") and "special" in name)
    case = case_by_name(name)
    assert len(case.outcomes(case.inputs())) == 2


def test_moved_data_are_compared_exactly():
    assert case_by_name("gather_nd1-float32-int32-2x3-packed-s0").tolerance is EXACT


def test_documented_examples_carry_the_pages_result():
    case = case_by_name("gather_nd1-example2")
    assert case.expected(case.inputs())[0].tolist() == [[[[0, 3], [7, 4], [9, 10]]]]


def test_levels_are_the_lowest_that_allow_the_case():
    assert case_by_name("gather_nd1-example1").level is FeatureLevel.LEVEL_3_0
    assert case_by_name("gather_nd1-float64-int32-2x3-packed-s0").level is FeatureLevel.LEVEL_4_1
    assert case_by_name("slice-float32-1x2x3x4-packed-s0").level is FeatureLevel.LEVEL_1_0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("slice1-example9", "'slice1-example9': DirectML's page has 2 examples"),
        ("slice1-float32-2x3-packed", "'slice1-float32-2x3-packed' names no case of SLICE1"),
        ("slice1-float31-2x3-packed-s0", "'slice1-float31-2x3-packed-s0' names no case of SLICE1"),
        ("slice1-float32-2x3-packed-unheard-s0", "'slice1-float32-2x3-packed-unheard-s0' names no case of SLICE1"),
        ("slice1-float32-2x03-packed-s0", "'slice1-float32-2x03-packed-s0' names no case of SLICE1"),
    ],
)
def test_other_names_are_rejected(name, message):
    with pytest.raises(InvalidArgument) as error:
        case_by_name(name)
    assert str(error.value) == message


def test_an_unknown_operator_is_rejected_with_the_known_ones():
    with pytest.raises(InvalidArgument) as error:
        case_by_name("frobnicate-float32")
    assert str(error.value) == f"'frobnicate-float32' names no case; cases exist for {', '.join(OPERATOR_CASES)}"


def test_an_unknown_profile_is_rejected():
    with pytest.raises(InvalidArgument) as error:
        case_names("slow")
    assert str(error.value) == "profile must be one of quick, standard, full, got 'slow'"


FORBIDDEN = ("kernels", "operators", "plan", "wgsl", "compiler", "gpu")
"""What computes, and what the cases and the reference must therefore not build on."""


@pytest.mark.parametrize("folder", ["conformance/cases", "reference"])
def test_expected_results_are_independent_of_the_product(folder):
    package = Path(dmlgpu.__file__).parent
    for path in sorted(package.joinpath(folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            if isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{name}" for name in names]
            wrong = [
                name for name in names if name.split(".")[:2] in [["dmlgpu", forbidden] for forbidden in FORBIDDEN]
            ]
            assert not wrong, f"{path.relative_to(package)} must not import {wrong}"


def test_every_operator_has_quick_cases_and_every_quick_case_exists():
    again = "python scripts/choose_quick.py writes quick.txt again; people edit quick_faults.txt"
    listed = [name for path in (QUICK, QUICK_FAULTS) for name in path.read_text(encoding="utf-8").split()]
    without = sorted(OPERATOR_CASES.keys() - quick_names().keys())
    assert not without, f"quick.txt lists no case of {without}: {again}"
    unknown = sorted(quick_names().keys() - OPERATOR_CASES.keys())
    assert not unknown, f"quick.txt or quick_faults.txt lists cases of {unknown}, which have no case object: {again}"
    standard = frozenset(case_names("standard"))
    gone = [name for name in listed if name not in standard]
    assert not gone, f"quick.txt or quick_faults.txt lists what the standard profile no longer has: {gone}: {again}"
    assert len(set(listed)) == len(listed), "a case is listed twice in quick.txt and quick_faults.txt"


@pytest.mark.slow
def test_the_numbers_of_cases_in_the_document_are_those_of_the_code():
    script = ROOT / "scripts" / "generate"
    check = [sys.executable, script, "--check", "counts"]
    result = subprocess.run(check, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
