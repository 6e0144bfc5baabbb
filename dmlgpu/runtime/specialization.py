"""Specialization: which kernels have tensor sizes as constants, and which are shared by all sizes.

A kernel whose sizes are constants runs a few percent faster on CPUs; one that reads them from its parameters (see
``compiler.wgsl.parameters``) is compiled once for all sizes. Under ``auto``, constants never cost a pipeline more. A
source is shared if its sizes are known to vary (a model declares them as symbolic, or a network of the kind had
others), if one program uses it with several sizes, or if it was used with other sizes before. Shared kernels get
constants once they have proved hot (``wgpu.tiers``).
"""

from __future__ import annotations

import enum
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from dmlgpu.common.cache import Cache, CacheLimits
from dmlgpu.common.errors import InvalidArgument, shown

if TYPE_CHECKING:  # the command devices lists adapters without them
    from dmlgpu.compiler.program import KernelSource, Program

SPECIALIZE_VARIABLE: Final = "DMLGPU_SPECIALIZE"

_SOURCES: Final = CacheLimits(entries=4096, size=4096)


class Specialize(enum.StrEnum):
    """Policy for compiling kernels with their sizes as constants."""

    AUTO = "auto"  # for a source that is used with one set of sizes
    ALWAYS = "always"
    NEVER = "never"

    @classmethod
    def of(cls, value: object) -> Specialize:
        """Return the policy named by an argument of ``Device``; for None, that of the environment variable
        DMLGPU_SPECIALIZE, else AUTO.

        Raises:
            InvalidArgument: there is no such policy.
        """
        source, name = "Device: specialize", value
        if value is None:
            source, name = f"the environment variable {SPECIALIZE_VARIABLE}", os.environ.get(SPECIALIZE_VARIABLE, "")
            name = name.strip().lower() or cls.AUTO
        if not isinstance(name, str) or name not in list(cls):
            raise InvalidArgument(f"{source} must be one of {', '.join(cls)}, got {shown(name)}")
        return cls(name)


class Specializer:
    """Applies a policy on one device. Thread-safe; the decision for a kernel holds as long as its source is cached."""

    def __init__(self, policy: Specialize = Specialize.ALWAYS):
        self.policy = policy
        self._first_parameters: Cache[int, tuple[int, ...]] = Cache(_SOURCES)

    def specialized(self, program: Program) -> Program:
        """Return a program with constants in place of parameters in the kernels that the policy selects. Those that run
        at initialization stay as they are."""
        if self.policy is not Specialize.AUTO:
            return program
        varying = {kernel.source for kernel in program.kernels if kernel.varies}
        by_source: dict[KernelSource, set[tuple[int, ...]]] = {source: set() for source in varying}
        for kernel in program.kernels:
            if kernel.parameters and kernel.source not in varying:
                by_source.setdefault(kernel.source, set()).add(kernel.parameters)
        special = {source for source, parameters in by_source.items() if self._is_special(hash(source), parameters)}
        kernels = [kernel.with_constants if kernel.source in special else kernel for kernel in program.kernels]
        return replace(program, kernels=tuple(kernels))

    def _is_special(self, source: int, parameters: set[tuple[int, ...]]) -> bool:
        """Return whether these are the first and only parameters seen for a source; remember the first ones, or that
        there were several."""
        own = next(iter(parameters)) if len(parameters) == 1 else ()
        return self._first_parameters.get_or_make(source, lambda: own, lambda _: 1) == own != ()
