"""Adapters: facts, features, limits and tuned choices. Imports little, so that listing adapters is fast."""

from __future__ import annotations

import enum
import functools
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dmlgpu.common.errors import InvalidArgument, counted, shown
from dmlgpu.compiler.sizes.arithmetic import settled


@dataclass(frozen=True)
class Tuned:
    """Immutable table of tuned choices, so that scheduling is a pure function of plan and target.

    Attributes:
        answers: Pairs of a question and its answer, such as ``product 1x512x512x512`` and ``register 16x2``. The caller
            validates and interprets the answer.
        ceilings: Pairs of the name of a measured rate and its value (``cards.GpuCard.measured``).
    """

    answers: tuple[tuple[str, str], ...] = ()
    ceilings: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "_known", dict(self.answers))
        object.__setattr__(self, "_hash", zlib.crc32(repr((self.answers, self.ceilings)).encode()))

    def __hash__(self) -> int:
        """Return the cached hash: programs are looked up by target often."""
        return self._hash  # type: ignore[attr-defined]

    @classmethod
    def of(cls, answers: Mapping[str, str], ceilings: Mapping[str, float] | None = None) -> Tuned:
        """Return the table of answers and measured rates, in canonical order."""
        return cls(tuple(sorted(answers.items())), tuple(sorted((ceilings or {}).items())))

    def with_answers(self, answers: Mapping[str, str]) -> Tuned:
        """Return the table with other answers and the same measured rates."""
        return Tuned.of(answers, dict(self.ceilings))

    def answer(self, question: str, possible: Callable[[], Sequence[str]]) -> str:
        """Return the answer to a question; empty if unknown.

        Args:
            question: Names a choice.
            possible: Lists the possible answers, the built-in choice first, for tuning.
        """
        return self._known.get(settled(question), "") if self.answers else ""  # type: ignore[attr-defined]


UNTUNED = Tuned()
"""Empty table: every choice is the built-in one."""


MAX_SLOTS = 15
"""Maximum number of resources of a kernel: the parameter block holds as many base offsets."""

MAX_BINDINGS = 64
"""Maximum number of bindings of a kernel, with those of resources that are bound in several parts."""

PARAMETER_BYTES = 4 * (MAX_SLOTS + 1)
"""Size of the parameter block of every kernel: base offsets in words, and the opaque zero. Dawn's immediates have no
more than 64 bytes."""


def api_of(backend: str) -> str:
    """Return a backend without the name of the WebGPU library: ``Vulkan`` of ``Dawn Vulkan``."""
    return backend.rpartition(" ")[2]


def _are(cls: type, values: Iterable[object]) -> bool:
    return all(isinstance(value, cls) for value in values)


@dataclass(frozen=True, repr=False)
class AdapterInfo:
    """Facts about an adapter, as printed by ``dmlgpu devices``.

    Attributes:
        name: Name, such as ``llvmpipe (LLVM 15.0.6, 256 bits)`` or ``numpy``.
        backend: ``Vulkan``, ``Metal``, ``D3D12``, ``OpenGL``, ``Browser`` or ``NumPy``; ``Dawn Vulkan`` and others if
            the WebGPU library is Dawn.
        kind: ``cpu``, ``integrated``, ``discrete`` or ``unknown``.
        driver: Driver and version.
        features: Compute features that dmlgpu can use.
        limits: Limits by their WebGPU names.

    Raises:
        InvalidArgument: If a field has the wrong type.
    """

    name: str
    backend: str
    kind: str
    vendor: str
    driver: str
    features: tuple[str, ...] = ()
    limits: dict[str, int] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        for name in ("name", "backend", "kind", "vendor", "driver"):
            self._check(name, "text", isinstance(getattr(self, name), str))
        features, limits = self.features, self.limits
        self._check("features", "a tuple of strings", isinstance(features, tuple) and _are(str, features))
        are_limits = isinstance(limits, dict) and _are(str, limits) and _are(int, limits.values())
        self._check("limits", "a dict of integers by name", are_limits)

    def _check(self, name: str, expected: str, holds: bool) -> None:
        if not holds:
            raise InvalidArgument(f"AdapterInfo: {name} must be {expected}, got {shown(getattr(self, name))}")

    @property
    def api(self) -> str:
        """The backend without the name of the WebGPU library."""
        return api_of(self.backend)

    @property
    def is_of_dawn(self) -> bool:
        """Whether the WebGPU library is Dawn, in this process."""
        return self.backend.startswith("Dawn ")

    @property
    def is_software(self) -> bool:
        """Whether the adapter is a software rasterizer, which runs on the CPU."""
        return self.kind == "cpu"

    @property
    def short_name(self) -> str:
        """Backend and name without versions: ``Vulkan: llvmpipe``, ``numpy``."""
        if self.backend == "NumPy":
            return self.name
        name = self.name.partition(" (")[0] if self.is_software else self.name
        return f"{self.backend}: {name}"

    def __str__(self) -> str:
        return f"{self.backend}: {self.name} ({self.driver})" if self.driver else f"{self.backend}: {self.name}"

    def __repr__(self) -> str:
        return f"<AdapterInfo '{self}': {self.kind}, {counted(len(self.features), 'feature')}>"


class Profile(enum.StrEnum):
    """Family of schedules."""

    CPU = "cpu"
    INTEGRATED = "integrated"
    DISCRETE = "discrete"


SCHEDULES: Mapping[str, Profile] = {"cpu": Profile.CPU, "gpu": Profile.DISCRETE}
"""Families that options name."""

SCHEDULES_VARIABLE = "DMLGPU_SCHEDULES"
"""Environment variable that selects one of them for all adapters."""


class Float16Encoding(enum.StrEnum):
    """Method of conversion from float32 to float16 in kernels."""

    SOFTWARE = "software"  # by integer arithmetic
    PACK = "pack"  # pack2x16float
    F16 = "f16"  # the type f16, where pack2x16float rounds towards zero


@dataclass(frozen=True)
class Float16Conversions:
    """Conversions between float16 and float32 that are exact on an adapter.

    Attributes:
        decodes: Whether ``unpack2x16float`` is exact, subnormal numbers included.
        encoding: The fastest conversion to float16 that rounds to nearest even, also to subnormal numbers and infinity.
    """

    decodes: bool = False
    encoding: Float16Encoding = Float16Encoding.SOFTWARE


SOFTWARE_FLOAT16 = Float16Conversions()
"""Conversions by integer arithmetic, which are exact everywhere."""


class Division(enum.StrEnum):
    """Method for correctly rounded quotients and square roots of float32 in kernels."""

    SOFTWARE = "software"  # by integer arithmetic
    FUSED = "fused"  # by the adapter's own operations, corrected by fused multiply-adds
    NATIVE = "native"  # by the adapter's own operations


COOPERATIVE = "cooperative-matrix"
"""Feature of adapters whose matrix units WGSL can use, by an extension."""


class MatrixDialect(enum.StrEnum):
    """Extension of WGSL for matrix units."""

    NAGA = "naga"  # wgpu_cooperative_matrix
    TINT = "tint"  # chromium_experimental_subgroup_matrix, the draft of the standard


@dataclass(frozen=True)
class Matrices:
    """Matrix units of an adapter: the lanes of a subgroup multiply matrices of float16 or float32, and sum in float32;
    or matrices of signed 8-bit integers, and sum in 32 bits.

    Attributes:
        rows, columns, steps: Size of the matrices: ``rows`` x ``steps`` by ``steps`` x ``columns``.
        block: Number of matrices along rows and columns whose sums a subgroup holds.
        lanes: Maximum subgroup size.
        dialect: How WGSL names the operations.
        turns: Whether kernels transpose operands on their way to workgroup memory if steps are not adjacent there,
            because loads of matrices would do it element by element.
        component: What is multiplied, as WGSL names the dtype: ``f16``, ``f32`` or ``i8``.
        floats: Matrix units for float32 that is not rounded; None if there are none that are faster than ordinary
            products.
        integers: Matrix units for integers; None likewise.
    """

    rows: int = 16
    columns: int = 16
    steps: int = 16
    block: int = 4
    lanes: int = 64
    dialect: MatrixDialect = MatrixDialect.NAGA
    turns: bool = True
    component: str = "f16"
    floats: Matrices | None = None
    integers: Matrices | None = None

    @property
    def size(self) -> str:
        """The size of the matrices, as Vulkan and Dawn write it: M x N x K."""
        return f"{self.rows} x {self.columns} x {self.steps}"

    @property
    def numbers(self) -> str:
        """NumPy's name of the dtype that is multiplied."""
        return {"f16": "float16", "f32": "float32", "i8": "int8"}[self.component]

    @property
    def element_bytes(self) -> int:
        """Bytes of an element in workgroup memory."""
        return {"f16": 2, "f32": 4, "i8": 1}[self.component]

    def divide_slabs(self, steps: int) -> bool:
        """Return whether the least slab in workgroup memory, of a number of steps, and units of four columns are whole
        matrices."""
        return steps % self.steps == 0 and self.columns % 4 == 0


MIN_LANES = 4
"""Minimum subgroup size guaranteed by WebGPU."""


@dataclass(frozen=True)
class Facts:
    """Facts of an adapter that scheduling and rendering depend on.

    Attributes:
        name: Name of the adapter, for messages.
        profile: Family of schedules.
        features: Enabled features by their WebGPU names: ``shader-int64``, ``shader-f64``, ``immediates`` ...
        backend, vendor, driver: As of ``AdapterInfo``.
        least_copy: Bytes from which a copy between buffers is faster than a kernel; None if none is.
        loop_limit: Iterations after which the driver silently ends a thread, or None.
        subgroup_lanes: Minimum subgroup size.
        float16: Conversions of float16 by the hardware.
        division: Method for correctly rounded quotients and square roots of float32.
        multiplies_words: Whether kernels may multiply words of four integers (``dot4I8Packed``): WGSL's language
            feature packed_4x8_integer_dot_product, which browsers may lack.
        matrices: Matrix units that are faster than ordinary products of float16; None if there are none.
        max_*: Limits of the adapter: buffers per kernel, workgroups per axis, threads, bytes.
    """

    name: str
    profile: Profile = Profile.CPU
    features: frozenset[str] = frozenset()
    backend: str = ""
    vendor: str = ""
    driver: str = ""
    least_copy: int | None = None
    loop_limit: int | None = None
    subgroup_lanes: int = MIN_LANES
    float16: Float16Conversions = SOFTWARE_FLOAT16
    division: Division = Division.SOFTWARE
    multiplies_words: bool = True
    matrices: Matrices | None = None
    max_storage_buffers: int = 8
    max_workgroups_per_dimension: int = 65535
    max_workgroup_invocations: int = 256
    max_workgroup_storage: int = 16384
    max_binding_size: int = 128 << 20

    def has(self, feature: str) -> bool:
        """Return whether a feature is enabled."""
        return feature in self.features

    @property
    def slots(self) -> int:
        """Maximum number of resources of a kernel."""
        return min(self.max_storage_buffers, MAX_SLOTS)

    @property
    def bindings(self) -> int:
        """Maximum number of bindings of a kernel, including those of resources in several parts."""
        return min(self.max_storage_buffers, MAX_BINDINGS)

    @property
    def moves_doubles(self) -> bool:
        """Return whether kernels access two words as one 64-bit number. CPU adapters do: they process vectors one
        component at a time."""
        return self.profile is Profile.CPU and self.has("shader-int64")

    @property
    def needs_many_invocations(self) -> bool:
        """Whether only many thousand invocations keep the adapter busy: GPUs wait for memory with some while others
        compute. CPU adapters have one thread per core, and gain by invocations that do more each."""
        return self.profile is not Profile.CPU

    @property
    def runs_in_lockstep(self) -> bool:
        """Whether a workgroup runs on the lanes of a vector unit, one step after the other: lanes should do the same,
        and read adjacent memory. CPU adapters do so; GPUs have many subgroups per workgroup, each for itself."""
        return self.profile is Profile.CPU

    @property
    def vectorizes_loads(self) -> bool:
        """Whether the lanes of a subgroup load memory together, as on GPUs. CPU adapters load lane by lane, and check
        each index: loads cost more than arithmetic, and those of whole units less than those of elements."""
        return self.profile is not Profile.CPU


@dataclass(frozen=True)
class Policies:
    """Rules that kernels of a device follow.

    Attributes:
        deterministic: Whether results must not depend on the order in which threads run.
        precise: Whether to exclude schedules that trade accuracy for speed: Winograd, float16 arithmetic. Implied by
            `deterministic`.
        checked: Whether kernels are compiled with all checks of wgpu; if False, without those that they do not need
            (``runtime.wgpu.checks``).
        preserves_padding: Whether operators may only change the elements of their outputs.
        specialized: Whether kernels have sizes in their source; if False, sizes are parameters (``wgsl.parameters``).
        varying: Whether sizes are known to vary: kernels that many sizes share are preferred to those that are a
            little faster for some.
    """

    deterministic: bool = False
    precise: bool = False
    checked: bool = True
    preserves_padding: bool = False
    specialized: bool = True
    varying: bool = False


@dataclass(frozen=True)
class Overrides:
    """Choices that override those of the cost model.

    Attributes:
        schedule: Name of a schedule (``transpose``, or ``map/transpose`` with the kind of step) that is taken for every
            step of a kind that has it, for tests and benchmarks. Empty selects automatically.
        excluded: Schedules that are not taken, by kind and name: ``map/transpose``.
        tuned: Choices found fastest on the adapter; ``schedule`` takes precedence.
    """

    schedule: str = ""
    excluded: frozenset[str] = frozenset()
    tuned: Tuned = UNTUNED


@dataclass(frozen=True)
class Target(Facts):
    """The adapter that kernels are compiled for, and how.

    Attributes:
        policies: Rules that kernels follow.
        overrides: Choices that override those of the cost model.
    """

    policies: Policies = Policies()
    overrides: Overrides = Overrides()

    def with_policies(self, **policies: bool) -> Target:
        """Return the target with other policies, by their names."""
        return replace(self, policies=replace(self.policies, **policies))

    def with_overrides(self, **overrides: Any) -> Target:
        """Return the target with other overrides, by their names."""
        return replace(self, overrides=replace(self.overrides, **overrides))

    @property
    def text(self) -> str:
        """Text that is the same for equal targets in every process."""
        listed = [sorted(names) for names in (self.features, self.overrides.excluded)]
        return f"{replace(self, features=frozenset()).with_overrides(excluded=frozenset())!r} {listed}"

    @property
    def moves_pairs(self) -> bool:
        """Whether kernels access eight elements at once if sizes allow it. Kernels of sizes that vary access at most
        four, so that multiples of eight share the kernels of others."""
        return self.moves_doubles and not self.policies.varying

    @property
    def keeps_digits(self) -> bool:
        """Return whether schedules that trade accuracy for speed are excluded."""
        return self.policies.precise or self.policies.deterministic

    def for_operators(self, half_precision: bool, preserve_padding: bool = False) -> Target:
        """Return the target for compiling operators.

        Args:
            half_precision: Whether they allow float16 arithmetic.
            preserve_padding: Whether they may only change the elements of outputs.
        """
        target = self if half_precision and not self.keeps_digits else self.exact
        return target.with_policies(preserves_padding=True) if preserve_padding else target

    @functools.cached_property
    def general(self) -> Target:
        """Return the target for kernels that read sizes from their parameters."""
        return self.with_policies(specialized=False)

    @functools.cached_property
    def varying(self) -> Target:
        """Return the target for kernels of a network whose sizes vary."""
        return self.with_policies(specialized=False, varying=True)

    @functools.cached_property
    def exact(self) -> Target:
        """Return the target without float16 arithmetic, for operators that do not allow it."""
        return replace(self, features=self.features - {"shader-f16"})
