"""Cases of control flow: loops, branches and calls, by kernels that apply a function to words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from dmlgpu.conformance.cases.case import Array
from dmlgpu.conformance.suites.driver.kernel_case import KernelCase

_MASK: Final = 0xFFFFFFFF
_SMALL: Final = tuple(range(128))


@dataclass(frozen=True)
class FlowFunction:
    """A function of words.

    Attributes:
        wgsl: Declaration of ``compute``.
        function: The same in Python.
        words: Its arguments, one per invocation.
    """

    wgsl: str
    function: Callable[[int], int]
    words: tuple[int, ...] = _SMALL


def _collatz(x: int) -> int:
    steps, number = 0, x + 1
    while number != 1 and steps < 500:
        number = number // 2 if number % 2 == 0 else 3 * number + 1
        steps += 1
    return steps


def _gcd(x: int) -> int:
    return int(np.gcd(x * 12, 5040 + x))


def _switched(x: int) -> int:
    return {0: 11, 1: 22, 2: 33, 5: 33, 6: 33, 100: 44}.get(x, x + 1000)


def _switched_in_loop(x: int) -> int:
    total = 0
    for i in range(x):
        if i % 4 == 0:
            continue
        if i % 4 == 1:
            total += i
        elif i == 50:
            total += 7
        total += 1
    return total


def _found(x: int) -> int:
    for i in range(100):
        for j in range(100):
            if i * j == x * 7:
                return i * 1000 + j
    return 999999


def _sieve(x: int) -> int:
    return sum(all(number % divisor for divisor in range(2, number)) for number in range(2, x % 64 + 2))


def _short_circuit(x: int) -> int:
    calls = 1 + (2 if x % 3 == 0 else 0) + 4 + (0 if x % 5 == 0 else 8)
    both, either = x % 3 == 0 and x % 2 == 0, x % 5 == 0 or x % 7 == 0
    return calls * 4 + both * 2 + either


def _alternating(count: int) -> int:
    """Return the number that `count` steps of the generator make of 1."""
    value = 1
    for _ in range(count):
        value = (value * 1664525 + 1013904223) & _MASK
    return value


def _step(count: int) -> int:
    """Return the number that `count` steps of the generator make of 0, by repeated squaring."""
    factor, addend, power_factor, power_addend = 1, 0, 1664525, 1013904223
    while count:
        if count & 1:
            factor, addend = factor * power_factor & _MASK, (addend * power_factor + power_addend) & _MASK
        power_addend = (power_addend * power_factor + power_addend) & _MASK
        power_factor = power_factor * power_factor & _MASK
        count >>= 1
    return addend


def _swapped(x: int) -> int:
    a, b = x, 3 * x
    for _ in range(5):
        a, b = b, a + 1
    return a * 1000 + b


def _signed(word: int) -> int:
    """Return the signed integer of 32 bits of a number."""
    return (word + (1 << 31) & _MASK) - (1 << 31)


def _overflow(x: int) -> int:
    a = _signed(x)
    facts = (
        _signed(a + 1) > a,
        _signed(a - 1) < a,
        _signed(2 * a) >= a,
        _signed(-a) == a,
        _signed(2 * a) // 2 == a,
        x + 5 & _MASK > x,
    )
    return sum(fact << place for place, fact in enumerate(facts))


def _initialized(x: int) -> int:
    words = [5, 6, 7, 8]
    words[x % 4] += x
    return 51 + 321 + x + sum(word * 10**place for place, word in enumerate(words))


def _copied(x: int) -> int:
    a = [x, x + 1, x + 2]
    b, c = [*a], [*a]
    b[x % 3], c[x % 3] = 100, 7
    a[1] += 5
    a, b = b, a
    parts = (*a, *b, *c, x, x + 1)
    return sum(part * (2 * place + 1) for place, part in enumerate(parts))


def _scattered(x: int) -> int:
    return sum((i ^ x) * ((5 * i + x) % 512) for i in range(512))


def _rounds(wgsl: str) -> str:
    return f"fn compute(x: u32) -> u32 {{ {wgsl} }}"


_TABLE: Final = tuple(place * 2654435761 & _MASK for place in range(48))
"""Hashes, which do not follow from their index by a simple rule."""

_CASES: Final = " ".join(f"case {place}u {{ return {word}u; }}" for place, word in enumerate(_TABLE))
_ELEMENTS: Final = ", ".join(f"{word}u" for word in _TABLE)

LONG: Final = (65534, 65535, 65536, 65537, 70000, 131071, 200003)
"""Numbers of rounds around which drivers have ended loops."""

FUNCTIONS: Final[Mapping[str, FlowFunction]] = {
    "loop_for": FlowFunction(
        _rounds("var n = 0u; for (var i = 0u; i < x; i++) { n += 1u; } return n;"), lambda x: x, LONG
    ),
    "loop_sum": FlowFunction(
        _rounds("var n = 0u; for (var i = 0u; i < x; i++) { n = n * 1664525u + 1013904223u; } return n + 1u;"),
        lambda x: (_step(x) + 1) & _MASK,
        LONG,
    ),
    "loop_while": FlowFunction(
        _rounds("var i = x; var n = 0u; while (i > 0u) { i -= 1u; n += i & 1u; } return n;"), lambda x: x // 2, LONG
    ),
    "loop_continuing": FlowFunction(
        _rounds(
            "var i = 0u; var n = 0u; loop { if (i >= x) { break; } if (i % 3u == 0u) { continue; } n += 1u;"
            " continuing { i += 1u; } } return n;"
        ),
        lambda x: x - (x + 2) // 3,
        LONG,
    ),
    "loop_break_if": FlowFunction(
        _rounds("var i = 0u; var n = 0u; loop { n += 2u; continuing { i += 1u; break if i >= x; } } return n;"),
        lambda x: 2 * max(x, 1),
        LONG,
    ),
    "loop_nested": FlowFunction(
        _rounds("var n = 0u; for (var i = 0u; i < x; i++) { for (var j = 0u; j < 300u; j++) { n += 1u; } } return n;"),
        lambda x: 300 * x,
        (1, 218, 219, 300, 400),
    ),
    "loop_nested_break": FlowFunction(
        _rounds(
            "var n = 0u; for (var i = 0u; i < x; i++) { for (var j = 0u; j < x; j++) {"
            " if (j > i) { break; } n += 1u; } } return n;"
        ),
        lambda x: x * (x + 1) // 2,
    ),
    "loop_signed": FlowFunction(
        _rounds("var n = 0u; for (var i = i32(x); i >= -5; i -= 2) { n += 1u; } return n;"), lambda x: (x + 5) // 2 + 1
    ),
    "loop_after_loop": FlowFunction(
        _rounds(
            "var n = 0u; for (var i = 0u; i < x; i++) { n += 1u; } for (var i = 0u; i < x; i++) { n += 2u; } return n;"
        ),
        lambda x: 3 * x,
        LONG,
    ),
    "loop_divergent": FlowFunction(
        _rounds("var v = 1u; for (var i = 0u; i < x * x; i++) { v = v * 1664525u + 1013904223u; } return v;"),
        lambda x: _alternating(x * x),
    ),
    "loop_beyond_2_31": FlowFunction(
        _rounds(
            "var n = 0u; for (var i = 2147483600u; i < 2147483600u + x; i++) { n += 1u + i % 2u; }"
            " for (var i = 0u - x; i != 5u; i++) { n += 100000u; } return n;"
        ),
        lambda x: x + x // 2 + 100000 * (x + 5),
    ),
    "loop_collatz": FlowFunction(
        _rounds(
            "var n = x + 1u; var steps = 0u; while (n != 1u && steps < 500u) {"
            " if (n % 2u == 0u) { n = n / 2u; } else { n = 3u * n + 1u; } steps += 1u; } return steps;"
        ),
        _collatz,
    ),
    "loop_gcd": FlowFunction(
        _rounds("var a = x * 12u; var b = 5040u + x; while (b != 0u) { let r = a % b; a = b; b = r; } return a;"), _gcd
    ),
    "switch": FlowFunction(
        _rounds(
            "switch x { case 0u: { return 11u; } case 1u { return 22u; } case 2u, 5u, 6u { return 33u; }"
            " case 100u { return 44u; } default { return x + 1000u; } }"
        ),
        _switched,
    ),
    "switch_in_loop": FlowFunction(
        _rounds(
            "var n = 0u; for (var i = 0u; i < x; i++) { switch i % 4u { case 0u { continue; } case 1u { n += i; }"
            " default { if (i != 50u) { break; } n += 7u; } } n += 1u; } return n;"
        ),
        _switched_in_loop,
    ),
    "switch_signed": FlowFunction(
        _rounds(
            "var r = 0u; switch i32(x) - 3 { case -3, -1 { r = 1u; } default { r = 2u; } case 2147483647 { r = 3u; }"
            " case 60 { r = 4u; } } return r;"
        ),
        lambda x: {0: 1, 2: 1, 63: 4}.get(x, 2),
    ),
    "switch_dense": FlowFunction(
        _rounds(f"switch x {{ {_CASES} default {{ return x; }} }}"), lambda x: _TABLE[x] if x < len(_TABLE) else x
    ),
    "return_early": FlowFunction(
        _rounds(
            "if (x % 5u == 0u) { return 1u; } if (x > 64u) { if (x % 2u == 0u) { return 2u; } } else {"
            " return 3u; } return x * x;"
        ),
        lambda x: 1 if x % 5 == 0 else 3 if x <= 64 else 2 if x % 2 == 0 else x * x,
    ),
    "return_from_loops": FlowFunction(
        _rounds(
            "for (var i = 0u; i < 100u; i++) { for (var j = 0u; j < 100u; j++) { if (i * j == x * 7u) {"
            " return i * 1000u + j; } } } return 999999u;"
        ),
        _found,
    ),
    "short_circuit": FlowFunction(
        "var<private> calls: u32;\nfn seen(call: u32, result: bool) -> bool { calls += call; return result; }\n"
        + _rounds(
            "let both = seen(1u, x % 3u == 0u) && seen(2u, x % 2u == 0u);"
            " let either = seen(4u, x % 5u == 0u) || seen(8u, x % 7u == 0u);"
            " return calls * 4u + u32(both) * 2u + u32(either);"
        ),
        _short_circuit,
    ),
    "call_pointers": FlowFunction(
        "fn swap(a: ptr<function, u32>, b: ptr<function, u32>) { let t = *a; *a = *b; *b = t + 1u; }\n"
        + _rounds("var a = x; var b = 3u * x; for (var i = 0u; i < 5u; i++) { swap(&a, &b); } return a * 1000u + b;"),
        _swapped,
    ),
    "call_copies": FlowFunction(
        "struct Pair { words: array<u32, 3>, one: u32 }\n"
        "fn changed(pair: Pair) -> Pair {"
        " var copy = pair; copy.words[pair.one % 3u] = 7u; copy.one += 1u; return copy; }\n"
        + _rounds(
            "var a = Pair(array<u32, 3>(x, x + 1u, x + 2u), x); var b = a; b.words[x % 3u] = 100u;"
            " let c = changed(a); a.words[1] += 5u; let words = a.words; a.words = b.words; b.words = words;"
            " return a.words[0] + 3u * a.words[1] + 5u * a.words[2] + 7u * b.words[0] + 9u * b.words[1]"
            " + 11u * b.words[2] + 13u * c.words[0] + 15u * c.words[1] + 17u * c.words[2] + 19u * a.one + 21u * c.one;"
        ),
        _copied,
    ),
    "arrays_large": FlowFunction(
        _rounds(
            "var words: array<u32, 512>; for (var i = 0u; i < 512u; i++) { words[(5u * i + x) % 512u] = i ^ x; }"
            " var n = 0u; for (var i = 0u; i < 512u; i++) { n += i * words[i]; } return n;"
        ),
        _scattered,
    ),
    "arrays_constant": FlowFunction(
        f"const table = array<u32, {len(_TABLE)}>({_ELEMENTS});\n"
        + _rounds(
            f"let row = array<u32, 5>(x, x * x, 3u, x + 7u, 9u); return table[x % {len(_TABLE)}u] + row[x % 5u];"
        ),
        lambda x: _TABLE[x % len(_TABLE)] + (x, x * x, 3, x + 7, 9)[x % 5],
    ),
    "arrays_private": FlowFunction(
        _rounds(
            "var composite: array<bool, 66>; var n = 0u; let last = x % 64u + 2u; for (var i = 2u; i < last; i++) {"
            " if (composite[i]) { continue; } n += 1u; for (var j = 2u * i; j < 66u; j += i) {"
            " composite[j] = true; } } return n;"
        ),
        _sieve,
    ),
    "vectors_indexed": FlowFunction(
        "fn compute(x: u32) -> u32 { var v = vec4<u32>(1u, 2u, 3u, 4u); v[x % 4u] += x; var m = mat2x3<f32>();"
        " m[x % 2u][x % 3u] = 5.0; m[1u - x % 2u] += vec3<f32>(1.0, 2.0, 3.0);"
        " return dot(v, vec4<u32>(1u, 10u, 100u, 1000u)) + u32(dot(m[0] + 7.0 * m[1], vec3<f32>(1.0, 11.0, 121.0))); }",
        lambda x: 4321 + 10 ** (x % 4) * x + 5 * 11 ** (x % 3) * (1, 7)[x % 2] + (1 + 2 * 11 + 3 * 121) * (7, 1)[x % 2],
    ),
    "variables_initialized": FlowFunction(
        "var<private> number: u32 = 17u;\nvar<private> vector = vec3<u32>(1u, 20u, 300u);\n"
        "var<private> local: array<u32, 4> = array<u32, 4>(5u, 6u, 7u, 8u);\n"
        + _rounds(
            "number *= 3u; vector.y += x; local[x % 4u] += x; return number + dot(vector, vec3<u32>(1u))"
            " + local[0] + 10u * local[1] + 100u * local[2] + 1000u * local[3];"
        ),
        _initialized,
    ),
    "signed_overflow": FlowFunction(
        _rounds(
            "let a = bitcast<i32>(x); return u32(a + 1 > a) + 2u * u32(a - 1 < a) + 4u * u32(2 * a >= a)"
            " + 8u * u32(-a == a) + 16u * u32(2 * a / 2 == a) + 32u * u32(x + 5u > x);"
        ),
        _overflow,
        (0, 1, 7, 0x3FFFFFFF, 0x40000000, 0x7FFFFFFE, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xC0000000, _MASK - 4, _MASK),
    ),
    "variables_zeroed": FlowFunction(
        "var<private> global: array<vec4<u32>, 3>;\n"
        + _rounds(
            "var n = 0u; for (var i = 0u; i < 4u; i++) { var local: array<u32, 5>; local[(x + i) % 5u] += 7u;"
            " for (var j = 0u; j < 5u; j++) { n += local[j]; } } return n + global[x % 3u].y;"
        ),
        lambda x: 28,
    ),
}
"""Functions by name."""


_SOURCE = """@group(0) @binding(0) var<storage, read> words: array<u32>;
@group(0) @binding(1) var<storage, read_write> results: array<u32>;
{wgsl}
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
    if (id.x >= arrayLength(&results)) {{ return; }}
    results[id.x] = compute(words[id.x]);
}}
"""


def flow_case(name: str) -> KernelCase:
    """Return the case of a function."""
    flow = FUNCTIONS[name]
    words = np.array(flow.words, np.uint32)
    expected: Array = np.array([flow.function(word) & _MASK for word in flow.words], np.uint32)
    return KernelCase(
        _SOURCE.format(wgsl=flow.wgsl),
        {"words": words},
        {"results": expected},
        (-(-len(words) // 64),),
        {"results": (words.shape, "uint32")},
    )
