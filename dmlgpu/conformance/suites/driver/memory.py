"""Cases of memory: grids, workgroup memory and barriers, atomics, bounds, layouts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import numpy as np

from dmlgpu.compiler.target import MAX_SLOTS
from dmlgpu.conformance.cases.case import Array
from dmlgpu.conformance.suites.driver.kernel_case import Judged, KernelCase

_FACTOR: Final = 2654435761


def _hashed(count: int) -> Array:
    """Return hashes of the indices of elements."""
    return (np.arange(count, dtype=np.uint64) * _FACTOR).astype(np.uint32)


# ---- grids -----------------------------------------------------------------------------------------------------------

_GRID = """@group(0) @binding(0) var<storage, read_write> results: array<u32>;
@compute @workgroup_size({size})
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>,
        @builtin(local_invocation_index) index: u32) {{
    let size = vec3<u32>({size});
    let at = (group.x + groups.x * (group.y + groups.y * group.z)) * size.x * size.y * size.z + index;
    let is_right = all(id == group * size + local) && index == local.x + size.x * (local.y + size.y * local.z);
    if (at < arrayLength(&results)) {{ results[at] += select(1u, at * {factor}u, is_right); }}
}}
"""


def _grid(size: tuple[int, int, int], grid: tuple[int, int, int], missing: int = 0) -> KernelCase:
    """Return a case in which every invocation adds to its own element once.

    Args:
        size: Size of a workgroup.
        grid: Number of workgroups.
        missing: Number of invocations at the end without an element.
    """
    count = int(np.prod(size) * np.prod(grid)) - missing
    source = _GRID.format(size=", ".join(map(str, size)), factor=_FACTOR)
    return KernelCase(source, {}, {"results": _hashed(count)}, grid, {"results": ((count,), "uint32")})


_STRIDED = """@group(0) @binding(0) var<storage, read> words: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> results: array<vec4<u32>>;
@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let count = arrayLength(&results);
    for (var i = id.x; i < count; i += groups.x * 256u) { results[count - 1u - i] = words[i] + vec4<u32>(1u); }
}
"""


def _strided(count: int) -> KernelCase:
    """Return a case in which few workgroups copy every vector of a large buffer."""
    words = _hashed(count).reshape(-1, 4)
    return KernelCase(
        _STRIDED,
        {"words": words},
        {"results": words[::-1] + np.uint32(1)},
        (509,),
        {"results": (words.shape, "uint32")},
    )


def _buffers(count: int) -> KernelCase:
    """Return a case with this many storage buffers; every adapter has eight."""
    source = [
        *(f"@group(0) @binding({place}) var<storage, read> words{place}: array<u32>;" for place in range(count - 1)),
        f"@group(0) @binding({count - 1}) var<storage, read_write> results: array<u32>;",
        "@compute @workgroup_size(64)",
        "fn main(@builtin(global_invocation_id) id: vec3<u32>) {",
        f"    results[id.x] = {' + '.join(f'{2 * place + 1}u * words{place}[id.x]' for place in range(count - 1))};",
        "}",
    ]
    words = _hashed((count - 1) * 640).reshape(-1, 640)
    factors = np.arange(1, 2 * count - 2, 2, dtype=np.uint64)[:, None]
    expected = (words.astype(np.uint64) * factors).sum(0).astype(np.uint32)
    inputs = {f"words{place}": row for place, row in enumerate(words)}
    return KernelCase("\n".join(source), inputs, {"results": expected}, (10,), {"results": ((640,), "uint32")})


_OVERLAPPING = """@group(0) @binding(0) var<storage, read> places: array<vec2<u32>>;
@group(0) @binding(1) var<storage, read_write> results: array<u32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let first = 8u * id.x + places[id.x].x;
    let second = 8u * id.x + places[id.x].y;
    results[first] = 11u;
    results[second] += 22u;
    results[first] = results[first] * 100u + results[second];
    for (var i = 8u * id.x + 1u; i < 8u * id.x + 8u; i++) { results[i] = 3u * results[i] + results[i - 1u]; }
    for (var i = 8u * id.x; i < 8u * id.x + 5u; i++) { results[i + 3u] ^= results[i]; }
}
"""


def _overlapping() -> KernelCase:
    """Return a case of stores and loads whose places are equal for some invocations, and of rounds of a loop that read
    what others wrote."""
    hashes = _hashed(9 * 64)
    places = np.stack([hashes >> np.uint32(29), hashes >> np.uint32(5) & np.uint32(7)], 1)  # an eighth of them equal
    rows = np.zeros((len(places), 8), np.uint32)
    every, (first, second) = np.arange(len(places)), places.T
    rows[every, first] = 11
    rows[every, second] += np.uint32(22)
    rows[every, first] = rows[every, first] * np.uint32(100) + rows[every, second]
    for place in range(1, 8):
        rows[:, place] = np.uint32(3) * rows[:, place] + rows[:, place - 1]
    for place in range(5):
        rows[:, place + 3] ^= rows[:, place]
    outputs = {"results": (rows.shape, "uint32")}
    return KernelCase(_OVERLAPPING, {"places": places}, {"results": rows}, (9,), outputs)


# ---- workgroup memory ------------------------------------------------------------------------------------------------

_WORKGROUP = """@group(0) @binding(0) var<storage, read> words: array<u32>;
@group(0) @binding(1) var<storage, read_write> results: array<u32>;
{declarations}
@compute @workgroup_size({size})
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(local_invocation_index) me: u32,
        @builtin(workgroup_id) group: vec3<u32>) {{
    let x = words[id.x];
{body}
}}
"""


def _workgroup(
    size: int, declarations: str, body: str, function: Callable[[Array], Array], groups: int = 37
) -> KernelCase:
    """Return a case whose workgroups are rows of words.

    Args:
        size: Invocations per workgroup.
        declarations: WGSL before the entry point.
        body: Computes results[id.x] from x.
        function: Returns results from a matrix of words in uint64, a row per workgroup; 32 bits of each count.
        groups: Number of workgroups.
    """
    words = _hashed(groups * size)
    expected = np.asarray(function(words.reshape(groups, size).astype(np.uint64))).astype(np.uint32).ravel()
    source = _WORKGROUP.format(
        size=size, declarations=declarations.replace("SIZE", str(size)), body=body.replace("SIZE", str(size))
    )
    return KernelCase(source, {"words": words}, {"results": expected}, (groups,), {"results": (words.shape, "uint32")})


_SHARED = "var<workgroup> shared_words: array<u32, SIZE>;"
_STORED = "    shared_words[me] = x;\n    workgroupBarrier();\n"
_REVERSE = _STORED + "    results[id.x] = shared_words[SIZEu - 1u - me];"
_TREE = (
    _STORED
    + """    for (var half = SIZEu / 2u; half > 0u; half /= 2u) {
        if (me < half) { shared_words[me] += shared_words[me + half]; }
        workgroupBarrier();
    }
    results[id.x] = shared_words[0] + me;"""
)
_SCAN = (
    _STORED
    + """    for (var step = 1u; step < SIZEu; step *= 2u) {
        var other = 0u;
        if (me >= step) { other = shared_words[me - step]; }
        workgroupBarrier();
        shared_words[me] += other;
        workgroupBarrier();
    }
    results[id.x] = shared_words[me];"""
)
_ROTATE = (
    _STORED
    + """    for (var round = 0u; round < 100u; round++) {
        let next = shared_words[(me + 1u) % SIZEu];
        workgroupBarrier();
        shared_words[me] = next + round;
        workgroupBarrier();
    }
    results[id.x] = shared_words[me];"""
)
_UNIFORM_LOAD = """    if (me == 3u) { chosen = x; }
    let limit = workgroupUniformLoad(&chosen) % 7u;
    var total = 0u;
    for (var i = 0u; i < limit; i++) {
        shared_words[(me + i) % SIZEu] = x + i;
        workgroupBarrier();
        total += shared_words[(me + 5u) % SIZEu];
        workgroupBarrier();
    }
    results[id.x] = total;"""
_UNIFORM_BRANCH = """    if (group.x % 2u == 0u) {
        shared_words[me] = x;
        workgroupBarrier();
        results[id.x] = shared_words[me ^ 1u];
    } else { results[id.x] = x + 1u; }"""
_STORAGE_BARRIER = """    results[id.x] = x;
    storageBarrier();
    let other = results[group.x * SIZEu + (me + 17u) % SIZEu];
    storageBarrier();
    results[id.x] = other * 3u;"""
_ZEROED = """    results[id.x] = shared_words[me] + zero_vectors[me].y + atomicLoad(&zero_sums[me % 4u]);
    workgroupBarrier();
    shared_words[me] = x;
    zero_vectors[me] = vec4<u32>(x);
    atomicAdd(&zero_sums[me % 4u], x);"""
_ZEROED_DECLARATIONS = (
    _SHARED
    + """
var<workgroup> zero_vectors: array<vec4<u32>, SIZE>;
var<workgroup> zero_sums: array<atomic<u32>, 4>;"""
)


def _uniform_load(rows: Array) -> Array:
    limits = rows[:, 3] % 7
    count = rows.shape[1]
    total = np.zeros_like(rows)
    for round_ in range(6):
        written = np.roll(rows + np.uint64(round_), round_, 1)
        total += np.where((round_ < limits)[:, None], np.roll(written, -5, 1), 0).astype(np.uint64)
    assert count > 7
    return total


_LARGE = """    for (var k = 0u; k < 16u; k++) { shared_words[me + SIZEu * k] = x * (2u * k + 1u); }
    workgroupBarrier();
    var total = 0u;
    for (var k = 0u; k < 16u; k++) { total += (k + 1u) * shared_words[16u * SIZEu - 1u - me - SIZEu * k]; }
    results[id.x] = total;"""


def _large_workgroup(rows: Array) -> Array:
    return rows[:, ::-1] * np.uint64(sum((k + 1) * (2 * (15 - k) + 1) for k in range(16)))


def _rotated(rows: Array) -> Array:
    return np.roll(rows, -100, 1) + np.uint64(sum(range(100)))


def _branched(rows: Array) -> Array:
    swapped = rows.reshape(len(rows), -1, 2)[..., ::-1].reshape(rows.shape)
    return np.where(np.arange(len(rows))[:, None] % 2 == 0, swapped, rows + np.uint64(1))


# ---- atomics ---------------------------------------------------------------------------------------------------------

_ATOMIC = """@group(0) @binding(0) var<storage, read> words: array<{of}>;
@group(0) @binding(1) var<storage, read_write> places: array<atomic<{of}>>;
@group(0) @binding(2) var<storage, read_write> results: array<{of}>;
{declarations}
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(local_invocation_index) me: u32) {{
    let x = words[id.x];
    let i = id.x;
{body}
}}
"""
_PLACES: Final = 5
_COUNT: Final = 64 * 512


def _atomic(of: str, operator: str, function: Callable[[Array], Array], initial: int) -> KernelCase:
    """Return a case in which every invocation updates one of a few words in storage, and one in workgroup memory."""
    dtype = np.dtype(np.uint32 if of == "u32" else np.int32)
    words = _hashed(_COUNT).view(dtype)
    body = f"""    atomic{operator}(&places[i % {_PLACES}u], x);
    if (me == 0u) {{ atomicStore(&shared_word, {of}({initial})); }}
    workgroupBarrier();
    atomic{operator}(&shared_word, x);
    workgroupBarrier();
    results[i] = atomicLoad(&shared_word);"""
    if initial < 0:
        body = body.replace(f"{of}({initial})", "bitcast<" + of + f">({initial & 0xFFFFFFFF}u)")
    start = np.array([initial & 0xFFFFFFFF], np.uint32).view(dtype).astype(np.int64)
    wide = words.astype(np.int64)
    places = [function(np.append(start, wide[place::_PLACES])) for place in range(_PLACES)]
    groups = [function(np.append(start, row)) for row in wide.reshape(-1, 64)]
    expected = {
        "places": _words_of(np.array(places), dtype),
        "results": np.repeat(_words_of(np.array(groups), dtype), 64),
    }
    source = _ATOMIC.format(of=of, declarations=f"var<workgroup> shared_word: atomic<{of}>;", body=body)
    inputs = {"words": words, "places": np.repeat(_words_of(start, dtype), _PLACES)}
    return KernelCase(source, inputs, expected, (_COUNT // 64,), {"results": ((_COUNT,), dtype.name)})


def _words_of(numbers: Array, dtype: np.dtype[np.generic]) -> Array:
    return (numbers & 0xFFFFFFFF).astype(np.uint32).view(dtype)


def _returned(body: str, last: int) -> KernelCase:
    """Return a case in which every invocation gets another number from one word: sorted, they are all numbers.

    Args:
        body: Sets results[i].
        last: Final value of the word.
    """

    def judge(results: Mapping[str, Array]) -> Judged:
        return {
            "the final word": (results["places"][:1], np.array([last], np.uint32)),
            "the results, sorted": (np.sort(results["results"]), np.arange(_COUNT, dtype=np.uint32)),
        }

    source = _ATOMIC.format(of="u32", declarations="", body=body)
    inputs = {"words": _hashed(_COUNT), "places": np.zeros(4, np.uint32)}
    return KernelCase(source, inputs, {}, (_COUNT // 64,), {"results": ((_COUNT,), "uint32")}, judge=judge)


_OLD_VALUES = """    let place = &places[i];
    var total = atomicMax(place, x);
    total += 3 * atomicMin(place, x / 2);
    total += 5 * atomicOr(place, x & 255);
    total += 7 * atomicAnd(place, x | 65535);
    total += 11 * atomicXor(place, x);
    total += 13 * atomicAdd(place, x);
    total += 17 * atomicSub(place, 5);
    results[i] = total + 19 * atomicExchange(place, x);"""


_IN_WORKGROUP = """    atomicStore(&shared_places[63u - me], atomicLoad(&places[i]));
{body}
    atomicStore(&places[i], atomicLoad(place));"""


def _old_values(of: str, *, in_workgroup: bool = False) -> KernelCase:
    """Return a case of the values that atomic operations return, each invocation with a word of its own, of storage or
    of workgroup memory."""
    dtype = np.dtype(np.uint32 if of == "u32" else np.int32)
    words, places = _hashed(_COUNT), _hashed(_COUNT)[::-1].copy()
    x, word = words.view(dtype).astype(np.int64), places.view(dtype).astype(np.int64)

    def wrapped(numbers: Array) -> Array:
        return _words_of(numbers, dtype).astype(np.int64)

    total = np.zeros(_COUNT, np.int64)
    half = np.sign(x) * (np.abs(x) // 2)
    for factor, changed in (
        (1, lambda old: np.maximum(old, x)),
        (3, lambda old: np.minimum(old, half)),
        (5, lambda old: old | (x & 255)),
        (7, lambda old: old & (x | 65535)),
        (11, lambda old: old ^ x),
        (13, lambda old: wrapped(old + x)),
        (17, lambda old: wrapped(old - 5)),
        (19, lambda old: x),
    ):
        total = wrapped(total + factor * word)
        word = changed(word)
    declarations, body = "", _OLD_VALUES
    if in_workgroup:
        declarations = f"var<workgroup> shared_places: array<atomic<{of}>, 64>;"
        body = _IN_WORKGROUP.format(body=_OLD_VALUES.replace("&places[i]", "&shared_places[63u - me]"))
    return KernelCase(
        _ATOMIC.format(of=of, declarations=declarations, body=body),
        {"words": words.view(dtype), "places": places.view(dtype)},
        {"places": _words_of(word, dtype), "results": _words_of(total, dtype)},
        (_COUNT // 64,),
        {"results": ((_COUNT,), dtype.name)},
    )


_COMPARE_EXCHANGE = """    var old = atomicLoad(&places[0]);
    loop {
        let attempt = atomicCompareExchangeWeak(&places[0], old, old + 1u);
        if (attempt.exchanged) { break; }
        old = attempt.old_value;
    }
    results[i] = old;"""


def _exchanged() -> KernelCase:
    """Return a case in which every invocation exchanges its number for that of another: each is taken once."""

    def judge(results: Mapping[str, Array]) -> Judged:
        numbers = np.append(results["results"], results["places"][:1])
        return {"all numbers, sorted": (np.sort(numbers), np.arange(_COUNT + 1, dtype=np.uint32))}

    source = _ATOMIC.format(of="u32", declarations="", body="    results[i] = atomicExchange(&places[0], i + 1u);")
    inputs = {"words": _hashed(_COUNT), "places": np.zeros(4, np.uint32)}
    return KernelCase(source, inputs, {}, (_COUNT // 64,), {"results": ((_COUNT,), "uint32")}, judge=judge)


# ---- bounds ----------------------------------------------------------------------------------------------------------

_BOUNDS = """@group(0) @binding(0) var<storage, read> offsets: array<u32>;
@group(0) @binding(1) var<storage, read_write> before: array<u32>;
@group(0) @binding(2) var<storage, read_write> zeros: array<u32>;
@group(0) @binding(3) var<storage, read_write> results: array<u32>;
var<workgroup> shared_zeros: array<u32, 16>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(local_invocation_index) me: u32) {{
    let at = offsets[id.x];
    if (me < 16u) {{ shared_zeros[me] = 0u; }}
    workgroupBarrier();
{body}
}}
"""
_OFFSETS: Final = np.array(
    [
        64,
        65,
        127,
        128,
        1000,
        65536,
        1 << 20,
        1 << 28,
        (1 << 30) - 1,
        1 << 30,
        (1 << 30) + 3,
        1 << 31,
        0xFFFFFFFE,
        0xFFFFFFFF,
        99,
        12345,
    ],
    np.uint32,
)


def _bounds(body: str) -> KernelCase:
    """Return a case of accesses out of bounds: reads give 0, like all elements, and no other buffer changes."""
    guard = np.full(64, 0x5AFE5AFE, np.uint32)
    offsets = np.resize(_OFFSETS, 64)
    return KernelCase(
        _BOUNDS.format(body=body),
        {"offsets": offsets, "before": guard, "zeros": np.zeros(64, np.uint32)},
        {"before": guard, "results": np.zeros(64, np.uint32)},
        (1,),
        {"results": ((64,), "uint32")},
    )


_LENGTHS = """@group(0) @binding(0) var<storage, read> words: array<u32>;
struct Tail { first: vec4<u32>, rest: array<vec2<u32>> }
@group(0) @binding(1) var<storage, read> tail: Tail;
@group(0) @binding(2) var<storage, read_write> results: array<u32>;
@compute @workgroup_size(1)
fn main() {
    results[0] = arrayLength(&words);
    results[1] = arrayLength(&tail.rest);
    results[2] = arrayLength(&results);
}
"""

# ---- layouts ---------------------------------------------------------------------------------------------------------

_LAYOUT = """struct Inner { a: u32, b: vec3<u32>, c: u32, d: array<vec2<u32>, 2> }
struct Outer { inner: Inner, @align(32) e: u32, @size(24) f: u32, g: mat3x2<f32>, h: vec4<u32> }
@group(0) @binding(0) var<uniform> constants: array<vec4<u32>, 4>;
@group(0) @binding(1) var<storage, read> words: array<Outer>;
@group(0) @binding(2) var<storage, read_write> results: array<u32>;
@compute @workgroup_size(1)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let x = words[id.x];
    let values = array<u32, 18>(x.inner.a, x.inner.b.x, x.inner.b.y, x.inner.b.z, x.inner.c, x.inner.d[0].x,
        x.inner.d[0].y, x.inner.d[1].x, x.inner.d[1].y, x.e, x.f, bitcast<u32>(x.g[0].x), bitcast<u32>(x.g[1].y),
        bitcast<u32>(x.g[2].x), x.h.x, x.h.w, constants[id.x % 4u].y, constants[3].w);
    for (var i = 0u; i < 18u; i++) { results[18u * id.x + i] = values[i]; }
}
"""
_LAYOUT_PLACES: Final = (0, 4, 5, 6, 7, 8, 9, 10, 11, 16, 17, 24, 27, 28, 32, 35)
"""Indices of words of the members: b is aligned to 16 bytes, c follows it, e is aligned to 32, f takes 24."""
_LAYOUT_WORDS: Final = 40


def _layout() -> KernelCase:
    count = 8
    # Small integers, since the floats among them may be flushed or changed if they are NaN.
    words = (np.arange(count * _LAYOUT_WORDS, dtype=np.uint32) + np.uint32(0x3F800000)).reshape(count, _LAYOUT_WORDS)
    constants = np.arange(100, 116, dtype=np.uint32)
    expected = np.concatenate(
        [
            words[:, list(_LAYOUT_PLACES)],
            constants.reshape(4, 4)[np.arange(count) % 4, 1][:, None],
            np.full((count, 1), constants[15], np.uint32),
        ],
        1,
    )
    return KernelCase(
        _LAYOUT,
        {"constants": constants, "words": words.ravel()},
        {"results": expected.ravel()},
        (count,),
        {"results": ((expected.size,), "uint32")},
    )


_PARTS = """struct Row { vector: vec3<u32>, one: u32, pair: vec2<u32>, four: vec4<u32>, matrix: mat2x2<f32>, last: u32 }
@group(0) @binding(0) var<storage, read> words: array<u32>;
@group(0) @binding(1) var<storage, read_write> results: array<Row>;
@compute @workgroup_size(1)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let x = words[id.x];
    let row = &results[id.x];
    (*row).vector = vec3<u32>(x, x + 1u, x + 2u);
    (*row).pair.y = x + 3u;
    (*row).four[x % 4u] = x + 4u;
    (*row).matrix[1] = vec2<f32>(f32(id.x), 2.0);
}
"""
_PARTS_PADDING: Final = (6, 7, 17, 18, 19)
"""Words between the members of a row, which kernels may change."""


def _parts() -> KernelCase:
    """Return a case that writes members of structures and components of vectors: those next to them keep their
    values."""
    count = 33
    words = _hashed(count) >> np.uint32(4)
    before = np.arange(20 * count, dtype=np.uint32).reshape(count, 20) + np.uint32(0x3F800000)
    rows, every = before.copy(), np.arange(count)
    rows[:, :3] = words[:, None] + np.arange(3, dtype=np.uint32)
    rows[:, 5] = words + np.uint32(3)
    rows[every, 8 + words % 4] = words + np.uint32(4)
    rows[:, 14] = every.astype(np.float32).view(np.uint32)
    rows[:, 15] = np.float32(2).view(np.uint32)
    members = [place for place in range(20) if place not in _PARTS_PADDING]

    def judge(results: Mapping[str, Array]) -> Judged:
        return {"results": (results["results"].reshape(count, 20)[:, members], rows[:, members])}

    return KernelCase(_PARTS, {"words": words, "results": before}, {}, (count,), judge=judge)


_THREES = """struct Row { vectors: array<vec3<u32>, 5>, matrix: mat3x3<f32>, last: u32 }
@group(0) @binding(0) var<storage, read> words: array<Row>;
@group(0) @binding(1) var<storage, read_write> results: array<u32>;
@compute @workgroup_size(1)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    for (var i = 0u; i < 5u; i++) {
        for (var j = 0u; j < 3u; j++) { results[25u * id.x + 3u * i + j] = words[id.x].vectors[i][j]; }
    }
    for (var i = 0u; i < 9u; i++) {
        results[25u * id.x + 15u + i] = bitcast<u32>(words[id.x].matrix[i / 3u][i % 3u]);
    }
    results[25u * id.x + 24u] = words[id.x].last;
}
"""
_THREES_PLACES: Final = (*(4 * i + j for i in range(8) for j in range(3)), 32)
"""Indices of words: each vector of three takes 16 bytes."""
_THREES_WORDS: Final = 36


def _threes() -> KernelCase:
    count = 11
    words = np.arange(count * _THREES_WORDS, dtype=np.uint32) + np.uint32(0x3F800000)
    expected = words.reshape(count, -1)[:, list(_THREES_PLACES)].ravel()
    outputs = {"results": (expected.shape, "uint32")}
    return KernelCase(_THREES, {"words": words}, {"results": expected}, (count,), outputs)


_F16 = """enable f16;
@group(0) @binding(0) var<storage, read> words: array<f16>;
@group(0) @binding(1) var<storage, read> vectors: array<vec4<f16>>;
@group(0) @binding(2) var<storage, read_write> results: array<f16>;
@group(0) @binding(3) var<storage, read_write> reversed: array<vec4<f16>>;
var<workgroup> shared_halves: array<f16, 64>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(local_invocation_index) me: u32) {
    shared_halves[me] = words[id.x];
    workgroupBarrier();
    results[id.x] = shared_halves[63u - me];
    if (id.x < arrayLength(&vectors)) { reversed[id.x] = vectors[id.x].wzyx; }
}
"""


def _f16() -> KernelCase:
    bits = np.arange(1 << 16, dtype=np.uint16)
    exponents = bits >> 10 & 31
    halves = np.resize(bits[(exponents > 0) & (exponents < 31)], 1 << 16).view(np.float16)
    return KernelCase(
        _F16,
        {"words": halves, "vectors": halves.reshape(-1, 4)},
        {"results": halves.reshape(-1, 64)[:, ::-1].ravel(), "reversed": halves.reshape(-1, 4)[:, ::-1]},
        (1024,),
        {"results": (halves.shape, "float16"), "reversed": ((1 << 14, 4), "float16")},
        ("shader-f16",),
    )


_CASES_OF_BOUNDS = {
    "read": "    results[id.x] = zeros[at];",
    "write": "    zeros[at] = at | 1u; results[id.x] = 0u;",
    "read_private": "    var local: array<u32, 7>; results[id.x] = local[at];",
    "write_private": "    var guard = 5u; var local: array<u32, 7>; var other = 6u; local[at] = 9u;"
    " results[id.x] = (guard - 5u) + (other - 6u);",
    "read_workgroup": "    results[id.x] = shared_zeros[at];",
    "read_vector": "    var vector = vec4<u32>(0u); results[id.x] = vector[at];",
    "read_matrix": "    var matrix = mat3x3<f32>(); results[id.x] = u32(matrix[at].x + matrix[1][at]);",
}

CASES: Final[Mapping[str, Callable[[], KernelCase]]] = {
    "grid-1d": lambda: _grid((64, 1, 1), (4099, 1, 1)),
    "grid-1d_tail": lambda: _grid((256, 1, 1), (1031, 1, 1), 37),
    "grid-2d": lambda: _grid((8, 8, 1), (61, 67, 1)),
    "grid-3d": lambda: _grid((4, 4, 4), (7, 13, 11)),
    "grid-3d_uneven": lambda: _grid((3, 5, 7), (5, 3, 2)),
    "grid-one_invocation": lambda: _grid((1, 1, 1), (10007, 1, 1)),
    "grid-1d_most": lambda: _grid((1, 1, 1), (65535, 1, 1)),
    "grid-2d_most": lambda: _grid((1, 1, 1), (1, 65535, 1)),
    "grid-3d_most": lambda: _grid((1, 1, 1), (1, 1, 65535)),
    "grid-largest_workgroup": lambda: _grid((256, 1, 1), (3, 1, 1)),
    "buffer-strided": lambda: _strided(1 << 20),
    "buffer-eight": lambda: _buffers(8),
    "buffer-most": lambda: _buffers(MAX_SLOTS),
    "buffer-overlapping": _overlapping,
    "workgroup-reverse": lambda: _workgroup(64, _SHARED, _REVERSE, lambda rows: rows[:, ::-1]),
    "workgroup-reverse_256": lambda: _workgroup(256, _SHARED, _REVERSE, lambda rows: rows[:, ::-1]),
    "workgroup-reverse_uneven": lambda: _workgroup(37, _SHARED, _REVERSE, lambda rows: rows[:, ::-1]),
    "workgroup-tree": lambda: _workgroup(
        256, _SHARED, _TREE, lambda rows: rows.sum(1, keepdims=True) + np.arange(256, dtype=np.uint64)
    ),
    "workgroup-scan": lambda: _workgroup(128, _SHARED, _SCAN, lambda rows: rows.cumsum(1)),
    "workgroup-rotate": lambda: _workgroup(96, _SHARED, _ROTATE, _rotated),
    "workgroup-uniform_load": lambda: _workgroup(
        64, f"{_SHARED}\nvar<workgroup> chosen: u32;", _UNIFORM_LOAD, _uniform_load
    ),
    "workgroup-uniform_branch": lambda: _workgroup(64, _SHARED, _UNIFORM_BRANCH, _branched),
    # 16 KiB, which every adapter has.
    "workgroup-large": lambda: _workgroup(
        256, "var<workgroup> shared_words: array<u32, 16 * SIZE>;", _LARGE, _large_workgroup
    ),
    "workgroup-storage_barrier": lambda: _workgroup(
        128, "", _STORAGE_BARRIER, lambda rows: np.roll(rows, -17, 1) * np.uint64(3)
    ),
    "workgroup-zeroed": lambda: _workgroup(
        128, _ZEROED_DECLARATIONS, _ZEROED, np.zeros_like, 8192
    ),  # many, to reuse the memory on large GPUs
    **{
        f"atomic-{of}-{operator.lower()}": partial(_atomic, of, operator, function, initial)
        for of in ("u32", "i32")
        for operator, function, initial in (
            ("Add", np.sum, 5),
            ("Sub", lambda numbers: 2 * numbers[0] - np.sum(numbers), 5),
            ("Max", np.max, 0),
            ("Min", np.min, 0x7FFFFFFF),
            ("And", np.bitwise_and.reduce, -1),
            ("Or", np.bitwise_or.reduce, 0),
            ("Xor", np.bitwise_xor.reduce, 1),
        )
    },
    **{f"atomic-{of}-old_values": partial(_old_values, of) for of in ("u32", "i32")},
    **{f"atomic-{of}-old_values_workgroup": partial(_old_values, of, in_workgroup=True) for of in ("u32", "i32")},
    "atomic-returned_add": lambda: _returned("    results[i] = atomicAdd(&places[0], 1u);", _COUNT),
    "atomic-returned_sub": lambda: _returned("    results[i] = 0u - atomicSub(&places[0], 1u);", -_COUNT & 0xFFFFFFFF),
    "atomic-compare_exchange": lambda: _returned(_COMPARE_EXCHANGE, _COUNT),
    "atomic-exchange": _exchanged,
    **{f"bounds-{name}": partial(_bounds, body) for name, body in _CASES_OF_BOUNDS.items()},
    "bounds-lengths": lambda: KernelCase(
        _LENGTHS,
        {"words": _hashed(1237), "tail": np.zeros(4 + 2 * 333, np.uint32)},
        {"results": np.array([1237, 333, 3], np.uint32)},
        (1,),
        {"results": ((3,), "uint32")},
    ),
    "layout-structures": _layout,
    "layout-vectors_of_three": _threes,
    "layout-written_parts": _parts,
    "layout-f16": _f16,
}
"""Cases of all profiles by name."""

LARGE_CASES: Final[Mapping[str, Callable[[], KernelCase]]] = {
    "grid-1d_65535": lambda: _grid((64, 1, 1), (65535, 1, 1)),
    "grid-2d_beyond_65535": lambda: _grid((32, 1, 1), (65535, 2, 1), 5),
    "grid-3d_large": lambda: _grid((4, 4, 4), (40, 41, 43)),
    "buffer-64_mib": lambda: _strided(1 << 24),
}
"""Cases of the standard and full profiles by name, with large buffers or grids."""
