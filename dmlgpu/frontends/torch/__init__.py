"""PyTorch's device "dml"."""

from __future__ import annotations

from dmlgpu.frontends.torch import device as _device
from dmlgpu.frontends.torch import dispatch as _dispatch
from dmlgpu.frontends.torch import storages as _storages

_device.register()
_dispatch.register_all()
_storages.register()
