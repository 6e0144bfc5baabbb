"""PyTorch's device "dml": its operators run on any adapter.

In: torch tensors moved to ``"dml"`` or created there, programs of ``torch.compile`` and ``torch.export``. Out: torch
tensors. PyTorch registers the device when it is imported, by the entry point ``dmlgpu`` of the group
``torch.backends``; ``import dmlgpu.torch`` registers it as well. ``device.py`` is ``torch.dml``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dmlgpu.frontends.torch.exported import LoadedProgram, load

__all__ = ["LoadedProgram", "load"]


def _register() -> None:
    from dmlgpu.frontends.torch import versions  # noqa: PLC0415 - a missing or old PyTorch has its own message

    versions.check_version()
    from dmlgpu.frontends.torch import autocast, device, dispatch, generators, host, storages, streams  # noqa: PLC0415

    device.register()
    streams.register()
    storages.register()
    generators.register()
    dispatch.register_all()
    autocast.register()
    host.register()


def __getattr__(name: str) -> Any:
    if name in __all__:  # imported late: Dynamo takes seconds
        from dmlgpu.frontends.torch import exported  # noqa: PLC0415

        return getattr(exported, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_register()
