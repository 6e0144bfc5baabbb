"""Which operators and graphs get kernels with their sizes in the text, and which share kernels that read them.

A kernel whose sizes are constants runs up to a quarter faster on CPUs; one that reads them from its parameters (see
``compiler.wgsl.parameters``) is compiled once for all sizes. A shape that comes alone is worth the first, the second
shape of the same model the second.
"""

from __future__ import annotations

import enum
import os
import threading
from collections.abc import Hashable
from typing import TYPE_CHECKING, Final

from dmlgpu.common.cache import Cache, CacheLimits
from dmlgpu.common.errors import InvalidArgument, shown

if TYPE_CHECKING:  # the command devices lists adapters without them
    from dmlgpu.catalog.operator_desc import OperatorDesc
    from dmlgpu.compiler.graph.network import Network

SPECIALIZE_VARIABLE: Final = "DMLGPU_SPECIALIZE"

SPECIAL_SHAPES: Final = 16
"""Shapes of an operator, by data types and ranks, that get kernels of their own under ``auto``."""

SPECIAL_GRAPHS: Final = 1
"""The same for graphs of the same operators."""

_FAMILIES: Final = CacheLimits(entries=4096, size=4096)


class Specialize(enum.StrEnum):
    """When kernels are compiled for sizes of their own."""

    AUTO = "auto"  # for the first shapes of an operator and the first of a graph
    ALWAYS = "always"
    NEVER = "never"

    @classmethod
    def of(cls, value: object) -> Specialize:
        """Return the policy that an argument of ``Device`` names; None for that of the environment variable
        DMLGPU_SPECIALIZE, else AUTO.

        Raises:
            InvalidArgument: there is no such policy.
        """
        source, name = "Device: specialize", value
        if value is None:
            source, name = f"the environment variable {SPECIALIZE_VARIABLE}", os.environ.get(SPECIALIZE_VARIABLE, "")
            name = name.strip().lower() or cls.AUTO
        if not isinstance(name, str) or name not in list(cls):
            raise InvalidArgument(f"{source} must be one of {', '.join(cls)}, got {shown(name)}")
        return cls(name)


class Specializer:
    """Applies a policy on one device. Thread-safe; a shape keeps its answer as long as its family is remembered."""

    def __init__(self, policy: Specialize = Specialize.ALWAYS):
        self.policy = policy
        self._lock = threading.Lock()
        self._families: Cache[Hashable, set[int]] = Cache(_FAMILIES)

    def of_operator(self, desc: OperatorDesc) -> bool:
        """Return whether an operator's sizes become constants of its kernels."""
        if self.policy is not Specialize.AUTO:
            return self.policy is Specialize.ALWAYS
        return self._decide(desc, SPECIAL_SHAPES, _kinds(desc))

    def of_network(self, network: Network) -> bool:
        """Return whether the sizes of a network's operators become constants of its kernels."""
        if self.policy is not Specialize.AUTO:
            return self.policy is Specialize.ALWAYS
        descs = tuple(node.desc for node in network.nodes)
        return self._decide(descs, SPECIAL_GRAPHS, tuple(map(_kinds, descs)))

    def _decide(self, member: Hashable, most: int, family: Hashable) -> bool:
        with self._lock:
            known = self._families.get_or_make(family, set, lambda _: 1)
            key = hash(member)
            if key not in known and len(known) < most:
                known.add(key)
            return key in known


def _kinds(desc: OperatorDesc) -> Hashable:
    """Return an operator with the data types and ranks of its tensors."""
    tensors = (slot.tensor for slot in (*desc.inputs, *desc.outputs))
    return desc.operator, tuple(None if tensor is None else (tensor.data_type, len(tensor.sizes)) for tensor in tensors)
