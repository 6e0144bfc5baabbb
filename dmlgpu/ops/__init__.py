"""Operators that run at once, on tensors or on arrays.

``directml`` has a function for each of DirectML's, under its name; the modules beside it have the names that people
look for. All of them are here; where both have a name (``argmax``, ``argmin``, ``dequantize``, ``gru``, ``lstm``,
``one_hot``, ``quantize``, ``split``), the kinder function is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dmlgpu.ops import directml
from dmlgpu.ops.elementwise import *  # noqa: F403
from dmlgpu.ops.logic import *  # noqa: F403
from dmlgpu.ops.moving import *  # noqa: F403
from dmlgpu.ops.networks import *  # noqa: F403
from dmlgpu.ops.recurrent import *  # noqa: F403
from dmlgpu.ops.reductions import *  # noqa: F403
from dmlgpu.ops.windows import *  # noqa: F403
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.shared import as_device
from dmlgpu.tensors.session import session_of

if TYPE_CHECKING:
    from dmlgpu.ops.directml import *  # noqa: F403
else:  # type checkers see which names there are, and report others

    def __getattr__(name: str) -> Any:
        if name == "__all__":
            return [public for public in __dir__() if not public.startswith("_")]
        if name in directml.__all__:
            return globals().setdefault(name, getattr(directml, name))
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *directml.__all__})


def free_memory(device: Device | str | None = None) -> None:
    """Give back the unused memory and the compiled operators that a device keeps for eager calls.

    Args:
        device: a device, the name of an adapter, or None for ``default_device()``.

    Raises:
        InvalidArgument: no device; AdapterNotFound: no adapter of the name.
    """
    session_of(as_device("free_memory", device)).clear()
