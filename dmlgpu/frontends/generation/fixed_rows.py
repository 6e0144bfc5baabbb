"""Caches with fixed rows for decoders that append to their caches by Concat, as exporters trace them.

A network of one token has keys and values {batch, heads, past, head size} as inputs, and appends a row to each.
``fix_rows`` makes it take caches of any number of rows, of which ``step.past`` INT32 {1} hold tokens: the new row is
written after these, so that all tokens run with the same shapes. Three things in such a network depend on the number of
past tokens:

- the rows themselves: Concat becomes ScatterElements, and softmax does not see later rows;
- positions, computed from the shape of a cache: rows of tables that are looked up by them are shifted;
- relative positions, which T5 looks up for each row: these rows are shifted.

Sizes remain those of a network whose caches hold tokens in all rows but the last one. Other values must not depend on
the number of past tokens; to find those that do, they are computed for two numbers of tokens.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from dmlgpu.common.errors import DmlError
from dmlgpu.frontends.generation.editing import drop_unread, replace_entries
from dmlgpu.frontends.generation.network import AFTER, PAST, KeyValueCache
from dmlgpu.frontends.onnx.model import read as read_network
from dmlgpu.frontends.onnx.session import Session
from dmlgpu.frontends.onnx.values import OnnxValue
from dmlgpu.runtime.device import Device

_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
_SIZES = {
    "ConstantOfShape": (0,),
    "Expand": (1,),
    "Reshape": (1,),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "Squeeze": (1,),
    "Tile": (1,),
    "Unsqueeze": (1,),
}
"""Inputs that determine shapes."""

_SAMPLES = (3, 5)
"""Numbers of past tokens for which values are computed."""

_INDEX = 1
_PLACES = "cache_position"
"""Input with the position of the token."""


class _Unfixable(Exception):
    """The network has a value that depends on the number of past tokens in an unknown way."""


def fix_rows(
    proto: ModelProto, folder: Path | None, values: Mapping[str, OnnxValue], caches: Sequence[KeyValueCache]
) -> bool:
    """Rewrite a network, unless it is of another kind.

    Args:
        proto: The network of one token, which is changed.
        folder: Folder of its external data.
        values: Its large initializers.
        caches: Its caches that grow.

    Returns:
        Whether it was rewritten. If so, it has the input ``step.past``, and one more in ``step.after``.
    """
    rewriting = _FixingRows(proto.graph)
    try:
        appended = [rewriting.appended(cache) for cache in caches]
        softmaxes = [rewriting.softmax(cache) for cache in caches[::2]]
        lookups = rewriting.lookups(proto, folder, values, caches)
    except (_Unfixable, DmlError):
        return False
    rewriting.write(caches, appended, softmaxes, lookups)
    return True


class _FixingRows:
    """The rewriting of a graph."""

    def __init__(self, graph: GraphProto):
        self._graph = graph
        self._initializers = {tensor.name: tensor for tensor in graph.initializer}
        self._producers = {output: node for node in graph.node for output in node.output}
        self._readers: dict[str, list[NodeProto]] = {}
        for node in graph.node:
            for name in node.input:
                self._readers.setdefault(name, []).append(node)
        self._first: list[NodeProto] = []
        self._last_row = self._numbers = ""

    def _source(self, name: str) -> str:
        """Return the tensor of which another one is a copy."""
        node = self._producers.get(name)
        while node is not None and (node.op_type == "Identity" or (node.op_type == "Concat" and len(node.input) == 1)):
            name = node.input[0]
            node = self._producers.get(name)
        return name

    def appended(self, cache: KeyValueCache) -> NodeProto:
        """Return the node that appends a row to a cache."""
        node = self._producers.get(self._source(cache.present))
        if node is None or node.op_type != "Concat" or len(node.input) != 2 or _integer(node, "axis") not in (-2, 2):
            raise _Unfixable
        if self._source(node.input[0]) != cache.past:
            raise _Unfixable
        return node

    def softmax(self, keys: KeyValueCache) -> NodeProto:
        """Return the softmax over the rows of a cache of keys."""
        pending, seen = deque([self._source(keys.present)]), set[str]()
        while pending:
            for node in self._readers.get(pending.popleft(), ()):
                if node.op_type == "Softmax" and _integer(node, "axis", -1) in (-1, 3):
                    return node
                if node.op_type != "Shape" and node.output[0] not in seen:
                    seen.add(node.output[0])
                    pending.extend(node.output)
        raise _Unfixable

    # ---- values that depend on sizes alone ---------------------------------------------------------------------------

    def lookups(
        self, proto: ModelProto, folder: Path | None, values: Mapping[str, OnnxValue], caches: Sequence[KeyValueCache]
    ) -> list[tuple[NodeProto, bool]]:
        """Return the lookups whose index depends on the number of past tokens, and whether it has an element for each
        row; raise _Unfixable if another value depends on it."""
        derived, tables = self._derived()
        read = {
            name
            for node in self._graph.node
            if not set(node.output) & derived
            for index, name in enumerate(node.input)
            if name in derived and index not in _SIZES.get(node.op_type, ())
        }
        read |= {name for node in tables for name in node.input[_INDEX : _INDEX + 2] if name in derived}
        samples = _samples(proto, folder, values, caches, sorted(read))
        dependent = {name for name in read if not _is_independent(*(sample[name] for sample in samples))}
        looked_up = {output for node in tables for output in node.output}
        for name in dependent:
            others = [node for node in self._readers[name] if not set(node.output) & (derived | looked_up)]
            if others:
                raise _Unfixable
        return [
            (node, _has_rows(*(sample[node.input[_INDEX]] for sample in samples)))
            for node in tables
            if node.input[_INDEX] in dependent
        ]

    def _derived(self) -> tuple[set[str], list[NodeProto]]:
        """Return the tensors that depend on sizes only, and the nodes that look up rows of weights by them."""
        constant, derived = {*self._initializers, ""}, set[str]()
        tables = []
        for node in self._graph.node:
            sources = {*node.input}
            if any(attribute.g.node or attribute.graphs for attribute in node.attribute):
                continue
            if node.op_type == "Shape" or (sources <= constant | derived and sources & derived):
                if self._is_lookup(node):
                    tables.append(node)
                else:
                    derived.update(node.output)
            elif sources <= constant:
                constant.update(node.output)
        return derived, tables

    def _is_lookup(self, node: NodeProto) -> bool:
        """Return whether a node takes rows of a table: Gather along axis 0, or Slice."""
        tensor = self._initializers.get(self._source(node.input[0]))
        is_table = tensor is not None and tensor.data_type in _FLOATS and len(tensor.dims) == 2
        return is_table and (node.op_type == "Slice" or (node.op_type == "Gather" and not _integer(node, "axis")))

    # ---- the new network ---------------------------------------------------------------------------------------------

    def write(
        self,
        caches: Sequence[KeyValueCache],
        appended: Sequence[NodeProto],
        softmaxes: Sequence[NodeProto],
        lookups: Sequence[tuple[NodeProto, bool]],
    ) -> None:
        """Rewrite the nodes."""
        graph = self._graph
        zero, unit, axis, last = (self._constant(f"step.fixed.{value}", [value]) for value in (0, 1, 2, -1))
        scalars = [self._constant(f"step.fixed.scalar.{value}", value) for value in (0, 1)]
        for cache in caches:
            self._node("Slice", [cache.past, zero, last, axis], f"step.{cache.past}.before")
        past = self._node("Cast", [PAST], "step.past.wide", to=TensorProto.INT64)
        row = self._node("Slice", [caches[0].past, zero, unit, axis], "step.row")
        place = self._node("Expand", [past, self._node("Shape", [row], "step.row.shape")], "step.row.index")
        shape = self._node("Shape", [caches[0].past], "step.rows.shape")
        rows = self._node("Gather", [shape, axis], "step.rows")
        self._last_row = self._node("Sub", [rows, unit], "step.rows.last")
        shift = self._node("Sub", [past, self._last_row], "step.shift")
        count = self._node("Squeeze", [rows, zero], "step.rows.count")
        self._numbers = self._node("Range", [scalars[0], count, scalars[1]], "step.rows.numbers")
        seen = self._node("LessOrEqual", [self._numbers, past], "step.rows.seen")
        for info in graph.input:
            if info.name == _PLACES:
                self._node("Cast", [PAST], _PLACES, to=info.type.tensor_type.elem_type)
        self._node("Add", [PAST, self._constant("step.fixed.more", [1], np.int32)], AFTER)
        before = {cache.past: f"step.{cache.past}.before" for cache in caches}
        for node in graph.node:
            node.input[:] = [before.get(name, name) for name in node.input]
        rewritten: dict[str, list[NodeProto]] = {}
        for cache, node in zip(caches, appended, strict=True):
            inputs = [cache.past, place, node.input[1]]
            rewritten[node.output[0]] = [helper.make_node("ScatterElements", inputs, node.output, node.name, axis=2)]
        for node, cache in zip(softmaxes, caches[::2], strict=True):
            rewritten[node.output[0]] = self._masked(node, cache, seen)
        for node, has_rows in lookups:
            rewritten[node.output[0]] = self._shifted(node, shift, has_rows)
        nodes = [new for node in graph.node for new in rewritten.get(node.output[0], [node])]
        replace_entries(graph.node, [*self._first, *nodes])
        others = [info for info in graph.input if info.name != _PLACES]
        if len(others) < len(graph.input):
            replace_entries(graph.input, others)
        graph.input.append(helper.make_tensor_value_info(PAST, TensorProto.INT32, [1]))
        graph.output.append(helper.make_tensor_value_info(AFTER, TensorProto.INT32, [1]))

    def _masked(self, node: NodeProto, cache: KeyValueCache, seen: str) -> list[NodeProto]:
        """Return a softmax that does not see rows without tokens."""
        producer = self._producers.get(node.input[0])
        element = cache.element
        if producer is not None and producer.op_type == "Cast":
            element = _integer(producer, "to")
        lowest = f"step.fixed.lowest.{element}"
        if lowest not in self._initializers:
            dtype = helper.tensor_dtype_to_np_dtype(element)
            self._constant(lowest, -np.inf, dtype)
        name = f"{node.output[0]}.seen"
        return [helper.make_node("Where", [seen, node.input[0], lowest], [name], name), _with_input(node, 0, name)]

    def _shifted(self, node: NodeProto, shift: str, has_rows: bool) -> list[NodeProto]:
        """Return a lookup by the position after the past tokens."""
        index, name = node.input[_INDEX], f"{node.output[0]}.shifted"
        if not has_rows:
            added = helper.make_node("Add", [index, shift], [name], name)
            if node.op_type == "Gather":
                return [added, _with_input(node, _INDEX, name)]
            return [added, helper.make_node("Gather", [node.input[0], name], node.output, node.name, axis=0)]
        rows = [f"{name}.{part}" for part in ("row", "row.limited")]
        return [
            helper.make_node("Sub", [self._numbers, shift], [rows[0]], rows[0]),
            helper.make_node("Min", [rows[0], self._last_row], [rows[1]], rows[1]),
            helper.make_node("Gather", [index, rows[1]], [name], name, axis=-1),
            _with_input(node, _INDEX, name),
        ]

    def _node(self, op_type: str, inputs: Sequence[str], name: str, **attributes: Any) -> str:
        self._first.append(helper.make_node(op_type, inputs, [name], name, **attributes))
        return name

    def _constant(self, name: str, value: Any, dtype: Any = np.int64) -> str:
        if name not in self._initializers:
            tensor = numpy_helper.from_array(np.array(value, dtype), name)
            self._initializers[name] = tensor
            self._graph.initializer.append(tensor)
        return name


def _integer(node: NodeProto, name: str, default: int = 0) -> int:
    return next((attribute.i for attribute in node.attribute if attribute.name == name), default)


def _with_input(node: NodeProto, index: int, name: str) -> NodeProto:
    """Return a copy of a node with another input."""
    copy = NodeProto()
    copy.CopyFrom(node)
    copy.input[index] = name
    return copy


def _samples(
    proto: ModelProto,
    folder: Path | None,
    values: Mapping[str, OnnxValue],
    caches: Sequence[KeyValueCache],
    names: Sequence[str],
) -> list[dict[str, NDArray[Any]]]:
    """Return tensors for several numbers of past tokens."""
    part = ModelProto()
    part.CopyFrom(proto)
    replace_entries(part.graph.output, [helper.make_empty_tensor_value_info(name) for name in names])
    drop_unread(part.graph)
    remaining = {tensor.name for tensor in part.graph.initializer}
    external = {name: value for name, value in values.items() if name in remaining}
    session = Session(read_network(part, folder=folder, external=external), Device("numpy"))
    grown = {cache.past for cache in caches}
    samples = []
    for past in _SAMPLES:
        inputs = {}
        for info in session.inputs:
            count = past if info.name in grown else 1
            sizes = [size if isinstance(size, int) else 1 for size in info.shape or ()]
            if len(sizes) == 4:
                sizes[2] = count
            inputs[info.name] = np.zeros(sizes, info.dtype)
        samples.append(session.run(inputs, names))
    return samples


def _is_independent(first: NDArray[Any], second: NDArray[Any]) -> bool:
    """Return whether a value does not depend on the number of past tokens, or is that of each element: a mask."""
    if np.array_equal(first, second):
        return True
    elements = np.unique(np.concatenate([first.reshape(-1), second.reshape(-1)]))
    return first.ndim == second.ndim and elements.size == 1


def _has_rows(first: NDArray[Any], second: NDArray[Any]) -> bool:
    """Return whether an index has an element for each row, which depends on the distance to the last one; raise
    _Unfixable unless it has, or is that of the last row."""
    more = _SAMPLES[1] - _SAMPLES[0]
    if first.size == second.size == 1 and second.item() - first.item() == more:
        return False
    rows = [index.reshape(-1, index.shape[-1])[-1] if index.ndim else index for index in (first, second)]
    if [row.size for row in rows] == [past + 1 for past in _SAMPLES] and np.array_equal(rows[0], rows[1][more:]):
        return True
    raise _Unfixable
