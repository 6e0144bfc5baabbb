"""A function per operator of DirectML, made from the catalog at first use.

On tensors of a device, functions compute immediately; on tensors of a graph, or of a function that is being traced,
they add a node. On arrays, they compute on ``device`` and return arrays; arrays among tensors are copied to the device
of these. Numbers take the type of the tensor operands. Shapes and types of outputs follow from the operands, else from
``output_sizes`` and ``output_type``. Inputs that must have equal shapes broadcast (not in graphs with
DirectMLX's rules, see ``Graph``); axes may be negative; enumerations, data types and activations may be given by name.

If an operator's rules are broken, InvalidArgument is raised in the function's words; for nodes of a ``Graph``
InvalidDescription, whose message ends with the caller's line.
"""

from __future__ import annotations

from typing import Any

from dmlgpu.tensors import directml


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return directml.__all__
    return globals().setdefault(name, getattr(directml, name))


def __dir__() -> list[str]:
    return dir(directml)
