"""Private names of PyTorch that the device uses, as of PyTorch 2.13.0: check them first if another version fails.

``compiler_internals.py`` has those of Dynamo and AOTAutograd, whose import takes seconds. ``host.py`` replaces private
functions of PyTorch, and kernels of ``torch.ops.aten`` are called by their ``redispatch``.
"""

from __future__ import annotations

from types import CodeType
from typing import Any

import torch
from torch._C._dynamo import eval_frame
from torch.utils import _pytree as pytree
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend as register_backend

__all__ = [
    "AUTOCAST_KEYS",
    "CPU_KEYS",
    "LOOP_KEY",
    "Hooks",
    "accelerator",
    "construct_storage",
    "empty_tensor",
    "excluding_keys",
    "from_dlpack",
    "has_kernel",
    "operator_names",
    "pytree",
    "register_backend",
    "schemas_of",
    "skip_tracing",
]

# ---- dispatcher ------------------------------------------------------------------------------------------------------

CPU_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
AUTOCAST_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)  # type: ignore[attr-defined]
LOOP_KEY: Any = torch._C.DispatchKey.CompositeExplicitAutograd
"""Dispatch key of PyTorch's own loops over lists of tensors."""

excluding_keys = torch._C._ExcludeDispatchKeyGuard
"""Context in which calls skip the kernels of some dispatch keys."""

operator_names = torch._C._dispatch_get_all_op_names
has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
schemas_of = torch._C._jit_get_schemas_for_operator

# ---- storages and tensors --------------------------------------------------------------------------------------------

construct_storage = torch._C._construct_storage_from_data_pointer
empty_tensor: Any = torch._C._acc.create_empty_tensor
"""Create a tensor without elements on the device with index 0."""

from_dlpack = torch._C._from_dlpack

# ---- devices ---------------------------------------------------------------------------------------------------------

accelerator = torch._C._accelerator_getAccelerator
Hooks = torch._C._acc.PrivateUse1Hooks

# ---- Dynamo ----------------------------------------------------------------------------------------------------------

_UNTRACED = eval_frame._FrameExecStrategy(eval_frame._FrameAction.SKIP, eval_frame._FrameAction.SKIP)


def skip_tracing(code: CodeType) -> None:
    """Make Dynamo trace a function neither itself nor through its callees."""
    eval_frame.set_code_exec_strategy(code, _UNTRACED)
