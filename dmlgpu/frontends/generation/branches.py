"""Merged decoders: networks with a branch for prompts and one for later tokens, as Optimum writes them.

``decoder_model_merged.onnx`` consists of an If on an input, ``use_cache_branch``. Its then-branch takes a token and
caches, its else-branch a prompt without caches.
"""

from __future__ import annotations

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper

from dmlgpu.frontends.generation.editing import drop_unread, rename, replace_entries
from dmlgpu.frontends.onnx.model import check


def has_branches(graph: GraphProto) -> bool:
    """Return whether a graph is a merged decoder."""
    return _choice(graph) is not None


def take_branch(proto: ModelProto, *, cached: bool) -> None:
    """Replace the If of a merged decoder by one of its branches, and remove what the other one needs.

    Args:
        proto: The model; one without branches stays as it is.
        cached: Whether to take the branch with caches.

    Raises:
        ModelError: If the model is malformed.
    """
    graph = proto.graph
    choice = _choice(graph)
    if choice is None:
        return
    check(proto)
    position = list(graph.node).index(choice)
    name = "then_branch" if cached else "else_branch"
    (branch,) = [attribute.g for attribute in choice.attribute if attribute.name == name]
    produced = {output for node in branch.node for output in node.output}
    copies = []
    renamed = {}
    for info, output in zip(branch.output, choice.output, strict=True):
        if info.name in produced and info.name not in renamed:
            renamed[info.name] = output
        elif info.name != output:
            copies.append(helper.make_node("Identity", [renamed.get(info.name, info.name)], [output], output))
    rename(branch, lambda name: renamed.get(name, name))
    nodes = [*graph.node[:position], *branch.node, *copies, *graph.node[position + 1 :]]
    initializers = [*graph.initializer, *branch.initializer]
    replace_entries(graph.node, nodes)
    replace_entries(graph.initializer, initializers)
    drop_unread(graph)


def _choice(graph: GraphProto) -> NodeProto | None:
    """Return the If on a boolean input; None if there is none."""
    initializers = {tensor.name for tensor in graph.initializer}
    flags = {
        info.name
        for info in graph.input
        if info.type.tensor_type.elem_type == TensorProto.BOOL and info.name not in initializers
    }
    return next(
        (node for node in graph.node if node.op_type == "If" and node.input[:1] and node.input[0] in flags), None
    )
