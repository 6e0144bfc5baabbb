"""Private names of Dynamo and AOTAutograd, as of PyTorch 2.13.0 and 2.14.1: check them first if another version fails.

Importing this module takes seconds; ``internals.py`` has the private names that the device needs without compilation.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch._decomp import core_aten_decompositions
from torch._dynamo import trace_rules
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.exc import TorchRuntimeError
from torch._dynamo.variables import script_object
from torch._dynamo.variables.optimizer import OptimizerVariable
from torch._functorch.aot_autograd import make_boxed_func
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._guards import TracingContext
from torch._ops import HigherOrderOperator, OpOverload
from torch._subclasses.fake_tensor import unset_fake_temporarily

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

_BEFORE_2_14 = "TorchScriptObjectVariable"
"""Former name of the class of variables that hold objects of opaque types."""


def skip_packages(names: Iterable[str]) -> None:
    """Make Dynamo trace no function of some packages."""
    for name in names:
        trace_rules.add(name)


def leave_untraced(kind: type) -> None:
    """Let calls with objects of a subclass of an opaque type run between graphs, as with PyTorch's generators."""
    name = "CustomClassObjectVariable" if hasattr(script_object, "CustomClassObjectVariable") else _BEFORE_2_14
    variable = getattr(script_object, name)
    is_opaque = variable.is_matching_cls
    variable.is_matching_cls = staticmethod(lambda cls: cls is not kind and is_opaque(cls))


def count_steps_on(device_type: str) -> None:
    """Let new optimizers count steps on a device, as PyTorch does on CUDA: CPU counters would be uploaded."""
    set_capturable = OptimizerVariable._set_capturable

    def replacement(variable: Any, tracer: Any) -> None:
        optimizer = variable.value
        for group in optimizer.param_groups:
            new = (x.device.type == device_type and x not in optimizer.state for x in group["params"])
            if "capturable" in group and all(new):
                group["capturable"] = True
        set_capturable(variable, tracer)

    setattr(OptimizerVariable, "_set_capturable", replacement)  # noqa: B010 - mypy rejects an assignment
