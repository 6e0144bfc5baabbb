"""Adapters: their facts, features and limits, and the tuned choices for them. Imports next to nothing, so that listing
adapters stays quick."""

from __future__ import annotations

import enum
import functools
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dmlgpu.common.errors import InvalidArgument, shown


@dataclass(frozen=True)
class Tuned:
    """An immutable table of choices, so that scheduling stays a function of plan and target alone.

    Attributes:
        answers: pairs of a question and its answer, such as ``product 1x512x512x512`` and ``register 16x2``. The
            caller validates and interprets the answer.
    """

    answers: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "_known", dict(self.answers))
        object.__setattr__(self, "_hash", zlib.crc32(repr(self.answers).encode()))

    def __hash__(self) -> int:
        """Return a number that was computed once: programs are looked up by their target again and again."""
        return self._hash  # type: ignore[attr-defined]

    @classmethod
    def of(cls, answers: Mapping[str, str]) -> Tuned:
        """Return the table of some answers, whatever their order."""
        return cls(tuple(sorted(answers.items())))

    def answer(self, question: str, possible: Callable[[], Sequence[str]]) -> str:
        """Return the answer to a question; empty where it is not known.

        Args:
            question: about one choice.
            possible: lists the answers there are, the built-in choice first, for who tries them all.
        """
        return self._known.get(question, "")  # type: ignore[attr-defined]


UNTUNED = Tuned()
"""No answers: every choice is the built-in one."""


MAX_SLOTS = 8
"""Slots of a kernel, at most: the parameter block holds as many base offsets."""

PARAMETER_BYTES = 48
"""Size of the parameter block every kernel reads: eight base offsets in words, the opaque zero, padding."""


def _are(cls: type, values: Iterable[object]) -> bool:
    return all(isinstance(value, cls) for value in values)


@dataclass(frozen=True)
class AdapterInfo:
    """Facts about an adapter, as ``dmlgpu devices`` prints them.

    Attributes:
        name: what a person would call it: ``llvmpipe (LLVM 15.0.6, 256 bits)``, ``numpy``.
        backend: ``Vulkan``, ``Metal``, ``D3D12``, ``OpenGL``, ``Browser`` or ``NumPy``.
        kind: ``cpu``, ``integrated``, ``discrete`` or ``unknown``.
        driver: driver and version text.
        features: compute features that dmlgpu uses where they exist.
        limits: the adapter's limits under WebGPU's names.

    Raises:
        InvalidArgument: a field is of the wrong kind.
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
        self._check("features", "a tuple of texts", isinstance(features, tuple) and _are(str, features))
        are_limits = isinstance(limits, dict) and _are(str, limits) and _are(int, limits.values())
        self._check("limits", "a dict of integers by name", are_limits)

    def _check(self, name: str, expected: str, holds: bool) -> None:
        if not holds:
            raise InvalidArgument(f"AdapterInfo: {name} must be {expected}, got {shown(getattr(self, name))}")

    @property
    def is_software(self) -> bool:
        """Whether the adapter is a software rasterizer on the host's CPU."""
        return self.kind == "cpu"

    def __str__(self) -> str:
        return f"{self.backend}: {self.name} ({self.driver})" if self.driver else f"{self.backend}: {self.name}"


class Profile(enum.StrEnum):
    """Which family of schedules suits an adapter."""

    CPU = "cpu"
    INTEGRATED = "integrated"
    DISCRETE = "discrete"


FEWEST_LANES = 4
"""Invocations that every subgroup has at least, as WebGPU guarantees."""


@dataclass(frozen=True)
class Target:
    """Features, limits and choices of an adapter, as schedules and rendering see them.

    Attributes:
        name: the adapter's name, for messages.
        profile: the family of schedules.
        features: features in use, under WebGPU's names: ``shader-int64``, ``shader-f64``, ``immediates`` ...
        deterministic: whether results must not depend on the order in which invocations run.
        precise: whether schedules that trade digits for speed are left out: Winograd's filtering, native 16-bit
            arithmetic. A deterministic target leaves them out too.
        loop_limit: iterations after which the driver silently stops an invocation, or None.
        subgroup_lanes: invocations that every subgroup has at least.
        preserves_padding: whether operators change no bit of their outputs but those of the elements.
        least_copy: bytes from which the driver copies between buffers faster than a kernel does, or None: never.
        schedule: the name of the schedule that operators with several shall take in place of the one they would choose
            (matrix products: see ``schedule.gemm_choice``); for tests and benchmarks. Empty: they choose.
        tuned: choices that were found fastest on the adapter, in place of the built-in ones; ``schedule`` goes first.
        max_*: the adapter's limits: buffers per kernel, workgroups per axis, invocations, bytes.
    """

    name: str
    profile: Profile = Profile.CPU
    features: frozenset[str] = frozenset()
    deterministic: bool = False
    precise: bool = False
    preserves_padding: bool = False
    least_copy: int | None = None
    loop_limit: int | None = None
    subgroup_lanes: int = FEWEST_LANES
    schedule: str = ""
    tuned: Tuned = UNTUNED
    max_storage_buffers: int = 8
    max_workgroups_per_dimension: int = 65535
    max_workgroup_invocations: int = 256
    max_workgroup_storage: int = 16384
    max_binding_size: int = 128 << 20

    def has(self, feature: str) -> bool:
        """Return whether a feature is in use."""
        return feature in self.features

    @property
    def keeps_digits(self) -> bool:
        """Return whether schedules that trade digits for speed are left out."""
        return self.precise or self.deterministic

    @property
    def moves_doubles(self) -> bool:
        """Return whether kernels read and write two words as one 64-bit number: CPU adapters, which move what lies in
        vectors component by component, for each invocation."""
        return self.profile is Profile.CPU and self.has("shader-int64")

    def for_operators(self, half_precision: bool, preserve_padding: bool = False) -> Target:
        """Return the target that operators are compiled for.

        Args:
            half_precision: whether they allow native 16-bit arithmetic.
            preserve_padding: whether what lies beside the elements of outputs stays as it is.
        """
        target = self if half_precision and not self.keeps_digits else self.exact
        return replace(target, preserves_padding=True) if preserve_padding else target

    @functools.cached_property
    def exact(self) -> Target:
        """The same without native 16-bit arithmetic: what operators are lowered for unless they allow it."""
        return replace(self, features=self.features - {"shader-f16"})
