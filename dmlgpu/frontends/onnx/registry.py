"""Functions that translate ONNX operators, registered by the modules of ``operators/``."""

from __future__ import annotations

import importlib
import pkgutil
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from numpy.typing import NDArray
from onnx import NodeProto

from dmlgpu.common.errors import ModelError, abridged
from dmlgpu.frontends.onnx.values import OnnxValue
from dmlgpu.tensors.tensor import Tensor

if TYPE_CHECKING:
    from dmlgpu.frontends.onnx.node import OnnxNode

Result: TypeAlias = Tensor | OnnxValue | None
"""An output: an expression, whose sizes are its shape, or a value with its own shape; None if unused."""

Results: TypeAlias = Result | Sequence[Result]

Steps: TypeAlias = Generator[Any, Any, Results]
"""Generator of requests: a function that needs elements yields ``NeedsHost``, ``NeedsDecision``, or requests of
control flow."""

Function: TypeAlias = "Callable[[OnnxNode], Results | Steps]"

HostInputs: TypeAlias = "Callable[[OnnxNode], Iterable[int]]"

_Function = TypeVar("_Function", bound="Callable[[OnnxNode], Results | Steps]")


@dataclass(frozen=True)
class PreparedAttributes:
    """A node whose attributes became weights of the model.

    Attributes:
        arrays: Weights by the names that ``OnnxNode.array`` takes.
        attributes: Further attributes of the node.
    """

    arrays: Mapping[str, NDArray[Any]]
    attributes: Mapping[str, Any]


@dataclass(frozen=True)
class Translator:
    """Translation of an operator.

    Attributes:
        since: First version of the operator set.
        function: Returns the outputs, or is a generator that does.
        host: Returns the indices of inputs that must be known on the host, if present.
        prepare: Returns weights in place of attributes, when the model is read; None if attributes stay.
        of_containers: Whether it only moves values in and out of sequences and optionals.
    """

    since: int
    function: Function
    host: HostInputs
    prepare: Callable[[OnnxNode], PreparedAttributes] | None = None
    of_containers: bool = False


CONTROL = ("If", "Loop", "Scan")
"""Operators with bodies, which need host decisions."""

AS_FUNCTION: tuple[Result, ...] = ()
"""Result of a translator that leaves a case to the function body that ONNX defines for the operator."""

_VERSION_KEY = "dmlgpu.operator_set"
"""Metadata key of a node whose operator set version differs from the model's."""


@dataclass(frozen=True)
class Versions:
    """Versions of operator sets by domain; ONNX's own is empty."""

    numbers: Mapping[str, int]

    def of(self, node: NodeProto) -> int:
        """Return the operator set version of a node.

        Raises:
            ModelError: If the model imports none.
        """
        for entry in node.metadata_props:
            if entry.key == _VERSION_KEY:
                return int(entry.value)
        if node.domain in self.numbers:
            return self.numbers[node.domain]
        label = f"{node.op_type} {abridged(node.name or next(iter(node.output), ''))!r}"
        raise ModelError(label, f"the model imports no operator set of the domain {abridged(node.domain)!r}")


def mark_version(node: NodeProto, version: int) -> None:
    """Override the result of ``Versions.of`` for a node."""
    node.metadata_props.add(key=_VERSION_KEY, value=str(version))


_ARRAYS_KEY = "dmlgpu.arrays"
"""Metadata key of a node with the names of its last inputs, which are prepared weights."""


def mark_arrays(node: NodeProto, names: Iterable[str]) -> None:
    """Declare the last inputs of a node to be prepared weights of these names."""
    node.metadata_props.add(key=_ARRAYS_KEY, value=" ".join(names))


def array_names(node: NodeProto) -> list[str]:
    """Return the names of a node's prepared weights, its last inputs."""
    return next((entry.value.split() for entry in node.metadata_props if entry.key == _ARRAYS_KEY), [])


_TRANSLATORS: dict[tuple[str, str], list[Translator]] = {}


def operator(
    *names: str,
    domain: str = "",
    since: int = 1,
    host: Sequence[int] | HostInputs = (),
    prepare: Callable[[OnnxNode], PreparedAttributes] | None = None,
    of_containers: bool = False,
) -> Callable[[_Function], _Function]:
    """Register a function that translates ONNX operators.

    Args:
        names: The operators, ``"Conv"``.
        domain: Their domain; empty for ONNX's own.
        since: First operator set version that the function supports; the function with the greatest one up to the
            model's is used.
        host: Indices of inputs that the function reads on the host, or a function of the node that returns them. Nodes
            that compute such an input run before the function is called.
        prepare: Function of a node without inputs that returns weights in place of its attributes. It is called once,
            when the model is read; ``OnnxNode.array`` returns the weights.
        of_containers: Whether the function only moves values in and out of sequences and optionals.
    """

    def register(function: _Function) -> _Function:
        translator = Translator(since, function, host if callable(host) else lambda node: host, prepare, of_containers)
        for name in names:
            versions = _TRANSLATORS.setdefault((domain, name), [])
            versions.append(translator)
            versions.sort(key=lambda version: version.since)
        return function

    return register


def find(domain: str, name: str, version: int) -> Translator | None:
    """Return the translator of an operator in an operator set version, or None."""
    _load()
    versions = _TRANSLATORS.get((domain, name), [])
    position = bisect_right([translator.since for translator in versions], version)
    return versions[position - 1] if position else None


def is_control(node: NodeProto) -> bool:
    """Return whether a node has bodies that need host decisions."""
    return node.op_type in CONTROL and not node.domain


def names(domain: str = "") -> tuple[str, ...]:
    """Return the supported operators of a domain."""
    _load()
    return tuple(sorted(name for its, name in _TRANSLATORS if its == domain))


def plain_domain(domain: str) -> str:
    """Return a domain, ONNX's own as an empty string."""
    return "" if domain == "ai.onnx" else domain


@cache
def _load() -> None:
    """Import every module of ``operators/``, which registers its functions."""
    package = importlib.import_module("dmlgpu.frontends.onnx.operators")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
