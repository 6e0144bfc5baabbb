"""Kernels that are compiled without wgpu's checks: which, and that no index of an array can be out of bounds."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import pytest

from dmlgpu import Device, TensorDesc, descs
from dmlgpu.catalog.enums import DataType, MultiheadAttentionMaskType, ReduceFunction
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.common.errors import InvalidArgument, NotSupported
from dmlgpu.compiler.program import Checks, RenderedKernel
from dmlgpu.compiler.stages import compile_operator
from dmlgpu.compiler.target import Float16Conversions, Float16Encoding, Policies, Profile, Target
from dmlgpu.conformance.cases.registry import case_by_name, case_names
from tests.kernel_sources import with_values

F32 = DataType.FLOAT32
FEATURES = frozenset({"immediates", "shader-int64", "shader-f64", "shader-f16", "subgroup"})
GPU = Target(
    "Card",
    Profile.DISCRETE,
    FEATURES,
    float16=Float16Conversions(True, Float16Encoding.F16),
    policies=Policies(checked=False),
)
TARGETS = (GPU, GPU.exact, Target("Card", Profile.INTEGRATED, policies=Policies(checked=False)))


def test_checked_is_a_boolean() -> None:
    with pytest.raises(InvalidArgument, match="Device: checked must be a bool"):
        Device("numpy", checked=1)  # type: ignore[arg-type]


def kernels_of(desc: OperatorDesc, target: Target = GPU) -> tuple[RenderedKernel, ...]:
    return compile_operator(desc, target).kernels


def gemm(size: int) -> descs.Gemm:
    square = TensorDesc(F32, (1, 1, size, size))
    return descs.Gemm(a_tensor=square, b_tensor=square, output_tensor=square, alpha=1.0, beta=1.0)


def total(*sizes: int) -> descs.Reduce:
    result = TensorDesc(F32, (*sizes[:-1], 1))
    return descs.Reduce(
        function=ReduceFunction.SUM, input_tensor=TensorDesc(F32, sizes), output_tensor=result, axes=(len(sizes) - 1,)
    )


COPY = descs.ElementWiseIdentity(input_tensor=TensorDesc(F32, (64,)), output_tensor=TensorDesc(F32, (64,)))


@pytest.mark.parametrize(
    ("desc", "schedule", "expected"),
    [
        (gemm(1024), "shared", [Checks.NONE]),
        (gemm(1024), "register", [Checks.LOOPS]),
        (total(8, 4096), "", [Checks.NONE]),
        (total(65536, 8), "", [Checks.LOOPS]),
        (COPY, "", [Checks.ALL]),  # it has neither loops nor workgroup memory
    ],
)
def test_loops_over_rows_keep_their_bounds(desc: OperatorDesc, schedule: str, expected: list[Checks]) -> None:
    target = GPU.with_overrides(schedule=schedule)
    assert [kernel.checks for kernel in kernels_of(desc, target)] == expected
    checked = kernels_of(desc, target.with_policies(checked=True))
    assert {kernel.checks for kernel in checked} == {Checks.ALL}
    assert [kernel.wgsl for kernel in kernels_of(desc, target)] == [kernel.wgsl for kernel in checked]


def test_programs_say_which_checks_their_kernels_have() -> None:
    (kernel,) = kernels_of(gemm(1024))
    assert "wgpu's checks: none" in str(kernel)
    (checked,) = kernels_of(gemm(1024), GPU.with_policies(checked=True))
    assert "checks" not in str(checked)


# ---- indices

_OF_INVOCATION = "the array has an element per invocation of the workgroup"
_OF_HALF = "below half the number of invocations, half of it is added"
_OF_OUTPUT = "counts the outputs of an invocation, which the array holds"
_OF_TASK = "a task of fetching is clamped or guarded to the size of the slab"
_OF_ROWS = "counts the rows of an invocation, which the array holds"
_OF_PAIR = "0 or 1, of two float16 numbers"
_OF_LANE = "both below 16, as many as the slab has"
_OF_SUBGROUP = "the array has an element per subgroup, if all have the minimum size"
_COMBINED = {
    "parts[me]": _OF_INVOCATION,
    "parts[me + half]": _OF_HALF,
    "parts[subgroup]": _OF_SUBGROUP,
    "parts[first]": "below the number of subgroups, of which it takes the low bits",
    "parts[first + next]": "next counts the share of a lane, and lanes times share is the number of subgroups",
}

_SLABS = {
    "a_slab[a_own#]": _OF_TASK,
    "a_slab[a_own# % #u]": _OF_TASK,
    "a_slab[a_own# / #u]": _OF_TASK,
    "a_slab[a_row#]": _OF_TASK,
    "a_slab[my_row]": "the row of invocations, of which the slab has as many",
    "b_slab[b_own# % #u]": _OF_TASK,
    "b_slab[b_own# / #u]": _OF_TASK,
    "b_slab[(b_own# / #u) % #u]": _OF_TASK,
    "b_slab[b_row#]": _OF_TASK,
    "b_slab[my_column]": "the column of invocations, of which the slab has as many",
    "results[place]": _OF_OUTPUT,
}

IN_BOUNDS: dict[str, dict[str, str]] = {
    "lib": {
        "TWO_OVER_PI[word]": "an exponent from 120 to 255: word is at most 4, and the array has 8",
        "TWO_OVER_PI[word + #u]": "word is at most 4, and 3 is added",
    },
    "random/next_state": {")[word]": "a vector of 4; other words return before"},
    "random/random_generator": {
        ")[place % #u]": "a vector of 4, modulo 4",
        ")[place.x % #u]": "a vector of 4, modulo 4",
        ")[place.y % #u]": "a vector of 4, modulo 4",
    },
    "schedules/attention": {
        "results[place]": _OF_OUTPUT,
        "scores[place + #u]": "counts the keys of an invocation in a block",
        "tops[first_top + lane * #u + #u]": _OF_INVOCATION,
        "tops[first_top + other + #u]": "other counts the invocations of a line",
        "weights[first_weight + index * #u + #u]": "index counts the keys of a block",
    },
    "schedules/attention_slabs": {
        **{f"{slab}[{half}]": _OF_PAIR for slab in ("a_slab", "b_slab") for half in ("half", "#u - half")},
        "a_slab[number / #u]": _OF_PAIR,
        "b_slab[number % #u]": _OF_PAIR,
        "b_slab[(number + #u) % #u]": _OF_PAIR,
        "a_slab[line]": "the line of invocations, of which the slab has as many",
        "a_slab[own / #u]": "as many rows as invocations have quads, four to a line",
        "a_slab[own % #u * #u + quad]": "four rows of four quads, of 16",
        "a_slab[#u + number]": "four rows of four quads, of 16",
        "a_slab[number % #u * #u + index]": "index counts the keys of a slab of values, number the slabs of 16 keys",
        "a_slab[lane]": _OF_LANE,
        "a_slab[lane ^ other]": _OF_LANE,
        "b_slab[lane]": _OF_LANE,
        "b_slab[lane ^ (number * #u)]": _OF_LANE,
        "b_slab[(key_own# % #u) ^ (quad * #u)]": _OF_LANE,
        "b_slab[number * #u + #u]": "four quads of four keys, of 16",
        "b_slab[quad * #u + key_own# / #u]": "four quads of four keys, of 16; a block has 64",
        "b_slab[index * #u + #u]": "index counts the keys of a slab of values, of 16 units",
        "b_slab[value_row#]": "16 rows of units, which the lines of invocations take in turn",
        "results[place]": _OF_OUTPUT,
    },
    "schedules/attention_streamed": {
        "queries[query_row]": _OF_TASK,
        "queries[query_quad]": _OF_TASK,
        "queries[quad#]": "counts to the units of a head, which turns of all lanes divide",
        "partials[own * #u + lane % #u]": "half of the lanes of all keys that are multiplied at a time",
        "partials[slice % #u * #u + column]": "half of the invocations of a workgroup",
        "weights[offset + own * #u + #u]": "four keys of an invocation, of the block, which turns divide",
        "weights[me]": _OF_INVOCATION,
        "weights[other]": "counts to the keys of the block",
        "weights[index#]": "counts to the keys of the block, or is clamped to them",
        "tops[me]": "one of the first invocations, of which the array has as many",
        "tops[other]": "counts to the groups of keys, or to the slices, which are no more",
        "tops[slice]": "the slice of an invocation, of which the array has as many",
        "results[place]": _OF_OUTPUT,
    },
    "schedules/gemm_panels": {"results[place]": _OF_OUTPUT},
    "schedules/gemm_register": {"results[place]": _OF_OUTPUT},
    "schedules/gemm_shared": _SLABS,
    "schedules/gemm_streamed": {
        "results[place]": _OF_OUTPUT,
        "slab[own_row]": _OF_TASK,
        "slab[own_quad]": _OF_TASK,
        "slab[own_row#]": _OF_TASK,
        "slab[own_quad#]": _OF_TASK,
        "slab[quad#]": "counts to the fours of steps of the slab, or is clamped to them",
        "slab[place]": "half of a workgroup stores its sums; a slab has room for them (_stream_tiles)",
    },
    "schedules/gemm_blocks": _SLABS,
    "schedules/gemm_packed": _SLABS
    | {
        "a_sums[own]": "counts to the rows of the tile",
        "a_sums[a_own# * #u + #u]": _OF_TASK,
        "a_sums[my_row * #u + #u]": "a row of the tile",
        "b_sums[own]": "counts to the columns of the tile",
        "b_sums[b_own# * #u + #u]": _OF_TASK,
        "b_sums[(my_column + #u) * #u + #u]": "a column of the tile",
    },
    "schedules/recurrence_split": {
        "partials[part]": "the part of an invocation, of which the array has as many",
        "partials[column]": "the column of an invocation, of which the array has as many",
        "partials[row]": "counts the sums of a part",
        "partials[unit]": "the unit of an invocation, of which the array has as many",
        "partials[#u + row]": "counts the rows of a sum",
        "whole#[element % #u]": "a component of a vector, below its size",
    },
    "schedules/recurrence": {"sums[row]": _OF_ROWS},
    "schedules/reduce_tree": _COMBINED,
    "schedules/rows_tree": {f"stage_{index}": reason for index, reason in _COMBINED.items()},
    "schedules/scan_tree": {
        "parts[me]": _OF_INVOCATION,
        "parts[max(me, #u) - #u]": "1 is subtracted from at least 1",
        "parts[me - reach]": "subtracted where me is not below reach",
        **{index: reason for index, reason in _COMBINED.items() if index != "parts[me + half]"},
        "parts[next]": "counts to the invocation's own subgroup",
    },
    "schedules/scan_tree_total": _COMBINED,
    "schedules/sort_subgroups": {
        "tile[me + #u]": "a record per invocation, in turn",
        "tile[(me ^ #u) + #u]": "the invocation that differs in one bit, below the width of the workgroup",
    },
    "schedules/sort_workgroup": {
        "tile[low]": "pairs of a network over the tile, whose width is a power of two",
        "tile[high]": "pairs of a network over the tile, whose width is a power of two",
        "tile[place]": "counts to the width of the tile",
    },
}
"""Why an index is in bounds that is not a constant, by shader file and by array and index, with # for numbers. Kernels
are compiled without clamps: an index that is out of bounds stops NVIDIA's GPUs."""

_FILE = re.compile(r"^// ---- shaders/(\S+?)(?:\.wgsl)?$", re.MULTILINE)
_INDEXED = re.compile(r"([A-Za-z_]\w*|\))(?=\[)")


def indices(wgsl: str) -> Iterator[tuple[str, str]]:
    """Yield the file, and array and index, of every access of an array or a vector that is neither a buffer nor
    constant."""
    files = [(match.start(), match[1]) for match in _FILE.finditer(wgsl)]
    for match in _INDEXED.finditer(wgsl):
        end = match.end()
        while wgsl[end] == "[":  # of each dimension
            start, depth = end + 1, 0
            for end in range(start - 1, len(wgsl)):
                depth += {"[": 1, "]": -1}.get(wgsl[end], 0)
                if not depth:
                    break
            index = wgsl[start:end]
            end += 1
            if not re.fullmatch(r"buffer\d+", match[1]) and not re.fullmatch(r"\d+u?", index):
                file = [name for start, name in files if start <= match.start()][-1]
                array = re.sub(r"^\w+_parts$", "stage_parts", match[1])
                yield file, re.sub(r"\d+", "#", f"{array}[{index}]")


def attention_of_few_rows() -> descs.MultiheadAttention1:
    """Two rows that share a head, and their keys in a cache."""
    cache = TensorDesc(F32, (1, 1, 512, 64))
    return descs.MultiheadAttention1(
        query_tensor=TensorDesc(F32, (1, 1, 128)),
        key_tensor=TensorDesc(F32, (1, 1, 64)),
        value_tensor=TensorDesc(F32, (1, 1, 64)),
        past_sequence_lengths_tensor=TensorDesc(DataType.INT32, (1,)),
        output_tensor=TensorDesc(F32, (1, 1, 128)),
        output_present_key_tensor=cache,
        output_present_value_tensor=cache,
        query_head_count=2,
        key_value_head_count=1,
        scale=0.125,
        mask_filter_value=-10000.0,
        mask_type=MultiheadAttentionMaskType.NONE,
    )


@pytest.mark.slow
def test_every_index_of_an_array_is_known_to_be_in_bounds() -> None:
    texts: dict[str, str] = {}
    cases = {name: case_by_name(name).desc for name in case_names("quick")}
    for name, desc in {**cases, "attention of few rows": attention_of_few_rows()}.items():
        for target in TARGETS:
            with contextlib.suppress(NotSupported):
                program = compile_operator(desc, target)
                for kernel in (*program.kernels, *program.initialization):
                    texts.setdefault(with_values(kernel), f"{name}: {kernel.label}")
    used = {index: label for wgsl, label in texts.items() for index in indices(wgsl)}
    unknown = {index: label for index, label in used.items() if index[1] not in IN_BOUNDS.get(index[0], {})}
    assert unknown == {}, "add each to IN_BOUNDS, with the reason why it is in bounds"
