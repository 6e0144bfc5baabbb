"""Functions of shaders/lib on an adapter, and their errors."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dmlgpu.compiler import wgsl
from dmlgpu.compiler.plan import Role
from dmlgpu.compiler.program import Kernel, Program, Slot
from dmlgpu.compiler.wgsl.linker import link
from dmlgpu.conformance.accuracy.functions import TINY, Doubles, Function
from dmlgpu.conformance.accuracy.inputs import LARGEST, PER_EXPONENT, Floats, samples
from dmlgpu.runtime.executor import Range, Resources, ShaderBackend

WORKGROUP = 64
ROW = 32768  # workgroups in one row of a grid


def kernel(function: str, operands: int, units: int, immediates: bool, prelude: str = "") -> str:
    """A shader that applies a function, of the library or of the prelude, to blocks of four numbers."""
    head = wgsl.templates.render("access/head", buffers=["vec4<f32>"] * (operands + 1), immediates=immediates)
    names = [f"v{number}" for number in range(operands)]
    loads = "".join(f"    let {name} = buffer{number}[i];\n" for number, name in enumerate(names))
    lanes = ", ".join(f"{function}({', '.join(f'{name}.{lane}' for name in names)})" for lane in "xyzw")
    return link(
        f"{head}{prelude}@compute @workgroup_size({WORKGROUP})\n"
        "fn main(@builtin(global_invocation_id) id: vec3<u32>) {\n"
        f"    let i = id.x + id.y * {ROW * WORKGROUP}u;\n"
        f"    if (i >= {units}u) {{ return; }}\n{loads}"
        f"    buffer{operands}[i] = vec4<f32>({lanes});\n}}\n"
    )


class Run:
    """A function applied to arrays on one adapter, again and again."""

    def __init__(self, backend: ShaderBackend, function: str, operands: Sequence[Floats], prelude: str = ""):
        self.backend, self.size = backend, operands[0].nbytes
        buffers = [backend.create_buffer(self.size, function) for _ in range(len(operands) + 1)]
        self._ranges = [Range(buffer, 0, self.size) for buffer in buffers]
        for bound, operand in zip(self._ranges, operands, strict=False):
            backend.write(bound.buffer, 0, operand.view(np.uint8).ravel())
        units = operands[0].size // 4
        immediates = backend.target.has("immediates")
        groups = -(-units // WORKGROUP)
        grid = (min(groups, ROW), -(-groups // ROW), 1)
        slots = tuple(Slot(Role.INPUT, number, 0, self.size) for number in range(len(self._ranges)))
        text = kernel(function, len(operands), units, immediates, prelude)
        shader = Kernel(function, text, slots, grid)
        program = Program(function, (shader,), immediates=immediates)
        self.kernels = program.summaries
        self._work = backend.prepare(program).bind(Resources(tuple(self._ranges), ()))

    def __call__(self, _: int = 0) -> None:
        """Apply it once and wait."""
        self.backend.wait(self.backend.submit(self._work))

    def result(self) -> Floats:
        """What the last call left."""
        return self.backend.read(self._ranges[-1].buffer, 0, self.size).view(np.float32).copy()

    def close(self) -> None:
        """Give the memory back."""
        for bound in self._ranges:
            self.backend.destroy_buffer(bound.buffer)


def evaluate(backend: ShaderBackend, function: str, *operands: Floats, prelude: str = "") -> Floats:
    """The values of a function on an adapter: of the library, of the prelude or built in. Sizes are multiples of 4."""
    with contextlib.closing(Run(backend, function, operands, prelude)) as run:
        run()
        return run.result()


def flushes(backend: ShaderBackend) -> bool:
    """Whether the adapter's arithmetic turns subnormals into zeros."""
    subnormal = np.full(4, 1e-40, np.float32)
    return not evaluate(backend, "sqrt", subnormal).all()


def true_values(function: Function, operands: Sequence[Floats]) -> Doubles:
    """The function in float64."""
    with np.errstate(all="ignore"):
        return np.asarray(function.true(*(operand.astype(np.float64) for operand in operands)), np.float64)


def errors(computed: Floats, true: Doubles, flushed: bool = False) -> Doubles:
    """Errors in ULP; infinite where a special value or a zero's sign is wrong.

    Args:
        computed: values on an adapter.
        true: values in float64.
        flushed: whether zeros are as good as subnormals.
    """
    with np.errstate(all="ignore"):
        rounded = true.astype(np.float32)
        # NumPy's spacing of the largest number is infinite; that of 2^127 is the same and isn't.
        unit = np.spacing(np.clip(np.nan_to_num(np.abs(rounded)), TINY, 2.0**127).astype(np.float32)).astype(np.float64)
        wide = computed.astype(np.float64)
        reached = np.where(np.isinf(wide), np.copysign(2.0**128, wide), wide)
        goal = np.where(np.abs(true) > 2.0**128, np.copysign(2.0**128, true), true)
        error = np.abs(reached - goal) / unit
    same = (np.isnan(computed) & np.isnan(true)) | ((computed == true) & (np.signbit(computed) == np.signbit(true)))
    special_value = ~np.isfinite(true) | (true == 0.0) | np.isnan(computed)
    error = np.where(same, 0.0, np.where(special_value, np.inf, error))
    if flushed:
        error[(np.abs(true) < TINY) & (computed == 0)] = 0.0
    return error


@dataclass(frozen=True)
class Measured:
    """What one function does on one adapter.

    Attributes:
        error: in ULP, per input.
        flushed: whether the adapter's arithmetic turns subnormals into zeros, which then count as right.
        kernels: what ran (``Program.summaries``).
    """

    function: Function
    error: Doubles
    operands: tuple[Floats, ...]
    computed: Floats
    true: Doubles
    flushed: bool = False
    kernels: tuple[str, ...] = ()

    @property
    def max(self) -> float:
        """The largest error, in ULP."""
        return float(self.error.max())

    @property
    def mean(self) -> float:
        """The mean error in ULP, of the inputs whose result is an ordinary number other than an exact zero."""
        counted = np.isfinite(self.true) & (self.true != 0) & (np.abs(self.true) <= LARGEST) & np.isfinite(self.error)
        return float(self.error[counted].mean()) if counted.any() else 0.0

    @property
    def worst_index(self) -> int:
        """Where the error is largest."""
        return int(self.error.argmax())

    @property
    def curve(self) -> tuple[tuple[int, float], ...]:
        """The largest error for every binary exponent of the (first) input; -127 for subnormals."""
        sizes = np.abs(self.operands[0])
        counted = np.isfinite(sizes) & (sizes > 0)
        exponents = np.maximum(np.frexp(sizes[counted])[1] - 1, -127)
        largest = np.full(256, -1.0)
        np.maximum.at(largest, exponents + 127, self.error[counted])
        return tuple((biased - 127, float(error)) for biased, error in enumerate(largest) if error >= 0)

    @property
    def worst(self) -> str:
        """The input with the largest error."""
        given = ", ".join(f"{float(operand[self.worst_index])!r}" for operand in self.operands)
        computed, true = float(self.computed[self.worst_index]), float(self.true[self.worst_index])
        return f"{self.function.name}({given}) = {computed!r}, true {true!r}"


def measure(backend: ShaderBackend, function: Function, count: int = PER_EXPONENT) -> Measured:
    """The errors of a function on an adapter, with ``count`` numbers of every exponent and sign."""
    operands = samples(function, count)
    with contextlib.closing(Run(backend, function.name, operands)) as run:
        run()
        computed = run.result()
    true = true_values(function, operands)
    if function.name in ("min_f32", "max_f32"):
        computed[computed == 0], true[true == 0] = 0.0, 0.0  # which of two zeros is smaller, NumPy leaves open
    if not flushes(backend):
        return Measured(function, errors(computed, true), operands, computed, true, kernels=run.kernels)
    of_zeros = true_values(function, [np.where(np.abs(x) < TINY, np.copysign(np.float32(0), x), x) for x in operands])
    error = np.minimum(errors(computed, true, flushed=True), errors(computed, of_zeros, flushed=True))
    return Measured(function, error, operands, computed, true, flushed=True, kernels=run.kernels)
