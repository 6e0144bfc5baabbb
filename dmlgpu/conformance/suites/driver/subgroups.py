"""Cases of subgroup operations, whose expected results follow from the lanes that the kernel reports."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from dmlgpu.conformance.cases.case import Array
from dmlgpu.conformance.suites.driver.kernel_case import Judged, KernelCase

_MASK: Final = 0xFFFFFFFF
_COUNT: Final = 512

Values = Sequence[int]


@dataclass(frozen=True)
class SubgroupFunction:
    """An operation of a subgroup.

    Attributes:
        wgsl: Expression of the word ``x``, the lane and ``size``, the number of lanes.
        function: Returns the results by lane from the words of all lanes; None for a result that WGSL does not define.
    """

    wgsl: str
    function: Callable[[Values], Sequence[int | None]]


def _all_equal(function: Callable[[Values], int]) -> Callable[[Values], Sequence[int]]:
    return lambda words: [function(words)] * len(words)


def _scan(function: Callable[[int, int], int], start: int, *, inclusive: bool) -> Callable[[Values], Sequence[int]]:
    def results(words: Values) -> Sequence[int]:
        totals = [start]
        for word in words:
            totals.append(function(totals[-1], word) & _MASK)
        return totals[1:] if inclusive else totals[:-1]

    return results


def _moved(source: Callable[[int], int]) -> Callable[[Values], Sequence[int | None]]:
    """Return the function of an operation that reads another lane, with None for a lane that does not exist."""
    return lambda words: [words[source(lane)] if 0 <= source(lane) < len(words) else None for lane in range(len(words))]


def _product(words: Values) -> int:
    return functools.reduce(lambda a, b: a * b & _MASK, words)


def _ballot(words: Values) -> int:
    """Return the first word of the ballot."""
    return sum(1 << lane for lane, word in enumerate(words[:32]) if word & 4)


FUNCTIONS: Final[Mapping[str, SubgroupFunction]] = {
    "add": SubgroupFunction("subgroupAdd(x)", _all_equal(sum)),
    "multiply": SubgroupFunction("subgroupMul(x | 1u)", lambda words: _all_equal(_product)([w | 1 for w in words])),
    "min": SubgroupFunction("subgroupMin(x)", _all_equal(min)),
    "max": SubgroupFunction("subgroupMax(x)", _all_equal(max)),
    "and": SubgroupFunction(
        "subgroupAnd(x | 5u)",
        lambda words: _all_equal(lambda all_: functools.reduce(lambda a, b: a & b, all_))([w | 5 for w in words]),
    ),
    "or": SubgroupFunction("subgroupOr(x)", _all_equal(lambda words: functools.reduce(lambda a, b: a | b, words))),
    "xor": SubgroupFunction("subgroupXor(x)", _all_equal(lambda words: functools.reduce(lambda a, b: a ^ b, words))),
    "float_add": SubgroupFunction(
        "u32(subgroupAdd(f32(x & 1023u)))", _all_equal(lambda words: sum(w & 1023 for w in words))
    ),
    "signed_max": SubgroupFunction(
        "bitcast<u32>(subgroupMax(bitcast<i32>(x)))", _all_equal(lambda words: max(w - (w >> 31 << 32) for w in words))
    ),
    "exclusive_add": SubgroupFunction("subgroupExclusiveAdd(x)", _scan(lambda a, b: a + b, 0, inclusive=False)),
    "inclusive_add": SubgroupFunction("subgroupInclusiveAdd(x)", _scan(lambda a, b: a + b, 0, inclusive=True)),
    "exclusive_multiply": SubgroupFunction(
        "subgroupExclusiveMul(x | 1u)", _scan(lambda a, b: a * (b | 1), 1, inclusive=False)
    ),
    "inclusive_multiply": SubgroupFunction(
        "subgroupInclusiveMul(x | 1u)", _scan(lambda a, b: a * (b | 1), 1, inclusive=True)
    ),
    "all": SubgroupFunction(
        "u32(subgroupAll(x != 7u)) + 2u * u32(subgroupAll((x & 4u) != 0u))",
        _all_equal(lambda words: all(w != 7 for w in words) + 2 * all(w & 4 for w in words)),
    ),
    "any": SubgroupFunction(
        "u32(subgroupAny((x & 4u) != 0u)) + 2u * u32(subgroupAny(x == 7u))",
        _all_equal(lambda words: any(w & 4 for w in words) + 2 * any(w == 7 for w in words)),
    ),
    "ballot": SubgroupFunction("subgroupBallot((x & 4u) != 0u).x", _all_equal(_ballot)),
    "broadcast": SubgroupFunction("subgroupBroadcast(x, 2u)", _moved(lambda lane: 2)),
    "broadcast_first": SubgroupFunction("subgroupBroadcastFirst(x)", _moved(lambda lane: 0)),
    "elect": SubgroupFunction("u32(subgroupElect())", lambda words: [1] + [0] * (len(words) - 1)),
    "shuffle": SubgroupFunction("subgroupShuffle(x, lane / 2u)", _moved(lambda lane: lane // 2)),
    "shuffle_xor": SubgroupFunction("subgroupShuffleXor(x, 1u)", _moved(lambda lane: lane ^ 1)),
    "shuffle_xor_2": SubgroupFunction("subgroupShuffleXor(x, 2u)", _moved(lambda lane: lane ^ 2)),
    "shuffle_up": SubgroupFunction("subgroupShuffleUp(x, 1u)", _moved(lambda lane: lane - 1)),
    "shuffle_down": SubgroupFunction("subgroupShuffleDown(x, 3u)", _moved(lambda lane: lane + 3)),
    "quad_broadcast": SubgroupFunction("quadBroadcast(x, 1u)", _moved(lambda lane: lane // 4 * 4 + 1)),
    "quad_swap_x": SubgroupFunction("quadSwapX(x)", _moved(lambda lane: lane ^ 1)),
    "quad_swap_y": SubgroupFunction("quadSwapY(x)", _moved(lambda lane: lane ^ 2)),
    "quad_swap_diagonal": SubgroupFunction("quadSwapDiagonal(x)", _moved(lambda lane: lane ^ 3)),
}
"""Operations by name."""

_SOURCE = """@group(0) @binding(0) var<storage, read> words: array<u32>;
@group(0) @binding(1) var<storage, read_write> results: array<u32>;
@group(0) @binding(2) var<storage, read_write> lanes: array<vec4<u32>>;
@compute @workgroup_size({size})
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(subgroup_invocation_id) lane: u32,
        @builtin(subgroup_size) size: u32) {{
    let x = words[id.x];
    lanes[id.x] = vec4<u32>(subgroupBroadcastFirst(id.x), lane, size, 0u);
    results[id.x] = {wgsl};
}}
"""


PARTIAL: Final = ("add", "min", "and", "all", "any", "inclusive_add", "float_add")
"""Operations whose results show whether lanes without an invocation take part."""

_PARTIAL_SIZE: Final = 37
"""Size of workgroups that leave lanes of a subgroup without an invocation, for all sizes of subgroups."""


def subgroup_case(name: str, size: int = 64) -> KernelCase:
    """Return the case of an operation.

    Args:
        name: The operation.
        size: Number of invocations of a workgroup.
    """
    function, count = FUNCTIONS[name], _COUNT // 64 * size
    words = (np.arange(count, dtype=np.uint64) * 2654435761 >> 7).astype(np.uint32)

    def judge(results: Mapping[str, Array]) -> Judged:
        expected, lanes = results["results"].copy(), results["lanes"]
        numbers = np.zeros(count, np.uint32)
        for first in np.unique(lanes[:, 0]):
            (members,) = np.nonzero(lanes[:, 0] == first)
            members = members[np.argsort(lanes[members, 1])]
            numbers[members] = np.arange(len(members))
            for member, result in zip(members, function.function(words[members].tolist()), strict=True):
                if result is not None:
                    expected[member] = result & _MASK
        return {
            "lanes": (lanes[:, 1], numbers),
            "results": (results["results"], expected),
            "lanes below the size": ((lanes[:, 1] < lanes[:, 2]).astype(np.uint32), np.ones(count, np.uint32)),
        }

    outputs = {"results": ((count,), "uint32"), "lanes": ((count, 4), "uint32")}
    source = _SOURCE.format(wgsl=function.wgsl, size=size)
    return KernelCase(source, {"words": words}, {}, (count // size,), outputs, ("subgroup",), judge)


def partial_case(name: str) -> KernelCase:
    """Return the case of an operation in subgroups of which some have lanes without an invocation."""
    return subgroup_case(name, _PARTIAL_SIZE)
