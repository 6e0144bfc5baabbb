"""Which function translates which ONNX operator; the modules of ``operators/`` register theirs."""

from __future__ import annotations

import importlib
import pkgutil
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from onnx import NodeProto

from dmlgpu.common.errors import ModelError, abridged
from dmlgpu.frontends.onnx.values import OnnxValue
from dmlgpu.tensors.tensor import Tensor

if TYPE_CHECKING:
    from dmlgpu.frontends.onnx.node import OnnxNode

Result: TypeAlias = Tensor | OnnxValue | None
"""An output: an expression, whose sizes are then the shape, or a value with its own shape; None where unwanted."""

Results: TypeAlias = Result | Sequence[Result]

Steps: TypeAlias = Generator[Any, Any, Results]
"""A function that must know elements to go on yields ``NeedsHost``, ``NeedsDecision`` or, for control flow, others."""

Function: TypeAlias = "Callable[[OnnxNode], Results | Steps]"

HostInputs: TypeAlias = "Callable[[OnnxNode], Iterable[int]]"

_Function = TypeVar("_Function", bound="Callable[[OnnxNode], Results | Steps]")


@dataclass(frozen=True)
class Translator:
    """How nodes of an operator are translated.

    Attributes:
        since: first version of the operator set.
        function: returns the outputs, or is a generator that does.
        host: returns the numbers of the inputs that must be known on the host before, if they are present.
    """

    since: int
    function: Function
    host: HostInputs


CONTROL = ("If", "Loop", "Scan")
"""Operators with bodies that the host decides about."""

AS_FUNCTION: tuple[Result, ...] = ()
"""What a translator returns that leaves a case to the body that ONNX has for the operator, a function of others."""

_VERSION_KEY = "dmlgpu.operator_set"
"""Metadata of a node whose operator is not of the version of its domain that the model imports."""


@dataclass(frozen=True)
class Versions:
    """Versions of operator sets by domain; ONNX's own is empty."""

    numbers: Mapping[str, int]

    def of(self, node: NodeProto) -> int:
        """Return the version of the operator set that a node is of.

        Raises:
            ModelError: the model imports none.
        """
        for entry in node.metadata_props:
            if entry.key == _VERSION_KEY:
                return int(entry.value)
        domain = plain_domain(node.domain)
        for name in (domain, domain or "ai.onnx"):
            if name in self.numbers:
                return self.numbers[name]
        what = f"{node.op_type} {abridged(node.name or next(iter(node.output), ''))!r}"
        raise ModelError(what, f"the model imports no operator set of the domain {abridged(domain)!r}")


def mark_version(node: NodeProto, version: int) -> None:
    """Let ``Versions.of`` return a version for a node, whatever the model imports."""
    node.metadata_props.add(key=_VERSION_KEY, value=str(version))


_TRANSLATORS: dict[tuple[str, str], list[Translator]] = {}


def operator(
    *names: str, domain: str = "", since: int = 1, host: Sequence[int] | HostInputs = ()
) -> Callable[[_Function], _Function]:
    """Register a function that translates nodes of ONNX operators.

    Args:
        names: the operators, ``"Conv"``.
        domain: theirs; empty for ONNX's own.
        since: first version of the operator set that the function knows; the function with the greatest one that is at
            most the model's is taken.
        host: numbers of the inputs whose elements the function takes from the host, or a function of the node that
            returns them. What computes such an input runs before the function is called.
    """

    def register(function: _Function) -> _Function:
        translator = Translator(since, function, host if callable(host) else lambda node: host)
        for name in names:
            versions = _TRANSLATORS.setdefault((plain_domain(domain), name), [])
            versions.append(translator)
            versions.sort(key=lambda version: version.since)
        return function

    return register


def find(domain: str, name: str, version: int) -> Translator | None:
    """Return how an operator is translated in a version of its operator set, None if it is not."""
    _load()
    versions = _TRANSLATORS.get((plain_domain(domain), name), [])
    place = bisect_right([translator.since for translator in versions], version)
    return versions[place - 1] if place else None


def is_control(node: NodeProto) -> bool:
    """Return whether a node has bodies that the host decides about."""
    return node.op_type in CONTROL and not plain_domain(node.domain)


def names(domain: str = "") -> tuple[str, ...]:
    """Return the operators of a domain that have a function."""
    _load()
    return tuple(sorted(name for its, name in _TRANSLATORS if its == plain_domain(domain)))


def plain_domain(domain: str) -> str:
    """Return a domain, ONNX's own as an empty string."""
    return "" if domain == "ai.onnx" else domain


@cache
def _load() -> None:
    """Import every module of ``operators/``, which registers what it has."""
    package = importlib.import_module("dmlgpu.frontends.onnx.operators")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
