"""Everything of a model that cannot be computed, in one message, before anything runs."""

from __future__ import annotations

from collections.abc import Iterable

from onnx import AttributeProto, NodeProto

from dmlgpu.common.errors import NotSupported
from dmlgpu.frontends.onnx import expansion, registry
from dmlgpu.frontends.onnx.model import Model
from dmlgpu.frontends.onnx.registry import Versions

_ON_HOST = ("Constant", "Shape", "Size")
_MOST_SHOWN = 40


def unsupported(nodes: Iterable[NodeProto], versions: Versions) -> dict[str, list[str]]:
    """Return the names of nodes that cannot be computed by operator, those of bodies included."""
    found: dict[str, list[str]] = {}
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                for name, several in unsupported(attribute.g.node, versions).items():
                    found.setdefault(name, []).extend(several)
        version = versions.of(node)
        plain = node.domain in ("", "ai.onnx")
        if (plain and node.op_type in _ON_HOST) or registry.find(node.domain, node.op_type, version):
            continue
        if not expansion.has_body(node.domain, node.op_type, version):
            name = node.op_type if plain else f"{node.domain}.{node.op_type}"
            found.setdefault(name, []).append(node.name or next(iter(node.output), ""))
    return found


def check(model: Model, strict: bool = False) -> None:
    """Raise for what cannot be computed of a model.

    Args:
        model: what was read.
        strict: whether control flow is refused.

    Raises:
        NotSupported: operators without a translation, or control flow; the message names all of them.
    """
    decided = [node for node in model.nodes if registry.is_control(node)]
    if strict and decided:
        nodes = ", ".join(
            f"{node.op_type} {node.name or next(iter(node.output), '')!r}" for node in decided[:_MOST_SHOWN]
        )
        raise NotSupported(f"model {model.name!r}: the host decides about {nodes} (strict)")
    found = unsupported(model.nodes, model.versions)
    if found:
        listed = [f"{name} ({len(nodes)}, first {nodes[0]!r})" for name, nodes in sorted(found.items())]
        more = f" and {len(listed) - _MOST_SHOWN} more" if len(listed) > _MOST_SHOWN else ""
        raise NotSupported(
            f"model {model.name!r}: operators are not supported: {', '.join(listed[:_MOST_SHOWN])}{more}"
        )
