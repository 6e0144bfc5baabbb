"""The module ``torch.dml``: adapters, memory, random seeds and waiting."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from dmlgpu.frontends.torch import adapters

NAME = "dml"


class DeviceModule(ModuleType):
    """``torch.dml``."""

    def device_count(self) -> int:
        return len(adapters.all_adapters())

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return True

    def current_device(self) -> int:
        return adapters.current

    def _is_in_bad_fork(self) -> bool:
        return False

    def manual_seed_all(self, seed: int) -> None:
        pass


def register() -> None:
    _setup_privateuseone_for_python_backend(NAME, backend_module=DeviceModule("torch.dml"))
