"""Random number state of each device: a seed, and the number of operators that have drawn from it."""

from __future__ import annotations

import secrets
import threading
from typing import Any

import torch

from dmlgpu.frontends.torch import adapters
from dmlgpu.runtime.device import Device
from dmlgpu.tensors.recorded_call import refuse_repetition

_MASK = (1 << 64) - 1
_LOCK = threading.Lock()
_STATE_BYTES = 16


class _States:
    """Seed and offset by device index; devices without a state of their own begin with the common seed."""

    def __init__(self) -> None:
        self.seed = secrets.randbits(63)
        self.by_index: dict[int, tuple[int, int]] = {}


_STATES = _States()


def next_seed(device: Device, generator: torch.Generator | None = None) -> int:
    """Return the seed, of 64 bits, of the next operator that draws random numbers on a device.

    Args:
        device: The dmlgpu device; each has its own state.
        generator: A CPU generator to draw the seed from instead; None for the device's state.
    """
    refuse_repetition()
    if generator is not None:
        return int(torch.randint(0, 1 << 62, (), generator=generator))
    index = adapters.index_of(device)
    with _LOCK:
        seed, offset = _STATES.by_index.get(index, (_STATES.seed, 0))
        _STATES.by_index[index] = seed, offset + 1
    return _mixed(seed + (offset + 1) * 0x9E3779B97F4A7C15)


def _mixed(value: int) -> int:
    """Mix the bits of a number by the finalizer of splitmix64."""
    value &= _MASK
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & _MASK
    return value ^ (value >> 31)


def set_seed(seed: int, index: int | None = None) -> None:
    """Set the seed of one device, or of all."""
    seed = int(seed) & _MASK
    with _LOCK:
        if index is None:
            _STATES.seed = seed
            _STATES.by_index.clear()
        else:
            _STATES.by_index[index] = seed, 0


def seed_of(index: int) -> int:
    """Return the seed of a device."""
    return _STATES.by_index.get(index, (_STATES.seed, 0))[0]


def state_of(index: int) -> torch.Tensor:
    """Return the state of a device as a CPU tensor of bytes."""
    seed, offset = _STATES.by_index.get(index, (_STATES.seed, 0))
    raw = seed.to_bytes(8, "little") + offset.to_bytes(8, "little")
    return torch.tensor(list(raw), dtype=torch.uint8)


def set_state(state: Any, index: int) -> None:
    """Set the state of a device to one that ``state_of`` returned.

    Raises:
        RuntimeError: If it is not a CPU tensor of 16 bytes.
    """
    if not isinstance(state, torch.Tensor) or state.dtype is not torch.uint8 or state.numel() != _STATE_BYTES:
        raise RuntimeError("set_rng_state: new_state must be a torch.ByteTensor of 16 bytes, as get_rng_state returns")
    raw = bytes(state.tolist())
    with _LOCK:
        _STATES.by_index[index] = int.from_bytes(raw[:8], "little"), int.from_bytes(raw[8:], "little")
