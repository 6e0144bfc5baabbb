"""Device memory that a language model needs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dmlgpu.common.errors import InvalidArgument
from dmlgpu.compiler.target import Profile
from dmlgpu.runtime.device import Device

if TYPE_CHECKING:
    from dmlgpu.frontends.generation.encoder_decoder import EncoderDecoderNetwork
    from dmlgpu.frontends.generation.language_model import LanguageConfig
    from dmlgpu.frontends.generation.network import StepNetwork

MAX_DEFAULT = 4096
"""Maximum default context, in tokens."""


def default_context(config: LanguageConfig) -> int:
    """Return the context that is used if none is requested."""
    return min(config.context_length, MAX_DEFAULT)


@dataclass(frozen=True)
class MemoryNeed:
    """Device memory of a model in bytes at its peak, estimated from the sizes of its tensors.

    Attributes:
        context: Tokens that the caches have room for.
        weights: Weights, in all layouts that kernels read.
        caches: Caches.
        growth: Temporary memory: the upload of a weight being laid out, or a cache being copied to a larger one.
        logits: Logits of a step.
        largest_weight: Bytes of the largest weight.
        largest_cache: Bytes of the largest cache.
    """

    context: int = 0
    weights: int = 0
    caches: int = 0
    growth: int = 0
    logits: int = 0
    largest_weight: int = 0
    largest_cache: int = 0

    @classmethod
    def of(
        cls, network: StepNetwork | EncoderDecoderNetwork, context: int, device: Device, batch: int = 1
    ) -> MemoryNeed:
        """Estimate the memory of a network.

        Args:
            network: The network.
            context: Tokens that the caches have room for.
            device: Device that runs it.
            batch: Number of prompts at the same time.
        """
        is_cpu = getattr(device.backend.target, "profile", None) is Profile.CPU
        caches = batch * network.cache_bytes(context)
        largest_cache = batch * context * max((cache.row_bytes for cache in network.caches), default=0)
        return cls(
            context,
            network.weight_bytes + (network.repeated_bytes if is_cpu else 0),
            caches,
            max(largest_cache // 2, network.largest_bytes - caches),
            4 * batch * network.vocabulary,
            network.largest_bytes,
            largest_cache,
        )

    @property
    def total(self) -> int:
        """Bytes in all."""
        return self.weights + self.caches + self.growth + self.logits

    def plus(self, other: MemoryNeed) -> MemoryNeed:
        """Return the memory of two models, of which one at a time is laid out.

        Args:
            other: Memory of the other model.
        """
        return replace(
            self,
            weights=self.weights + other.weights,
            caches=self.caches + other.caches,
            growth=max(self.growth, other.growth),
            logits=self.logits + other.logits,
        )

    def check(self, label: str, device: Device) -> None:
        """Raise InvalidArgument if the adapter cannot hold it."""
        largest = device.adapter.limits.get("max-buffer-size")  # larger tensors than a binding are bound in parts
        for subject, size in (("its largest weight", self.largest_weight), ("each cache", self.largest_cache)):
            if largest is not None and size > largest:
                advice = "; pass a shorter context" if subject == "each cache" else ""
                raise InvalidArgument(
                    f"{label}: does not fit '{device.adapter}': {subject} has {mebibytes(size)}, a buffer at most "
                    f"{mebibytes(largest)}{advice}"
                )
        available = getattr(device.backend, "memory_budget", None)
        if available is not None and self.total > available:
            raise InvalidArgument(
                f"{label}: does not fit '{device.adapter}': needs {self}, the memory budget is {mebibytes(available)}"
            )

    def __str__(self) -> str:
        """Return a phrase."""
        return (
            f"memory {mebibytes(self.total)}: weights {mebibytes(self.weights)}, caches of {self.context:,} tokens "
            f"{mebibytes(self.caches)}"
        )


def mebibytes(size: int) -> str:
    """Return a size as text."""
    return f"{size / 2**20:,.1f} MiB"
