"""The module ``torch_directml`` of Microsoft's wheel, on the device "dml".

``python -m dmlgpu.frontends.torch SCRIPT`` runs a script that imports it; ``--install`` makes it importable in the
environment, ``install()`` in the calling process. Devices are ``torch.device("dml", index)``, which PyTorch also calls
``privateuseone:index``; None and negative indices are the default device.
"""

from __future__ import annotations

import sys

import torch
from torch.nn import functional

from dmlgpu.frontends.torch import adapters
from dmlgpu.frontends.torch import device as _module

__all__ = [
    "apply_rotary_position_emb", "default_device", "device", "device_count", "device_name", "disable_tiled_resources",
    "gpu_memory", "has_float64_support", "install", "is_available", "mlp_llama", "mlp_phi2", "mlp_phi3",
    "multi_head_attention", "rmsnorm",
]  # fmt: skip


def device(device_id: int | None = None) -> torch.device:
    """Return the torch device of an adapter.

    Args:
        device_id: Index; defaults to None, the default device.

    Raises:
        RuntimeError: If there is no such adapter.
    """
    return adapters.torch_device(_index(device_id))


def _index(device_id: int | None) -> int:
    """Return the index of an adapter; None and negative numbers, ComfyUI's default, are the default device."""
    return adapters.index_from(default_device() if device_id is None or device_id < 0 else device_id)


def default_device() -> int:
    """Return the index of the default device."""
    return 0


def device_count() -> int:
    """Return the number of adapters."""
    return _module.device_count()


def device_name(device_id: int) -> str:
    """Return the name of an adapter."""
    return _module.device_name(_index(device_id))


def is_available() -> bool:
    """Return whether there is an adapter."""
    return _module.is_available()


def has_float64_support(device_id: int = 0) -> bool:
    """Return False: float64 is moved and cast only."""
    _index(device_id)
    return False


def gpu_memory(device_id: int = 0, mb_per_tile: int = 1) -> list[float]:
    """Return the share of each tile of a device's memory that tensors use.

    Args:
        device_id: Index of the adapter.
        mb_per_tile: Size of a tile in MiB.

    Returns:
        A number from 0 to 1 for each tile that tensors and kept memory reach.
    """
    device_id = _index(device_id)
    tile = mb_per_tile << 20
    used, reserved = _module.memory_allocated(device_id), _module.memory_reserved(device_id)
    return [min(max(used - start, 0) / tile, 1.0) for start in range(0, reserved, tile)]


def disable_tiled_resources(is_disabled: bool) -> None:
    """Do nothing: memory has no tiles."""


# ---- layers of language models, which Microsoft's samples call -------------------------------------------------------


def rmsnorm(x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    """Divide by the root of the mean square along the last axis, and scale.

    Args:
        x: {..., width}.
        weight: {width}.
        epsilon: Added to the mean square.
    """
    return functional.rms_norm(x, (x.shape[-1],), weight, epsilon)


def apply_rotary_position_emb(
    q: torch.Tensor,
    k: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    position: int,
    length: int,
    width: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotate the first elements of each head of queries and keys by their positions.

    Args:
        q: Queries {batch, heads, length, head size}.
        k: Keys, likewise.
        cos: Cosines {1, 1, positions, width}, whose first and second half are equal.
        sin: Sines, likewise.
        position: Position of the first token.
        length: Number of tokens.
        width: Number of elements that are rotated; element i goes with element i + width / 2.

    Returns:
        Rotated queries and keys.
    """
    cos, sin = (table[..., position : position + length, :width] for table in (cos, sin))

    def rotated(x: torch.Tensor) -> torch.Tensor:
        turned, rest = x[..., :width], x[..., width:]
        first, second = turned.chunk(2, dim=-1)
        turned = turned * cos + torch.cat((-second, first), dim=-1) * sin
        return torch.cat((turned, rest), dim=-1) if rest.shape[-1] else turned

    return rotated(q), rotated(k)


def multi_head_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    width: int,
    heads: int,
    past_key: torch.Tensor | None,
    past_value: torch.Tensor | None,
    mask: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Compute DirectML's MULTIHEAD_ATTENTION with a cache.

    Args:
        q: Queries {batch, length, width}.
        k: Keys, likewise.
        v: Values, likewise.
        width: Heads times head size.
        heads: Number of heads.
        past_key: Keys of earlier tokens {batch, heads, past, head size}; None for none.
        past_value: Values of earlier tokens, likewise.
        mask: Nonzero for keys that queries see; broadcasts to {batch, heads, length, past + length}.

    Returns:
        The result {batch, length, width}, and keys and values with the earlier ones.
    """
    q, k, v = (x.unflatten(-1, (heads, width // heads)).transpose(1, 2) for x in (q, k, v))
    k = k if past_key is None else torch.cat((past_key, k), dim=2)
    v = v if past_value is None else torch.cat((past_value, v), dim=2)
    result = functional.scaled_dot_product_attention(q, k, v, attn_mask=None if mask is None else mask != 0)
    return result.transpose(1, 2).flatten(2), k, v


def mlp_phi2(
    x: torch.Tensor,
    weight1: torch.Tensor,
    weight2: torch.Tensor,
    bias1: torch.Tensor | None = None,
    bias2: torch.Tensor | None = None,
) -> torch.Tensor:
    """Compute the feed-forward layer of Phi-2: two products, and the tanh form of GELU between them."""
    hidden = functional.gelu(functional.linear(x, weight1, bias1), approximate="tanh")
    return functional.linear(hidden, weight2, bias2)


def mlp_phi3(x: torch.Tensor, weight1: torch.Tensor, weight2: torch.Tensor) -> torch.Tensor:
    """Compute the feed-forward layer of Phi-3, whose first product has the gate, then the other factor."""
    gate, factor = functional.linear(x, weight1).chunk(2, dim=-1)
    return functional.linear(functional.silu(gate) * factor, weight2)


def mlp_llama(x: torch.Tensor, weight1: torch.Tensor, weight3: torch.Tensor, weight2: torch.Tensor) -> torch.Tensor:
    """Compute the feed-forward layer of Llama: ``weight1`` is that of the gate, ``weight2`` that of the result."""
    gate, factor = functional.linear(x, weight1), functional.linear(x, weight3)
    return functional.linear(functional.silu(gate) * factor, weight2)


def _hide_cuda() -> None:
    """Let a build of PyTorch for CUDA look like one for the CPU if there is no such GPU: ComfyUI and others take
    `torch.version.cuda` as a sign that there is one."""
    if torch.version.cuda is not None and not torch.cuda.is_available():
        torch.version.cuda = None


_hide_cuda()


def install() -> None:
    """Make ``import torch_directml`` in this process import this module."""
    sys.modules["torch_directml"] = sys.modules[__name__]
