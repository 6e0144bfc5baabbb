"""Private names of Dynamo and AOTAutograd, in the versions that ``versions.py`` lists.

Importing this module takes seconds; ``internals.py`` has the private names that the device needs without compilation.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dmlgpu.frontends.torch.versions import private

__all__ = [
    "HigherOrderOperator",
    "OpOverload",
    "TorchRuntimeError",
    "TracingContext",
    "aot_autograd",
    "core_aten_decompositions",
    "count_steps_on",
    "leave_untraced",
    "make_boxed_func",
    "min_cut_rematerialization_partition",
    "skip_packages",
    "unset_fake_temporarily",
]

core_aten_decompositions = private("torch._decomp.core_aten_decompositions")
aot_autograd = private("torch._dynamo.backends.common.aot_autograd")
TorchRuntimeError = private("torch._dynamo.exc.TorchRuntimeError")
make_boxed_func = private("torch._functorch.aot_autograd.make_boxed_func")
min_cut_rematerialization_partition = private("torch._functorch.partitioners.min_cut_rematerialization_partition")
TracingContext = private("torch._guards.TracingContext")
HigherOrderOperator = private("torch._ops.HigherOrderOperator")
OpOverload = private("torch._ops.OpOverload")
unset_fake_temporarily = private("torch._subclasses.fake_tensor.unset_fake_temporarily")

_add_rule = private("torch._dynamo.trace_rules.add")

_OpaqueVariable = private(
    "torch._dynamo.variables.script_object.CustomClassObjectVariable",  # 2.14.1 and 2.15.0
    "torch._dynamo.variables.script_object.TorchScriptObjectVariable",  # 2.13.0
)
_is_opaque = private(f"{_OpaqueVariable.__module__}.{_OpaqueVariable.__name__}.is_matching_cls")

_OptimizerVariable = private("torch._dynamo.variables.optimizer.OptimizerVariable")
_set_capturable = private("torch._dynamo.variables.optimizer.OptimizerVariable._set_capturable")


def skip_packages(names: Iterable[str]) -> None:
    """Make Dynamo trace no function of some packages."""
    for name in names:
        _add_rule(name)


def leave_untraced(kind: type) -> None:
    """Let calls with objects of a subclass of an opaque type run between graphs, as with PyTorch's generators."""
    _OpaqueVariable.is_matching_cls = staticmethod(lambda cls: cls is not kind and _is_opaque(cls))


def count_steps_on(device_type: str) -> None:
    """Let new optimizers count steps on a device, as PyTorch does on CUDA: CPU counters would be uploaded."""

    def replacement(variable: Any, tracer: Any) -> None:
        optimizer = variable.value
        for group in optimizer.param_groups:
            new = (x.device.type == device_type and x not in optimizer.state for x in group["params"])
            if "capturable" in group and all(new):
                group["capturable"] = True
        _set_capturable(variable, tracer)

    _OptimizerVariable._set_capturable = replacement
