"""Device memory that a language model needs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dmlgpu.common.errors import InvalidArgument
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
    """Device memory of a model in bytes, estimated from the sizes of its tensors.

    Attributes:
        context: Tokens that the caches have room for.
        weights: Weights.
        caches: Caches: those read by a step and those written by it.
        logits: Logits of a step.
        largest_weight: Bytes of the largest weight.
        largest_cache: Bytes of the largest cache.
    """

    context: int = 0
    weights: int = 0
    caches: int = 0
    logits: int = 0
    largest_weight: int = 0
    largest_cache: int = 0

    @classmethod
    def of(cls, network: StepNetwork | EncoderDecoderNetwork, context: int, batch: int = 1) -> MemoryNeed:
        """Estimate the memory of a network.

        Args:
            network: The network.
            context: Tokens that the caches have room for.
            batch: Number of prompts at the same time.
        """
        return cls(
            context,
            network.weight_bytes,
            batch * network.cache_bytes(context),
            4 * batch * network.vocabulary,
            network.largest_bytes,
            batch * context * max(cache.row_bytes for cache in network.caches),
        )

    def at(self, context: int) -> MemoryNeed:
        """Return the estimate for another context."""
        factor = context / self.context
        return replace(
            self, context=context, caches=int(self.caches * factor), largest_cache=int(self.largest_cache * factor)
        )

    @property
    def total(self) -> int:
        """Bytes in all."""
        return self.weights + self.caches + self.logits

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
