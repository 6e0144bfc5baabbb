"""The module ``torch.dml``: adapters, memory, random seeds and waiting.

``torch.device("dml", index)`` is an adapter: index 0 is the default one (DMLGPU_ADAPTER, else the first hardware
adapter), the others follow in the order of ``dmlgpu.adapters()``.
"""

from __future__ import annotations

import os
import secrets
import sys
from types import TracebackType
from typing import Any, NamedTuple, TypeAlias

import torch

from dmlgpu.frontends.torch import adapters, generators
from dmlgpu.frontends.torch.internals import Hooks, register_backend
from dmlgpu.frontends.torch.streams import Event, Stream, StreamContext, current_stream, set_stream
from dmlgpu.tensors.session import session_of

DeviceLike: TypeAlias = torch.device | str | int | None
"""A device, its name or index, or None for the current one."""

__all__ = [
    "DeviceProperties", "Event", "Stream", "StreamContext", "current_device", "current_stream", "default_stream",
    "device", "device_count", "device_name", "device_of", "empty_cache", "get_amp_supported_dtype",
    "get_device_capability", "get_device_name", "get_device_properties", "get_rng_state", "get_rng_state_all", "init",
    "initial_seed", "is_available", "is_bf16_supported", "is_initialized", "manual_seed", "manual_seed_all",
    "max_memory_allocated", "mem_get_info", "memory_allocated", "memory_reserved", "memory_stats",
    "reset_peak_memory_stats", "seed", "seed_all", "set_device", "set_rng_state", "set_rng_state_all", "set_stream",
    "stream", "synchronize",
]  # fmt: skip

default_stream = current_stream
stream = StreamContext


def __dir__() -> list[str]:
    """Return the names of ``torch.dml``, without those of imports."""
    return __all__


def device_count() -> int:
    """Return the number of adapters."""
    return len(adapters.all_adapters())


def is_available() -> bool:
    """Return True: the adapter ``numpy`` is always there."""
    return True


_initialized = True  # torch.utils.checkpoint saves the state of random numbers only then


def is_initialized() -> bool:
    """Return True: adapters are opened at first use."""
    return True


def init() -> None:
    """Do nothing; adapters are opened at first use."""


def device_name(device: DeviceLike = None) -> str:
    """Return backend and name of an adapter."""
    return str(adapters.all_adapters()[adapters.index_from(device)].short_name)


get_device_name = device_name


class DeviceProperties(NamedTuple):
    """Facts about an adapter."""

    name: str
    backend: str
    kind: str
    vendor: str
    driver: str


def get_device_properties(device: DeviceLike = None) -> DeviceProperties:
    """Return facts about an adapter, as ``dmlgpu devices`` prints them."""
    info = adapters.all_adapters()[adapters.index_from(device)]
    return DeviceProperties(info.name, info.backend, info.kind, info.vendor, info.driver)


def get_device_capability(device: DeviceLike = None) -> dict[str, Any]:
    """Return the dtypes of an adapter's tensors, for ``torch.accelerator``."""
    adapters.index_from(device)
    floats = "float32", "float16", "bfloat16", "float64", "complex64", "complex128"
    names = (*floats, "bool", "uint8", "int8", "int16", "int32", "int64")
    return {"supported_dtypes": {getattr(torch, name) for name in names}}


def current_device() -> int:
    """Return the index of the device that "dml" without an index means in this thread."""
    return adapters.current_index()


def set_device(device: DeviceLike) -> None:
    """Choose the device that "dml" without an index means in this thread."""
    adapters.set_current(adapters.index_from(device))


class device:
    """Context that chooses the device which "dml" without an index means.

    Args:
        device: Device, name or index; None changes nothing.
    """

    def __init__(self, device: DeviceLike):
        self.idx = -1 if device is None else adapters.index_from(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = adapters.current_index()
        if self.idx >= 0:
            adapters.set_current(self.idx)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        adapters.set_current(self.prev_idx)


class device_of(device):
    """Context that chooses the device of a tensor; one of another kind of device changes nothing."""

    def __init__(self, x: torch.Tensor):
        super().__init__(x.device if x.device.type == adapters.NAME else None)


def _exchange_device(index: int) -> int:
    previous = adapters.current_index()
    if index >= 0:
        adapters.set_current(index)
    return previous


_maybe_exchange_device = _exchange_device


def synchronize(device: DeviceLike = None) -> None:
    """Wait until a device has computed everything that was called before."""
    adapters.device_of(adapters.index_from(device)).synchronize()


# ---- memory ---------------------------------------------------------------------------------------------------------


def memory_allocated(device: DeviceLike = None) -> int:
    """Return the bytes of a device that tensors hold."""
    return adapters.memory[adapters.index_from(device)].allocated


def max_memory_allocated(device: DeviceLike = None) -> int:
    """Return the largest value of ``memory_allocated`` since the start or the last reset."""
    return adapters.memory[adapters.index_from(device)].peak


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    """Reset ``max_memory_allocated``."""
    counter = adapters.memory[adapters.index_from(device)]
    counter.peak = counter.allocated


def memory_reserved(device: DeviceLike = None) -> int:
    """Return the bytes that tensors hold, and unused ones that are kept for new tensors."""
    index = adapters.index_from(device)
    return memory_allocated(index) + session_of(adapters.device_of(index)).pool.cached_bytes


def memory_stats(device: DeviceLike = None) -> dict[str, int]:
    """Return the numbers above under PyTorch's names: ``allocated_bytes.all.current`` ..."""
    return {
        "allocated_bytes.all.current": memory_allocated(device),
        "allocated_bytes.all.peak": max_memory_allocated(device),
        "reserved_bytes.all.current": memory_reserved(device),
    }


def mem_get_info(device: DeviceLike = None) -> tuple[int, int]:
    """Return the free and the total bytes of a device: those of its memory budget.

    Raises:
        RuntimeError: If the device has no budget: software adapters and ``numpy`` have one, and WebGPU does not report
            the memory of other adapters.
    """
    index = adapters.index_from(device)
    info = session_of(adapters.device_of(index)).memory_info()
    if info.budget is None:
        raise RuntimeError(
            f"WebGPU does not report the memory of dml:{index}, {device_name(index)}; torch.dml.memory_allocated() is "
            "that of tensors"
        )
    return info.budget - (info.allocated - info.unused), info.budget


def empty_cache() -> None:
    """Free unused memory and compiled operators of all devices that were used."""
    for opened in adapters.opened():
        session_of(opened).clear()


# ---- random numbers -------------------------------------------------------------------------------------------------


def manual_seed(seed: int) -> None:
    """Set the seed of the current device."""
    generators.set_seed(seed, adapters.current_index())


def manual_seed_all(seed: int) -> None:
    """Set the seed of all devices, as ``torch.manual_seed`` does."""
    generators.set_seed(seed)


def seed() -> None:
    """Set the seed of the current device to a random number."""
    manual_seed(secrets.randbits(63))


def seed_all() -> None:
    """Set the seed of all devices to a random number."""
    manual_seed_all(secrets.randbits(63))


def initial_seed() -> int:
    """Return the seed of the current device."""
    return generators.seed_of(adapters.current_index())


def get_rng_state(device: DeviceLike = None) -> torch.Tensor:
    """Return the state of a device's random numbers, as a tensor of bytes."""
    return generators.state_of(adapters.index_from(device))


def get_rng_state_all() -> list[torch.Tensor]:
    """Return the states of all devices."""
    return [get_rng_state(index) for index in range(device_count())]


def set_rng_state(new_state: torch.Tensor, device: DeviceLike = None) -> None:
    """Set the state of a device's random numbers."""
    generators.set_state(new_state, adapters.index_from(device))


def set_rng_state_all(new_states: list[torch.Tensor]) -> None:
    """Set the states of all devices."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


# ---- queries of PyTorch ----------------------------------------------------------------------------------------------


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Return the dtypes of ``torch.autocast("dml")``."""
    return [torch.float16, torch.bfloat16]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Return whether the device computes bfloat16: always, in float32."""
    return including_emulation


_first_process = os.getpid()


def _is_in_bad_fork() -> bool:
    return os.getpid() != _first_process and any(opened.removed_reason for opened in adapters.opened())


class _Hooks(Hooks):
    def is_available(self) -> bool:
        return True

    def has_primary_context(self, index: int) -> bool:
        return True

    def is_built(self) -> bool:
        return True


def register() -> None:
    """Register the device's name, module, hooks and guard; a process can do so once."""
    register_backend(adapters.NAME, backend_module=sys.modules[__name__], hook=_Hooks())
