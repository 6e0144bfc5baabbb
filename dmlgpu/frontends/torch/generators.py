"""Random number state of each device and of generators: a seed, and the number of operators that have drawn from it.

PyTorch has no hook for generators of a device written in Python, so `torch.Generator` is replaced by a subclass, which
returns PyTorch's own generators for other devices.
"""

from __future__ import annotations

import secrets
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import torch

from dmlgpu.frontends.torch import adapters
from dmlgpu.frontends.torch.internals import generator_address
from dmlgpu.runtime.device import Device
from dmlgpu.tensors.tensor import Tensor

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
        generator: A generator to draw the seed from instead, of this device or of the CPU; None for the device's state.

    Raises:
        RuntimeError: If the generator is of another device.
    """
    ours = None if generator is None else _generators.get(generator_address(generator))
    if ours is not None:
        return ours._next_seed(adapters.index_of(device))
    if generator is not None:
        return int(torch.randint(0, 1 << 62, (), generator=generator))
    index = adapters.index_of(device)
    with _LOCK:
        seed, offset = _STATES.by_index.get(index, (_STATES.seed, 0))
        _STATES.by_index[index] = seed, offset + 1
    return _mixed(seed, offset)


class Draws:
    """Counter of the draws of a call while it is recorded.

    Attributes:
        count: The number.
    """

    def __init__(self) -> None:
        self.count = 0


_current: ContextVar[Draws | None] = ContextVar("dmlgpu_torch_draws", default=None)

DRAWING = threading.RLock()
"""Held from the moment that states are written until the work that reads them is enqueued."""

_memory: dict[tuple[Device, int], Tensor] = {}  # bounded by the devices and by the draws of an operator


@contextmanager
def counting_draws() -> Iterator[Draws]:
    """Count the draws of this thread inside the block."""
    token = _current.set(Draws())
    try:
        yield _current.get()  # type: ignore[misc]
    finally:
        _current.reset(token)


def next_state(device: Device, generator: torch.Generator | None) -> Tensor:
    """Return the state of the next draw as RANDOM_GENERATOR reads it. Call with ``DRAWING`` held.

    It lies in memory that later draws write again: that of the first draw of a call, or of the second and so on, so
    that a recorded call reads the state that was written before it.
    """
    draws = _current.get()
    number = 0 if draws is None else draws.count
    write_state(device, number, generator)
    if draws is not None:
        draws.count += 1
    return _memory[device, number]


def write_state(device: Device, number: int, generator: torch.Generator | None) -> None:
    """Write the state of a draw of a call, by its number: a counter of 0 and the next seed."""
    words = np.array([0, 0, next_seed(device, generator)], np.uint64).view(np.uint32)
    tensor = _memory.get((device, number))
    if tensor is None:
        _memory[device, number] = Tensor(words, device=device)
    else:
        device._state.call(device._state.backend.write, tensor.buffer._memory, 0, words.view(np.uint8))


def _mixed(seed: int, offset: int) -> int:
    """Return the seed of an operator by splitmix64."""
    value = (seed + (offset + 1) * 0x9E3779B97F4A7C15) & _MASK
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
    return _as_bytes(*_STATES.by_index.get(index, (_STATES.seed, 0)))


def _as_bytes(seed: int, offset: int) -> torch.Tensor:
    raw = seed.to_bytes(8, "little") + offset.to_bytes(8, "little")
    return torch.tensor(list(raw), dtype=torch.uint8, device="cpu")


def set_state(state: Any, index: int) -> None:
    """Set the state of a device to one that ``state_of`` returned.

    Raises:
        RuntimeError: If it is not a CPU tensor of 16 bytes.
    """
    numbers = _of_bytes(state, "set_rng_state: new_state", "get_rng_state")
    with _LOCK:
        _STATES.by_index[index] = numbers


def _of_bytes(state: Any, name: str, source: str) -> tuple[int, int]:
    if not isinstance(state, torch.Tensor) or state.dtype is not torch.uint8 or state.numel() != _STATE_BYTES:
        raise RuntimeError(f"{name} must be a torch.ByteTensor of 16 bytes, as {source} returns")
    raw = bytes(state.tolist())
    return int.from_bytes(raw[:8], "little"), int.from_bytes(raw[8:], "little")


# ---- torch.Generator -------------------------------------------------------------------------------------------------

_Original: Any = torch.Generator
"""PyTorch's own class, before it is replaced."""


class _GeneratorClass(type(_Original)):  # type: ignore[misc]
    """Type of `Generator`, of which all of PyTorch's generators are instances."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _Original)


class Generator(_Original, metaclass=_GeneratorClass):
    """``torch.Generator``; one of the device has a seed and counts the operators that draw from it.

    Args:
        device: Device of the numbers; defaults to ``"cpu"``. For other devices than this one, PyTorch's own generator
            is returned.
    """

    _seed: int
    _offset: int
    _device: torch.device

    def __new__(cls, device: Any = "cpu") -> Any:
        resolved = torch.device("cpu" if device is None else device)
        if resolved.type != adapters.NAME:
            return _Original(resolved)
        generator = _Original.__new__(cls, "cpu")  # draws for tensors of the CPU, such as orders of a DataLoader
        generator._device = adapters.torch_device(adapters.index_from(resolved))
        _generators[generator_address(generator)] = generator
        return generator.manual_seed(_DEFAULT_SEED)

    @property
    def device(self) -> torch.device:
        """Device of the numbers."""
        return self._device

    def manual_seed(self, seed: int) -> Generator:
        """Set the seed, and return the generator."""
        super().manual_seed(seed)
        self._seed, self._offset = int(seed) & _MASK, 0
        return self

    def seed(self) -> int:
        """Set the seed to a random number, and return it."""
        seed = secrets.randbits(63)
        self.manual_seed(seed)
        return seed

    def initial_seed(self) -> int:
        """Return the seed."""
        return self._seed

    def get_state(self) -> torch.Tensor:
        """Return the state, as a tensor of bytes; that of a device has the same format."""
        return _as_bytes(self._seed, self._offset)

    def set_state(self, new_state: torch.Tensor) -> Generator:
        """Set the state to one that `get_state` returned; numbers for tensors of the CPU begin again."""
        seed, offset = _of_bytes(new_state, "Generator.set_state: new_state", "get_state")
        self.manual_seed(seed)
        self._offset = offset
        return self

    def get_offset(self) -> int:
        """Return the number of operators that have drawn."""
        return self._offset

    def set_offset(self, offset: int) -> Generator:
        """Set the number of operators that have drawn."""
        self._offset = int(offset)
        return self

    def clone_state(self) -> Generator:
        """Return a generator with the same state."""
        return Generator(self._device).set_state(self.get_state())

    graphsafe_get_state = clone_state

    def graphsafe_set_state(self, other: Generator) -> Generator:
        """Set the state to that of another generator."""
        return self.set_state(other.get_state())

    def __reduce__(self) -> Any:
        return Generator, (str(self._device),), self.get_state()

    __setstate__ = set_state

    def _next_seed(self, index: int) -> int:
        if index != self._device.index:
            raise RuntimeError(f"Expected a 'dml:{index}' generator device but found '{self._device}'")
        with _LOCK:
            self._offset += 1
        return _mixed(self._seed, self._offset - 1)


_generators: weakref.WeakValueDictionary[int, Generator] = weakref.WeakValueDictionary()
"""Generators of the device by the address of PyTorch's object, for kernels are passed another wrapper of it."""

_DEFAULT_SEED = 67280421310721
"""Seed of new generators, as in PyTorch."""


def register() -> None:
    """Replace ``torch.Generator``."""
    torch.Generator = Generator  # type: ignore[misc]
