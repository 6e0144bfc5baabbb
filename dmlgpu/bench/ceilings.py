"""Measured ceilings of a device (roofline): copy rate, multiply-add rate, launch overhead.

Each is the best of several hand-written kernels, since no kernel suits every adapter. The kernels are standard WGSL and
use nothing of dmlgpu.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dmlgpu.bench import machine_load
from dmlgpu.bench.counting import Counts
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.common.files import whole_file
from dmlgpu.common.folders import cache_folder
from dmlgpu.compiler.target import AdapterInfo, Profile
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.executor import CustomShader, Range, ShaderBackend, measure

COPY_BYTES = 64 << 20
_COPY_BYTES_OF_CARDS = 512 << 20  # several times their caches
ROUNDS = 4
LAUNCHES = 64
_CHAINS = ((4, 1), (12, 1), (3, 4), (8, 4), (8, 16))
"""Numbers of multiply-add chains, and of steps of each per loop iteration. GPUs reach their peak only if hundreds of
multiply-adds hide the loop around them."""

_FACTORS = 4
"""Pairs of factors that steps use in turn: registers hold them, and chains use one pair after the other."""

_OPERANDS = 16 * (1024 + _FACTORS)
"""Bytes of the buffer of multiply-add kernels."""

CLOCK_RAMP = 0.5
"""Seconds of load until GPUs run at full clock: an idle H100 needed up to 0.35 s, at about half of its speed."""

MAX_CPU_SECONDS = 10
"""Seconds after which no further multiply-add kernel is measured on CPU adapters."""

_WORKGROUPS = (64, 8, 256)
_TURNS = 256
_MAX_GROUPS = 1 << 14
_ROUND_SECONDS = 0.005


@dataclass(frozen=True)
class Ceilings:
    """Ceilings of a device.

    Attributes:
        copy: Bytes per second, read and written.
        multiply_add: Float32 operations per second, two per multiply-add.
        launch: Seconds per dispatch, of many in one submission.
        submission: Seconds to submit one tiny dispatch and wait.
        source: Source of times: ``gpu`` or ``wall clock``.
    """

    copy: float
    multiply_add: float
    launch: float
    submission: float
    source: str

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, record: Any) -> Ceilings:
        """Return the ceilings of a record.

        Raises:
            InvalidArgument: If the record is invalid.
        """
        numbers = ("copy", "multiply_add", "launch", "submission")
        if not isinstance(record, dict) or not all(
            isinstance(record.get(name), int | float) and record[name] > 0 for name in numbers
        ):
            raise InvalidArgument(f"ceilings must have positive numbers {', '.join(numbers)}")
        return cls(**{name: float(record[name]) for name in numbers}, source=str(record.get("source", "")))


@dataclass(frozen=True)
class Share:
    """Fraction of a ceiling reached.

    Attributes:
        share: Minimum possible time divided by the measured time.
        bound_by: The ceiling that sets the minimum: ``copy``, ``multiply-add`` or ``launch``.
    """

    share: float
    bound_by: str


def share_of(seconds: float, counts: Counts, ceilings: Ceilings) -> Share:
    """Return the fraction of the limiting ceiling that a time reaches."""
    minimum = {
        "copy": counts.bytes / ceilings.copy,
        "multiply-add": counts.operations / ceilings.multiply_add,
        "launch": max(1, counts.kernels) * ceilings.launch,
    }
    bound_by = max(minimum, key=lambda name: minimum[name])
    return Share(minimum[bound_by] / seconds if seconds else 0.0, bound_by)


# ---- kernels


def copy_kernel(workgroup: int, each: int, width: int) -> str:
    """Return a copy kernel for units of 16 bytes, several adjacent ones per thread."""
    moves = " ".join(f"b[first + {index}u] = a[first + {index}u];" for index in range(each))
    return (
        "@group(0) @binding(0) var<storage, read_write> a: array<vec4<u32>>;\n"
        "@group(0) @binding(1) var<storage, read_write> b: array<vec4<u32>>;\n"
        f"@compute @workgroup_size({workgroup}) fn main(@builtin(global_invocation_id) id: vec3<u32>) {{\n"
        f"    let first = (id.x + id.y * {width * workgroup}u) * {each}u;\n"
        f"    if (first + {each - 1}u < arrayLength(&b)) {{ {moves} }}\n}}\n"
    )


def multiply_add_kernel(workgroup: int, chains: int, steps: int, turns: int) -> str:
    """Return a kernel with chains of multiply-adds on vectors in registers, and a number of steps of each per loop
    iteration.

    Successive steps have different factors, so that compilers cannot merge them.
    """
    every, factors = range(chains), range(min(steps, _FACTORS))
    declared = " ".join(f"var c{index} = vec4<f32>(f32(id.x) + {index}.5);" for index in every)
    declared += "".join(
        f"\n    let x{factor} = vec4<f32>(b[{factor}].x + 0.999); let y{factor} = vec4<f32>(b[{factor}].y + 0.001);"
        for factor in factors
    )
    pairs = [step % len(factors) for step in range(steps)]
    body = " ".join(f"c{index} = fma(c{index}, x{pair}, y{pair});" for pair in pairs for index in every)
    total = " + ".join(f"c{index}" for index in every)
    return (
        "@group(0) @binding(0) var<storage, read_write> b: array<vec4<f32>>;\n"
        f"@compute @workgroup_size({workgroup}) fn main(@builtin(global_invocation_id) id: vec3<u32>) {{\n"
        f"    {declared}\n    for (var turn = 0u; turn < {turns}u; turn++) {{ {body} }}\n"
        f"    b[{_FACTORS}u + id.x % 1024u] = {total};\n}}\n"
    )


LAUNCH_KERNEL = (
    "@group(0) @binding(0) var<storage, read_write> b: array<u32>;\n"
    "@compute @workgroup_size(1) fn main() { b[0] = b[0] + 1u; }\n"
)


# ---- measuring


class _Bench:
    """Timed kernels on a device."""

    def __init__(self, device: Device):
        assert isinstance(device.backend, ShaderBackend)
        self.backend = device.backend
        self.buffers: list[Any] = []
        self.source = "gpu"

    def buffer(self, size: int) -> Range[Any]:
        created = self.backend.create_buffer(size, "ceilings")
        self.buffers.append(created)
        return Range(created, 0, size)

    def shader(self, wgsl: str, count: int) -> CustomShader:
        """Compile a kernel with a number of buffers."""
        return self.backend.compile_shader(wgsl, "main", {}, dict.fromkeys(range(count), "storage"), "ceilings")

    def work(self, wgsl: str, ranges: Sequence[Range[Any]], groups: tuple[int, int, int]) -> Any:
        return self.shader(wgsl, len(ranges)).bind(dict(enumerate(ranges)), groups)

    def seconds(self, *work: Any) -> float:
        """Return the shortest of several rounds, after one warm-up round."""
        times = [self.once(*work) for _ in range(1 + ROUNDS)]
        return min(times[1:])

    def once(self, *work: Any) -> float:
        times = measure(self.backend, *work)
        if not times.device:
            self.source = "wall clock"
        return times.device or times.host

    def close(self) -> None:
        for buffer in self.buffers:
            self.backend.destroy_buffer(buffer)


def measure_ceilings(device: Device, *, clock: Callable[[], float] = time.perf_counter) -> Ceilings:
    """Measure the ceilings of a device, which takes a few seconds.

    Drivers for CPUs compile the multiply-add kernels for a long time: after ``MAX_CPU_SECONDS`` the others, which are
    rarely the fastest there, are omitted.

    Raises:
        DmlError: If the device runs none of the kernels.
    """
    if not isinstance(device.backend, ShaderBackend):
        return _of_host(clock)
    bench = _Bench(device)
    try:
        _ramp_clocks(bench, clock)
        end = clock() + MAX_CPU_SECONDS if device.backend.target.profile is Profile.CPU else math.inf
        launch, submission = _launch(bench, clock)
        copy = _copy_rate(bench)
        multiply_add = _multiply_add_rate(bench, lambda: clock() < end)
        return Ceilings(copy, multiply_add, launch, submission, bench.source)
    finally:
        bench.close()


def _ramp_clocks(bench: _Bench, clock: Callable[[], float]) -> None:
    """Keep a GPU busy until it runs at full clock."""
    if bench.backend.target.profile is Profile.CPU:
        return
    kernel = multiply_add_kernel(64, *_CHAINS[-1], _TURNS)
    work = bench.work(kernel, [bench.buffer(_OPERANDS)], (_MAX_GROUPS // 4, 1, 1))
    end = clock() + CLOCK_RAMP
    while clock() < end:
        bench.once(work)


def _copy_rate(bench: _Bench) -> float:
    target = bench.backend.target
    goal = _COPY_BYTES_OF_CARDS if target.profile is Profile.DISCRETE else COPY_BYTES
    size = min(goal, target.max_binding_size) // 16384 * 16384
    source, result = bench.buffer(size), bench.buffer(size)
    rates = []
    for workgroup in (64, 256):
        for each in (1, 4):
            groups = -(-size // (16 * workgroup * each))
            rows = -(-groups // target.max_workgroups_per_dimension)
            width = -(-groups // rows)
            work = bench.work(copy_kernel(workgroup, each, width), (source, result), (width, rows, 1))
            rates.append(2 * size / bench.seconds(work))
    return max(rates)


def _multiply_add_rate(bench: _Bench, goes_on: Callable[[], bool]) -> float:
    """Return the best rate of kernels, of the first at least, as long as ``goes_on``."""
    ranges = {0: bench.buffer(_OPERANDS)}
    rates: list[float] = []
    groups = 64
    for workgroup in _WORKGROUPS:
        if workgroup > bench.backend.target.max_workgroup_invocations:
            continue
        for chains, steps in _CHAINS:
            if rates and not goes_on():
                break
            shader = bench.shader(multiply_add_kernel(workgroup, chains, steps, _TURNS), 1)
            bench.once(shader.bind(ranges, (1, 1, 1)))  # drivers translate at the first dispatch
            # As many groups as take long enough to be told from their launch; the next kernel starts with as many.
            while groups < _MAX_GROUPS and bench.once(shader.bind(ranges, (groups, 1, 1))) < _ROUND_SECONDS:
                groups *= 4
            seconds = bench.seconds(shader.bind(ranges, (groups, 1, 1)))
            rates.append(2.0 * 4 * chains * steps * _TURNS * groups * workgroup / seconds)
    return max(rates)


def _launch(bench: _Bench, clock: Callable[[], float]) -> tuple[float, float]:
    """Return the seconds of a launch among many, and of a single one with a wait."""
    work = bench.work(LAUNCH_KERNEL, (bench.buffer(16),), (1, 1, 1))
    single, many = bench.seconds(work), bench.seconds(*[work] * LAUNCHES)
    launch = max((many - single) / (LAUNCHES - 1), many / LAUNCHES / 10, 1e-9)
    times = []
    for _ in range(1 + ROUNDS):
        start = clock()
        bench.backend.wait(bench.backend.submit(work))
        times.append(clock() - start)
    return launch, min(times[1:])


def _of_host(clock: Callable[[], float]) -> Ceilings:
    """Measure the ceilings of NumPy by copies and matrix products."""

    def shortest(work: Callable[[], object]) -> float:
        times = []
        for _ in range(1 + ROUNDS):
            start = clock()
            work()
            times.append(clock() - start)
        return max(min(times[1:]), 1e-9)

    source = np.ones(COPY_BYTES // 4, np.float32)
    result = np.empty_like(source)
    matrix = np.ones((512, 512), np.float32)
    copy = 2 * source.nbytes / shortest(lambda: np.copyto(result, source))
    products = 2.0 * 512**3 / shortest(lambda: matrix @ matrix)
    tiny = np.ones(1, np.float32)
    launch = shortest(lambda: np.add(tiny, tiny))
    return Ceilings(copy, products, launch, launch, "wall clock")


FORMAT = 3
"""Version of the files and micro-benchmarks; other versions are measured again."""


def identity(info: AdapterInfo) -> dict[str, str | int]:
    """Return the key of ceilings: adapter, driver, and for CPU adapters the number of cores."""
    facts: dict[str, str | int] = {"backend": info.backend, "name": info.name, "driver": info.driver}
    if info.is_software:
        facts |= {"cores": os.cpu_count() or 1, "processor": platform.processor() or platform.machine()}
    return facts


def ceilings_file(info: AdapterInfo, folder: Path | None = None) -> Path:
    """Return the cache file of an adapter's ceilings. Raises FileNotFoundError if there is no cache folder."""
    digest = hashlib.sha256(json.dumps(identity(info), sort_keys=True).encode()).hexdigest()[:16]
    return (folder or cache_folder()) / "ceilings" / f"{digest}.json"


@dataclass(frozen=True)
class CachedCeilings:
    """Ceilings and their reliability.

    Attributes:
        ceilings: Measured ceilings.
        taken: Fraction of CPU time that other processes took during the measurement (``MachineLoad``).
    """

    ceilings: Ceilings
    taken: float

    @property
    def doubt(self) -> str:
        """Reason why the ceilings may be too low; empty if there is none."""
        if self.taken <= machine_load.BUSY:
            return ""
        return f"other processes took {100 * self.taken:.0f} % of the CPU during measurement, so they are too low"

    def best_with(self, other: CachedCeilings) -> CachedCeilings:
        """Return the higher rates and shorter times of both, with the lower load."""
        ours, theirs = self.ceilings, other.ceilings
        best = Ceilings(
            max(ours.copy, theirs.copy),
            max(ours.multiply_add, theirs.multiply_add),
            min(ours.launch, theirs.launch),
            min(ours.submission, theirs.submission),
            theirs.source,
        )
        return CachedCeilings(best, min(self.taken, other.taken))


_CLEARLY_LESS = 0.75
"""Fraction of the former CPU load below which it is worth measuring again."""


def load_ceilings(info: AdapterInfo, folder: Path | None = None) -> CachedCeilings | None:
    """Return the cached ceilings of an adapter, or None."""
    try:
        record = json.loads(ceilings_file(info, folder).read_text(encoding="utf-8"))
        if record["format"] != FORMAT or record["adapter"] != identity(info):
            return None
        return CachedCeilings(Ceilings.from_json(record["ceilings"]), float(record["taken"]))
    except (OSError, ValueError, KeyError, TypeError, InvalidArgument):
        return None


def save_ceilings(info: AdapterInfo, cached: CachedCeilings, folder: Path | None = None) -> None:
    """Cache the ceilings of an adapter. If the folder is not writable, they are measured again next time."""
    record = {"format": FORMAT, "adapter": identity(info), "ceilings": cached.ceilings.to_json(), "taken": cached.taken}
    with contextlib.suppress(OSError):
        path = ceilings_file(info, folder)
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as stream:
            stream.write(json.dumps(record, indent=2).encode())


def known_ceilings(
    info: AdapterInfo, measure: Callable[[], Ceilings], before: machine_load.MachineLoad, *, again: bool = False
) -> CachedCeilings:
    """Return the cached ceilings of an adapter, or measure and cache them.

    They are measured again if the machine was busy before and is now idle or much less busy. While it is busy, the best
    of both counts, since load only lowers ceilings. Raises as ``measure``.

    Args:
        info: The adapter.
        measure: Measures its ceilings.
        before: Current load of the machine.
        again: Whether to measure in any case.
    """
    cached = None if again else load_ceilings(info)
    if cached is None or (cached.doubt and before.taken <= max(machine_load.BUSY, _CLEARLY_LESS * cached.taken)):
        measured = measure()
        latest = CachedCeilings(measured, max(before.taken, machine_load.measure_load().taken))
        cached = latest if cached is None or not latest.doubt else cached.best_with(latest)
        save_ceilings(info, cached)
    return cached
