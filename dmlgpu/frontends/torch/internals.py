"""Private names of PyTorch that the device uses.

``versions.py`` lists the PyTorch versions in which they were read, and rejects a version that lacks one.
``compiler_internals.py`` has those of Dynamo and AOTAutograd, whose import takes seconds.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import CodeType
from typing import Any

from dmlgpu.frontends.torch.versions import private

__all__ = [
    "AUTOCAST_KEYS",
    "CLOSENESS",
    "CPU_KEYS",
    "INDUCTOR",
    "LOOP_KEY",
    "PARALLEL_DEVICE_TYPE",
    "PRINTING",
    "RUN_BACKWARD",
    "SHARING",
    "Hooks",
    "accelerator",
    "below_autograd",
    "composed_by_torch",
    "decomposition_table",
    "device_type_for_parallel",
    "dual_level",
    "excluding_keys",
    "from_dlpack",
    "generator_address",
    "has_kernel",
    "loop_of",
    "neg_view",
    "operator_names",
    "pytree",
    "read_file",
    "register_backend",
    "schema_of",
    "schemas_of",
    "skip_tracing",
    "write_file",
]


def _place(name: str) -> tuple[Any, str]:
    """Return the owner and the attribute of a name that is replaced."""
    private(name)
    owner, _, attribute = name.rpartition(".")
    return private(owner), attribute


# ---- dispatcher ------------------------------------------------------------------------------------------------------

_KeySet = private("torch._C.DispatchKeySet")
CPU_KEYS = _KeySet(private("torch._C.DispatchKey.CPU"))
AUTOCAST_KEYS = _KeySet(private("torch._C.DispatchKey.AutocastPrivateUse1"))
LOOP_KEY = private("torch._C.DispatchKey.CompositeExplicitAutograd")
"""Dispatch key of PyTorch's own loops over lists of tensors."""

excluding_keys = private("torch._C._ExcludeDispatchKeyGuard")
"""Context in which calls skip the kernels of some dispatch keys."""

below_autograd = private("torch._C._AutoDispatchBelowAutograd")
"""Context in which calls skip autograd."""

_forward = private("torch.autograd.forward_ad")
private("torch.autograd.forward_ad._current_level")


def dual_level() -> int:
    """Return the level of forward-mode differentiation; -1 outside of it."""
    level: int = _forward._current_level
    return level


operator_names = private("torch._C._dispatch_get_all_op_names")
has_kernel = private("torch._C._dispatch_has_kernel_for_dispatch_key")
schemas_of = private("torch._C._jit_get_schemas_for_operator")

private("torch.ops.aten.add.Tensor._schema")
private("torch.ops.aten.add.Tensor._op_dk")


def schema_of(overload: Any) -> Any:
    """Return the schema of an overload."""
    return overload._schema


_COMPOSED_KEY = private("torch._C.DispatchKey.CompositeImplicitAutograd")


def composed_by_torch(overload: Any) -> Callable[..., Any]:
    """Return PyTorch's own function of an overload that calls others."""
    return functools.partial(overload._op_dk, _COMPOSED_KEY)


def loop_of(overload: Any) -> Callable[..., Any]:
    """Return PyTorch's own loop over lists of tensors, of an overload that has one."""
    return functools.partial(overload._op_dk, LOOP_KEY)


def decomposition_table() -> Mapping[Any, Callable[..., Any]]:
    """Return PyTorch's decompositions by overload; the first call takes 0.5 s."""
    table: Mapping[Any, Callable[..., Any]] = private("torch._decomp.decomposition_table")
    return table


# ---- storages and tensors --------------------------------------------------------------------------------------------

from_dlpack = private("torch._C._from_dlpack")
neg_view = private("torch._neg_view")
"""Return a view whose elements are negated when they are read."""

pytree = private("torch.utils._pytree")

write_file = private("torch.UntypedStorage._write_file")
read_file = private("torch.UntypedStorage._set_from_file")
SHARING = tuple(_place(f"torch.UntypedStorage.{name}")[1] for name in ("_share_fd_cpu_", "_share_filename_cpu_"))
"""Names of the methods that share a storage with other processes."""

# ---- devices and generators ------------------------------------------------------------------------------------------

register_backend = private("torch.utils.backend_registration._setup_privateuseone_for_python_backend")
accelerator = private("torch._C._accelerator_getAccelerator")
Hooks = private("torch._C._acc.PrivateUse1Hooks")
device_type_for_parallel = private("torch._utils._get_available_device_type")

private("torch.Generator._cdata")


def generator_address(generator: Any) -> int:
    """Return the address of PyTorch's object of a generator, which kernels are passed another wrapper of."""
    address: int = generator._cdata
    return address


# ---- functions that are replaced -------------------------------------------------------------------------------------

PRINTING = _place("torch._tensor_str._tensor_str")
CLOSENESS = _place("torch.testing._comparison.TensorLikePair._compare_regular_values_close")
RUN_BACKWARD = _place("torch.autograd._engine_run_backward")
PARALLEL_DEVICE_TYPE = _place("torch.nn.parallel.data_parallel._get_available_device_type")
INDUCTOR = _place("torch._TorchCompileInductorWrapper.__call__")
"""Backend of ``torch.compile`` if the caller names none."""

# ---- Dynamo ----------------------------------------------------------------------------------------------------------

_SKIP = private("torch._C._dynamo.eval_frame._FrameAction.SKIP")
_UNTRACED = private("torch._C._dynamo.eval_frame._FrameExecStrategy")(_SKIP, _SKIP)
_set_strategy = private("torch._C._dynamo.eval_frame.set_code_exec_strategy")


def skip_tracing(code: CodeType) -> None:
    """Make Dynamo trace a function neither itself nor through its callees."""
    _set_strategy(code, _UNTRACED)
