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
from dmlgpu.tensors.recorded_call import Place, refuse_repetition
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
    position = _advanced(device, generator, 1)
    return _cpu_seed(generator) if position is None else _mixed(*position)


def _advanced(device: Device, generator: torch.Generator | None, count: int) -> tuple[int, int] | None:
    """Return seed and offset of the next draws of a device or a generator, and count these; None for generators of the
    CPU. Raises as ``next_seed``."""
    if generator is not None:
        ours = _generators.get(generator_address(generator))
        return None if ours is None else ours._advanced(adapters.index_of(device), count)
    index = adapters.index_of(device)
    with _LOCK:
        seed, offset = _STATES.by_index.get(index, (_STATES.seed, 0))
        _STATES.by_index[index] = seed, offset + count
    return seed, offset


def _cpu_seed(generator: torch.Generator | None) -> int:
    return int(torch.randint(0, 1 << 62, (), generator=generator))


class Draws:
    """The draws of a call while it is recorded.

    Attributes:
        count: Their number.
        places: Memory of the states, and the first byte of the first one; empty without draws.
    """

    def __init__(self) -> None:
        self.count = 0
        self.places: list[Place] = []


_current: ContextVar[Draws | None] = ContextVar("dmlgpu_torch_draws", default=None)

DRAWING = threading.RLock()
"""Held from the moment that states are taken until the work that reads them is enqueued."""

_SLOTS, _SLOT_BYTES = 16, 256
"""States in memory, which one write brings there, and the distance at which every adapter binds them."""

_RECORDED_DRAWS = 4
"""Minimum number of rows from the first draw of a call to the end of the table, while the call is recorded."""


class _StateTable:
    """Memory of the states of the next draws from one seed.

    Args:
        device: The device.

    Attributes:
        tensor: The memory; a row has a state as RANDOM_GENERATOR reads it.
    """

    def __init__(self, device: Device):
        self._words = np.zeros((_SLOTS, _SLOT_BYTES // 8), np.uint64)
        self.tensor = Tensor(self._words.view(np.uint32), device=device)
        self._seed: int | None = None
        self._first = 0  # offset of the draw of the first row

    def take(self, generator: torch.Generator | None, count: int, room: int) -> int:
        """Return the row of the state of the next draw, which those of the others follow, and write them if they are
        not there.

        Args:
            generator: As of ``next_seed``.
            count: Number of draws.
            room: Minimum number of states from this row on.
        """
        device = self.tensor.device
        position = _advanced(device, generator, count)
        if position is None:
            self._seed = None
            self._write([_cpu_seed(generator) for _ in range(count)])
            return 0
        seed, offset = position
        row = offset - self._first
        if seed != self._seed or not 0 <= row <= _SLOTS - room:
            self._write([_mixed(seed, offset + number) for number in range(_SLOTS)])
            self._seed, self._first, row = seed, offset, 0
        return row

    def _write(self, seeds: list[int]) -> None:
        """Write states from the first row on: a counter of 0 and a seed."""
        self._words[: len(seeds), 2] = seeds
        state, written = self.tensor.device._state, self._words[: len(seeds)].reshape(-1).view(np.uint8)
        state.call(state.backend.write, self.tensor.buffer._memory, 0, written)


_tables: dict[Device, _StateTable] = {}  # bounded by the devices


def _table_of(device: Device) -> _StateTable:
    table = _tables.get(device)
    return _tables.setdefault(device, _StateTable(device)) if table is None else table


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

    Later draws write its memory again. A recorded call reads the states of its draws from rows that follow each other.
    """
    draws, table = _current.get(), _table_of(device)
    is_first = draws is not None and not draws.count
    row = table.take(generator, 1, _RECORDED_DRAWS if is_first else 1)
    if draws is not None:
        place = table.tensor.buffer._memory, row * _SLOT_BYTES
        if is_first:
            draws.places = [place]
        elif place[1] != draws.places[0][1] + draws.count * _SLOT_BYTES:
            refuse_repetition()
        draws.count += 1
    return table.tensor._view((6,), (1,), row * _SLOT_BYTES // 4)


def take_states(device: Device, generator: torch.Generator | None, count: int) -> Place:
    """Return the memory of the states of the draws of a recorded call. Call with ``DRAWING`` held."""
    table = _table_of(device)
    return table.tensor.buffer._memory, table.take(generator, count, count) * _SLOT_BYTES


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

    def _advanced(self, index: int, count: int) -> tuple[int, int]:
        """Return seed and offset of the next draws, and count these."""
        if index != self._device.index:
            raise RuntimeError(f"Expected a 'dml:{index}' generator device but found '{self._device}'")
        with _LOCK:
            offset, self._offset = self._offset, self._offset + count
        return self._seed, offset


_generators: weakref.WeakValueDictionary[int, Generator] = weakref.WeakValueDictionary()
"""Generators of the device by the address of PyTorch's object, for kernels are passed another wrapper of it."""

_DEFAULT_SEED = 67280421310721
"""Seed of new generators, as in PyTorch."""


def register() -> None:
    """Replace ``torch.Generator``."""
    torch.Generator = Generator  # type: ignore[misc]
