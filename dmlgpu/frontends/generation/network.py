"""The network of a language model as a step: new tokens in, the logits of the next token and the caches out.

The network of a file takes an attention mask and positions, and returns logits of all tokens. ``as_step`` replaces
these by nodes that compute them from two numbers per row, so that the state of a generation stays on the device:

    step.tokens  {batch, new} INT32       new tokens, followed by any others
    step.past    {batch} INT32            tokens in the caches
    step.last    {batch} INT64            index of the last new token that counts; -1 if none does
    step.logits  {batch, vocabulary}      of the token after the last one that counts, FLOAT
    step.best    {batch, 1} INT32         the most likely token
    step.hidden  {batch, new, width}      hidden states after the last normalization, FLOAT
    step.after   {batch} INT32            tokens in the caches afterwards

With ``has_every``, there are also the scores after each of the new tokens:

    step.every.logits  {batch, new, vocabulary}  FLOAT
    step.every.best    {batch, new} INT32

A merged decoder gives two steps: one for the beginning of a prompt, and one for each token after it.

Caches keep their names. Those of GroupQueryAttention are updated in place, from row 0 on; those of INT8 have scales,
one or more per head and row, in caches of their own. States, of layers without keys and values, are replaced; they
count as 0 if there are no tokens before. Other caches grow by concatenation; the step keeps their last rows, so
that the tokens end at the last row and every step has the same shapes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from dmlgpu.common.errors import ModelError, NotSupported, shown
from dmlgpu.frontends.generation.bfloat16 import widen_bfloat16
from dmlgpu.frontends.generation.branches import has_branches, take_branch
from dmlgpu.frontends.generation.editing import index_type, prune, stand_in
from dmlgpu.frontends.generation.joining import without_data
from dmlgpu.frontends.generation.language_model import NEW_LENGTH, PAST_LENGTH, CacheFormat, LanguageConfig
from dmlgpu.frontends.generation.shared_weights import SharedWeights
from dmlgpu.frontends.onnx.model import Source, all_nodes, light
from dmlgpu.frontends.onnx.operators import ACTIVATIONS, COUNTS_PAST
from dmlgpu.frontends.onnx.tensor_proto import DeferredArray, data_type_of
from dmlgpu.frontends.onnx.values import OnnxValue

TOKENS, PAST, LAST = "step.tokens", "step.past", "step.last"
LOGITS, BEST, AFTER, HIDDEN = "step.logits", "step.best", "step.after", "step.hidden"
EVERY_LOGITS, EVERY_BEST = "step.every.logits", "step.every.best"

_GROUP_QUERY = "GroupQueryAttention"
_SEQUENCE_LENGTHS, _TOTAL_LENGTH, _KEY_SCALE = 5, 6, 12
_TABLES = (7, 8)
"""Inputs with cosines and sines of positions."""

SMALLEST_TABLE = 4096
"""Rows of tables of positions at least: those of the largest default context. They take 1 to 4 MiB."""

_KEY_SCALE_OUTPUT = 4
_PAST_STATE, _PRESENT_STATE = "past_state.", "present_state."
_FLOAT = TensorProto.FLOAT
_QUANTIZED_PRODUCT = "MatMulNBits"
_FLOAT_LAYOUTS = 3
"""Layouts of a float32 matrix on CPU adapters: for a token, for chunks of 16, and for longer ones."""

_PRODUCTS = ("MatMul", "Gemm", _QUANTIZED_PRODUCT, "FusedMatMul")
_MAX_INTEGERS = 4
_INTEGER_LEVELS = (0, 4)
"""Values of accuracy_level that allow 8-bit integers; others require floats."""

_SCALES = {
    "LayerNormalization": 2,
    "RMSNormalization": 1,
    "SimplifiedLayerNormalization": 1,
    "SkipLayerNormalization": 2,
    "SkipSimplifiedLayerNormalization": 1,
}
"""How many inputs of a normalization scale and shift its rows."""

_SKIP, _SUM_OUTPUT, _SKIP_EPSILON = "Skip", 3, 1e-12
"""Prefix of normalizations of sums; their output with the sum, and default epsilon."""

_AFTER_PRODUCTS = ("Cast", "Identity", "Mul", "Div", "Add", "Sub", "Tanh")


@dataclass(frozen=True)
class KeyValueCache:
    """A cache of keys or values.

    Attributes:
        past, present: Names of the input and the output.
        heads, head_size: Sizes.
        element: ONNX's number of the dtype.
    """

    past: str
    present: str
    heads: int
    head_size: int
    element: int

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """NumPy dtype of the elements."""
        return data_type_of(self.element, f"cache {shown(self.past)}").numpy

    @property
    def row_bytes(self) -> int:
        """Bytes of a row, the heads of a token."""
        return self.heads * self.head_size * self.dtype.itemsize


@dataclass(frozen=True)
class StateCache:
    """A state of a layer, which a step replaces.

    Attributes:
        past, present: Names of the input and the output.
        sizes: Sizes of the state of a sequence.
        element: ONNX's number of the dtype.
    """

    past: str
    present: str
    sizes: tuple[int, ...]
    element: int

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """NumPy dtype of the elements."""
        return data_type_of(self.element, f"state {shown(self.past)}").numpy

    @property
    def byte_size(self) -> int:
        """Bytes of the state of a sequence."""
        return math.prod(self.sizes) * self.dtype.itemsize


@dataclass(frozen=True)
class StepNetwork:
    """A network as a step.

    Attributes:
        proto: The model.
        folder: Folder of its external data; None if it has none.
        caches: Its caches of keys and values.
        is_fixed: Whether tokens begin at row 0 of the caches; else they end at the last row.
        vocabulary: Number of logits.
        weight_bytes: Bytes of the initializers that are used.
        largest_bytes: Bytes of the largest of them.
        repeated_bytes: Bytes of further layouts of weights on CPU adapters.
        max_new: Number of new tokens, if the network has a fixed one; else 0.
        weights: Large initializers, if they are not in the network's files, by name.
        first: The network of the first tokens of a prompt, which reads no caches; None if there is no other network.
        has_hidden: Whether it has hidden states of all tokens.
        has_every: Whether it has the scores after each new token.
        states: States of layers that have no keys and values.
    """

    proto: ModelProto
    folder: Path | None
    caches: tuple[KeyValueCache, ...]
    is_fixed: bool
    vocabulary: int
    weight_bytes: int
    largest_bytes: int
    repeated_bytes: int = 0
    max_new: int = 0
    weights: Mapping[str, OnnxValue] = field(default_factory=dict, repr=False)
    first: StepNetwork | None = None
    has_hidden: bool = False
    has_every: bool = False
    states: tuple[StateCache, ...] = ()

    @property
    def row_bytes(self) -> int:
        """Bytes that a token takes in all caches."""
        return sum(cache.row_bytes for cache in self.caches)

    def cache_bytes(self, context: int) -> int:
        """Return the bytes of all caches of a prompt. Those that grow by concatenation, and states, exist twice: a step
        reads one and writes the other."""
        return (1 if self.is_fixed else 2) * context * self.row_bytes + 2 * self.state_bytes

    @property
    def state_bytes(self) -> int:
        """Bytes of the states of a sequence, of any length."""
        return sum(state.byte_size for state in self.states)

    @property
    def cache_kind(self) -> str:
        """Text that describes how the caches change."""
        states = f"states of {self.state_bytes:,} bytes for any context"
        if not self.caches:
            return states
        kind = "a row per token of the context" if self.is_fixed else "grow by concatenation; the last rows are kept"
        return f"{kind}; {states}" if self.states else kind


def as_step(
    source: Source,
    config: LanguageConfig,
    cache: CacheFormat | None = None,
    *,
    weights: Mapping[str, OnnxValue] | None = None,
    context: int | None = None,
    has_integer_activations: bool = False,
    has_every: bool = False,
) -> StepNetwork:
    """Return a network as a step.

    Args:
        source: The network: a path, bytes or a ModelProto.
        config: Its sizes, which must agree with the network's.
        cache: Format of its caches; None keeps that of the network.
        weights: Initializers that are in none of its files, by name; the network reads those of BFLOAT16 by casts.
        context: Number of positions; tables of rotary embeddings are truncated to ``table_rows``. None keeps them.
        has_integer_activations: Whether rows of products with quantized weights are rounded to integers.
        has_every: Whether the step has the scores after each new token, if the network allows it.

    Raises:
        ModelError: If it is malformed, lacks an input or output of a decoder, or contradicts the configuration.
        NotSupported: If it needs other inputs than a decoder, its caches grow and ``cache`` has another type, or it
            has no products for integer activations.
    """
    proto, folder, name = light(source)
    if has_integer_activations:
        _round_activations(proto.graph, name)
    if not has_branches(proto.graph):
        values = {} if weights else widen_bfloat16(proto, folder, SharedWeights())
        if context is not None:
            values |= _cut_tables(proto.graph, folder, {**(weights or {}), **values}, context)
        return replace(_Rewriting(proto, name, config, has_every=has_every).step(folder, cache), weights=values)
    first, *_ = light(source)
    if has_integer_activations:
        _round_activations(first.graph, name)
    shared = SharedWeights()
    large = []
    for branch, cached in ((proto, True), (first, False)):
        take_branch(branch, cached=cached)
        large.append(without_data(branch, folder, shared))
    step = replace(_Rewriting(proto, name, config).step(folder, cache), weights=large[0])
    if step.is_fixed:
        return step
    prompt = replace(_Rewriting(first, name, config, caches=step.caches).step(folder, None), weights=large[1])
    arrays = {id(value.array): value.array for values in large for value in values.values()}
    sizes = [array.nbytes for array in arrays.values() if array is not None]
    # Exporters trace the branch with caches for one token: it may have no causal mask.
    return replace(
        step, max_new=1, first=prompt, weight_bytes=sum(sizes), largest_bytes=max(sizes, default=step.largest_bytes)
    )


def _round_activations(graph: GraphProto, name: str) -> None:
    """Round the rows of products with quantized weights, except of nodes that need floats."""
    rounded = 0
    for node in all_nodes(graph):
        level = next((attribute.i for attribute in node.attribute if attribute.name == "accuracy_level"), 0)
        if node.op_type == _QUANTIZED_PRODUCT and level in _INTEGER_LEVELS:
            node.attribute.append(helper.make_attribute(ACTIVATIONS, "int8"))
            rounded += 1
    if not rounded:
        raise NotSupported(
            f"{name}: activation_dtype='int8' needs a network with MatMulNBits of accuracy_level 0 or 4, got none"
        )


def _cut_tables(
    graph: GraphProto, folder: Path | None, weights: Mapping[str, OnnxValue], context: int
) -> dict[str, OnnxValue]:
    """Truncate tables of cosines and sines, which have rows for all positions of the model; return them by name."""
    tables: set[str] = set()
    others: set[str] = set()
    for node in all_nodes(graph):
        for index, name in enumerate(node.input):
            (tables if node.op_type == _GROUP_QUERY and index in _TABLES else others).add(name)
    cut: dict[str, OnnxValue] = {}
    for tensor in graph.initializer:
        name, sizes = tensor.name, tensor.dims
        if name not in tables - others or len(sizes) != 2:
            continue
        rows = table_rows(context, sizes[0])
        if sizes[0] <= rows:
            continue
        value = weights.get(name) or OnnxValue.of_tensor(tensor, f"initializer {shown(name)}", folder)
        array: Any = value.array
        cut[name] = OnnxValue.of_weight(array.first(rows) if isinstance(array, DeferredArray) else array[:rows])
        tensor.CopyFrom(stand_in(name, (rows, sizes[1]), tensor.data_type))
    return cut


def table_rows(context: int, available: int) -> int:
    """Return the rows of tables of positions for a context: few sizes, so that contexts share plans on disk."""
    return min(available, max(SMALLEST_TABLE, 1 << (context - 1).bit_length()))


def cache_part(name: str) -> tuple[int, str] | None:
    """Return layer and part of a cache's name: ``past_key_values.3.key`` is (3, "key"); None for other names."""
    layer = re.search(r"\d+", name)
    rest = re.sub(r"(past|present)_key_values", "", name)
    kind = "key" if "key" in rest else "value" if "value" in rest else None
    return None if kind is None or layer is None else (int(layer[0]), kind)


class _Rewriting:
    """The rewriting of one model, whose graph it changes. ``caches`` are those of a network that does not read them."""

    def __init__(
        self,
        proto: ModelProto,
        name: str,
        config: LanguageConfig,
        *,
        caches: tuple[KeyValueCache, ...] | None = None,
        has_every: bool = False,
    ):
        self._proto, self._graph, self._name, self._config = proto, proto.graph, name, config
        self._unread = caches
        self._hidden: str | None = None
        self._wants_every, self._has_every = has_every, False
        self._first: list[NodeProto] = []
        self._last: list[NodeProto] = []
        self._inputs = {info.name: info for info in self._graph.input}
        self._initializers = {tensor.name: tensor for tensor in self._graph.initializer}
        self._producers = {output: node for node in self._graph.node for output in node.output}

    def step(self, folder: Path | None, cache: CacheFormat | None) -> StepNetwork:
        states = self._states()
        caches = self._unread or self._caches(states)
        self._require("input_ids", self._inputs)
        self._require("logits", [info.name for info in self._graph.output])
        sizes = self._inputs["input_ids"].type.tensor_type.shape.dim
        max_new = _dimension(sizes[1]) if len(sizes) == 2 else 0
        if max_new > 1:
            raise NotSupported(f"{self._name}: 'input_ids' must have any number of tokens, or one, got {max_new}")
        vocabulary = self._vocabulary()
        is_fixed = not caches or any(node.op_type == _GROUP_QUERY for node in self._graph.node)
        if states and not is_fixed:
            raise NotSupported(f"{self._name}: a network with states needs caches that {_GROUP_QUERY} updates")
        if cache is not None:
            caches = self._of_type(caches, cache, is_fixed)
        self._add_sizes(caches)
        if is_fixed:
            self._fixed_attention()
        masked = self._is_used("attention_mask")
        if not is_fixed and self._unread is None and not (masked and self._is_used("position_ids")):
            raise NotSupported(
                f"{self._name}: caches that grow need the inputs attention_mask and position_ids, "
                f"got {', '.join(self._others(caches)) or 'neither'}; export the model with both"
            )
        self._add_inputs(is_fixed)
        self._add_outputs(caches, is_fixed)
        self._replace_interface(caches, states, is_fixed)
        prune(self._graph)
        used = self._used_initializers()
        byte_sizes = [_byte_size(tensor) for tensor in used]
        totals = sum(byte_sizes), max(byte_sizes, default=0), self._repeated_bytes(used)
        has_hidden = self._hidden is not None
        return StepNetwork(
            self._proto,
            folder,
            caches,
            is_fixed,
            vocabulary,
            *totals,
            max_new=max_new,
            has_hidden=has_hidden,
            has_every=self._has_every,
            states=states,
        )

    # ---- the interface of the file -------------------------------------------------------------------------------

    def _require(self, name: str, names: Iterable[str]) -> None:
        if name not in names:
            raise ModelError(self._name, f"must have {name!r}, got {', '.join(names) or 'none'}")

    def _states(self) -> tuple[StateCache, ...]:
        states = []
        for name, info in self._inputs.items():
            if name.startswith(_PAST_STATE):
                present = _PRESENT_STATE + name.removeprefix(_PAST_STATE)
                self._require(present, [output.name for output in self._graph.output])
                sizes = [_dimension(size) for size in info.type.tensor_type.shape.dim]
                states.append(StateCache(name, present, tuple(sizes[1:]), info.type.tensor_type.elem_type))
        return tuple(states)

    def _caches(self, states: Sequence[StateCache]) -> tuple[KeyValueCache, ...]:
        presents = {
            part: info.name
            for info in self._graph.output
            if (part := cache_part(info.name)) and "logit" not in info.name
        }
        caches = []
        for name, info in self._inputs.items():
            key = cache_part(name)
            if key is None:
                continue
            sizes = [_dimension(size) for size in info.type.tensor_type.shape.dim]
            if key not in presents:
                raise ModelError(self._name, f"cache {name!r} has no output that updates it")
            if len(sizes) != 4:
                raise NotSupported(
                    f"{self._name}: caches must be {{batch, heads, rows, head size}}, got {len(sizes)} dimensions "
                    f"of {name!r}"
                )
            heads, size = (actual or known for actual, known in zip(sizes[1::2], self._head_sizes, strict=True))
            if (heads, size) != self._head_sizes:
                raise ModelError(
                    self._name,
                    f"cache {name!r} must have {self._config.kv_heads} heads of {self._config.head_size}, "
                    f"as the configuration says, got {heads} of {size}",
                )
            caches.append(KeyValueCache(name, presents[key], heads, size, info.type.tensor_type.elem_type))
        if len(caches) != 2 * self._config.layers and not states:
            raise ModelError(
                self._name,
                f"must have a cache of keys and one of values for {self._config.layers} layers, as the configuration "
                f"says, got {len(caches)} inputs with 'key' or 'value' and a number in their names",
            )
        return tuple(caches)

    def _of_type(self, caches: Sequence[KeyValueCache], form: CacheFormat, is_fixed: bool) -> tuple[KeyValueCache, ...]:
        """Return caches of another type, those of INT8 with their scales."""
        if not caches:
            raise NotSupported(f"{self._name}: has no caches of keys and values, only states; omit cache_dtype")
        dtype = form.dtype
        changed = tuple(replace(cache, element=helper.np_dtype_to_tensor_dtype(dtype)) for cache in caches)
        if changed != tuple(caches) and not is_fixed:
            raise NotSupported(
                f"{self._name}: caches that grow keep the network's type, {caches[0].dtype}; "
                f"cache_dtype={dtype.name!r} needs a network with {_GROUP_QUERY}"
            )
        if dtype != np.int8:
            return changed
        return (*changed, *(self._scales(cache, form.block) for cache in changed))

    def _scales(self, cache: KeyValueCache, block: int) -> KeyValueCache:
        """Add the scales of a cache to the node that updates it, one per head, row and block of elements."""
        names = f"step.{cache.past}.scale", f"step.{cache.present}.scale"
        scales = KeyValueCache(*names, cache.heads, cache.head_size // block, _FLOAT)
        node = self._producers.get(cache.present)
        if node is None or node.op_type != _GROUP_QUERY or cache.past not in node.input[3:5]:
            raise NotSupported(f"{self._name}: cache_dtype='int8' needs caches that {_GROUP_QUERY} updates")
        index = list(node.input[3:5]).index(cache.past)
        for names, count in ((node.input, _KEY_SCALE + 2), (node.output, _KEY_SCALE_OUTPUT + 2)):
            names.extend([""] * (count - len(names)))
        node.input[_KEY_SCALE + index] = scales.past
        node.output[_KEY_SCALE_OUTPUT + index] = scales.present
        return scales

    @property
    def _head_sizes(self) -> tuple[int, int]:
        return self._config.kv_heads, self._config.head_size

    def _vocabulary(self) -> int:
        (logits,) = [info for info in self._graph.output if info.name == "logits"]
        dimensions = logits.type.tensor_type.shape.dim
        declared = _dimension(dimensions[-1]) if dimensions else 0
        if declared and declared != self._config.vocabulary:
            raise ModelError(
                self._name,
                f"'logits' must have {self._config.vocabulary} elements, as the configuration says, got {declared}",
            )
        return self._config.vocabulary

    def _others(self, caches: Sequence[KeyValueCache]) -> list[str]:
        """Return the inputs that are neither caches nor initializers."""
        taken = {cache.past for cache in caches} | {*self._initializers}
        return [name for name in self._inputs if name not in taken and not name.startswith(_PAST_STATE)]

    def _is_used(self, name: str) -> bool:
        return name in self._inputs and any(name in node.input for node in all_nodes(self._graph))

    # ---- nodes ---------------------------------------------------------------------------------------------------

    def _node(self, op_type: str, inputs: Sequence[str], name: str, *, last: bool = False, **attributes: Any) -> str:
        nodes = self._last if last else self._first
        nodes.append(helper.make_node(op_type, inputs, [name], name=name, **attributes))
        return name

    def _constant(self, value: int | Sequence[int], dtype: type[np.generic] = np.int32) -> str:
        flat = [value] if isinstance(value, int) else list(value)
        kind = "scalar" if isinstance(value, int) else "list"
        name = f"step.constant.{kind}.{dtype.__name__}.{'_'.join(map(str, flat))}"
        if name not in self._initializers:
            tensor = numpy_helper.from_array(np.array(value, dtype), name)
            self._initializers[name] = tensor
            self._graph.initializer.append(tensor)
        return name

    def _add_sizes(self, caches: Sequence[KeyValueCache]) -> None:
        """Add sizes as INT32 scalars: step.batch, step.new, and step.rows and step.total if there are caches."""
        sizes = [("batch", TOKENS, 0), ("new", TOKENS, 1), *(("rows", cache.past, 2) for cache in caches[:1])]
        for name, tensor, axis in sizes:
            shape = self._node("Shape", [tensor], f"step.{name}.shape")
            size = self._node("Gather", [shape, self._constant(axis, np.int64)], f"step.{name}.size")
            self._node("Cast", [size], f"step.{name}", to=TensorProto.INT32)
        if caches:
            self._node("Add", ["step.rows", "step.new"], "step.total")

    def _counted(self, count: str, sizes: Sequence[int], name: str) -> str:
        """Return 0, 1, 2 ... below a count, in a shape."""
        numbers = self._node("Range", [self._constant(0), count, self._constant(1)], f"{name}.range")
        return self._node("Reshape", [numbers, self._constant(sizes, np.int64)], name)

    def _fixed_attention(self) -> None:
        """Pass GroupQueryAttention the number of tokens in the caches."""
        for node in self._graph.node:
            if node.op_type == _GROUP_QUERY:
                if len(node.input) <= _TOTAL_LENGTH:
                    raise ModelError(
                        self._name, f"node {node.name!r} must have inputs seqlens_k and total_sequence_length"
                    )
                node.input[_SEQUENCE_LENGTHS] = PAST
                node.attribute.append(helper.make_attribute(COUNTS_PAST, 1))
                node.input[_TOTAL_LENGTH] = self._constant(1)  # the caches have more rows, which count

    def _add_inputs(self, is_fixed: bool) -> None:
        """Compute the inputs of the file: tokens, positions, mask."""
        ids = self._inputs["input_ids"].type.tensor_type.elem_type
        self._node("Cast", [TOKENS], "input_ids", to=index_type(self._graph, "input_ids", ids))
        column = self._constant((-1, 1), np.int64)
        past = self._node("Reshape", [PAST, column], "step.past.column")
        if "position_ids" in self._inputs:
            new = self._counted("step.new", (1, -1), "step.new.numbers")
            self._converted(self._node("Add", [past, new], "step.positions"), "position_ids")
        if "attention_mask" in self._inputs:
            if is_fixed:
                slots = self._counted("step.rows", (1, -1), "step.slots")
                end = self._node("Add", [past, "step.new"], "step.end")
                seen = self._node("Less", [slots, end], "step.seen")
            else:
                reads_caches = self._unread is None
                slots = self._counted("step.total" if reads_caches else "step.new", (1, -1), "step.slots")
                start = self._node("Sub", ["step.rows", past], "step.start") if reads_caches else past
                seen = self._node("Not", [self._node("Less", [slots, start], "step.unseen")], "step.seen")
            self._converted(seen, "attention_mask")
        if is_fixed and "seqlens_k" in self._inputs:
            less = self._node("Sub", ["step.new", self._constant(1)], "step.new.less")
            self._converted(self._node("Add", [PAST, less], "step.lengths"), "seqlens_k")
        last = self._node("Cast", [LAST], "step.last.narrow", to=TensorProto.INT32)
        self._node("Add", [last, self._constant(1)], "step.count")
        for value, name in ((PAST, PAST_LENGTH), ("step.count", NEW_LENGTH)):
            if name in self._inputs:
                self._converted(value, name)

    def _converted(self, value: str, name: str) -> None:
        self._node("Cast", [value], name, to=self._inputs[name].type.tensor_type.elem_type)

    def _add_outputs(self, caches: Sequence[KeyValueCache], is_fixed: bool) -> None:
        """Compute the outputs of the step."""
        self._node("Reshape", [LAST, self._constant((-1, 1), np.int64)], "step.last.column")
        logits = self._selected_logits()
        if self._hidden is not None:
            self._node("Cast", [self._hidden], HIDDEN, last=True, to=TensorProto.FLOAT)
        flat = self._node("Reshape", [logits, self._constant((0, -1), np.int64)], "step.logits.flat", last=True)
        self._node("Cast", [flat], LOGITS, last=True, to=TensorProto.FLOAT)
        best = self._node("ArgMax", [LOGITS], "step.best.wide", last=True, axis=-1, keepdims=1)
        self._node("Cast", [best], BEST, last=True, to=TensorProto.INT32)
        self._node("Add", [PAST, "step.count"], AFTER, last=True)
        if not is_fixed:
            self._keep_last_rows(caches)

    def _keep_last_rows(self, caches: Sequence[KeyValueCache]) -> None:
        """Cut grown caches to the rows before: those up to the last token that counts."""
        heads = caches[0].heads
        count = self._node("Mul", ["step.batch", self._constant(heads)], "step.heads")
        starts = self._counted(count, (-1, heads, 1), "step.heads.numbers")
        starts = self._node("Mul", [starts, "step.total"], "step.heads.starts")
        counts = self._node("Reshape", ["step.count", self._constant((-1, 1, 1), np.int64)], "step.count.column")
        shifted = self._node("Add", [starts, counts], "step.heads.shifted")
        rows = self._counted("step.rows", (1, 1, -1), "step.row.numbers")
        rows = self._node("Add", [shifted, rows], "step.rows.kept")
        for cache in caches:
            grown = cache.present
            if self._unread is not None:
                grown = self._node("Concat", [cache.past, grown], f"step.{grown}.grown", last=True, axis=2)
            flat = self._node("Flatten", [grown], f"step.{cache.present}.flat", last=True, axis=3)
            self._node("Gather", [flat, rows], f"step.{cache.present}", last=True, axis=0)

    # ---- logits of one token -------------------------------------------------------------------------------------

    def _selected_logits(self) -> str:
        """Compute logits of the selected tokens only; return their name."""
        node = self._producers.get("logits")
        following: list[NodeProto] = []
        while node is not None and node.op_type in _AFTER_PRODUCTS:
            following.insert(0, node)
            variable = [name for name in node.input if not self._is_constant(name)]
            node = self._producers.get(variable[0]) if len(variable) == 1 else None
        if node is None or node.op_type not in _PRODUCTS or self._is_constant(node.input[0]):
            return self._selected_afterwards()
        hidden = node.input[0]
        before = self._producers.get(hidden)
        takes_last = before is not None and self._takes_last(before)
        if self._wants_every and node.op_type != "Gemm":
            self._add_every(before.input[0] if before is not None and takes_last else hidden, [node, *following])
        if before is not None and takes_last:
            self._hidden = before.input[0]
            self._insert_before(before, self._selected_rows(before.input[0], hidden, self._is_scalar(before)))
            self._graph.node.remove(before)
        elif node.op_type == "Gemm":  # of two dimensions
            return self._selected_afterwards()
        else:
            self._hidden = hidden
            node.input[0] = f"{hidden}.selected"
            self._insert_before(node, self._selected_rows(hidden, node.input[0], False))
        return "logits"

    def _selected_rows(self, hidden: str, name: str, is_flat: bool) -> list[NodeProto]:
        """Return nodes that compute selected rows of hidden states: rows are selected before they are normalized."""
        norm = self._producers.get(hidden)
        attributes = {} if norm is None else {each.name: each.i for each in norm.attribute}
        is_last_axis = attributes.get("axis", -1) == -1
        if norm is None or norm.op_type not in _SCALES or norm.output[0] != hidden or not is_last_axis:
            return self._selection(hidden, name, is_flat)
        source, *others = norm.input
        copied = NodeProto()
        copied.CopyFrom(norm)
        if norm.op_type.startswith(_SKIP):
            norm.output.extend([""] * (_SUM_OUTPUT + 1 - len(norm.output)))
            norm.output[_SUM_OUTPUT] = source = norm.output[_SUM_OUTPUT] or f"{hidden}.sum"
            others = others[1:]
            copied.op_type = copied.op_type.removeprefix(_SKIP)
            if "epsilon" not in attributes:
                copied.attribute.append(helper.make_attribute("epsilon", _SKIP_EPSILON))
        copied.name, copied.input[:], copied.output[:] = (
            name,
            [f"{source}.selected", *others[: _SCALES[norm.op_type]]],
            [name],
        )
        return [*self._selection(source, f"{source}.selected", is_flat), copied]

    def _add_every(self, hidden: str, nodes: Sequence[NodeProto]) -> None:
        """Compute logits of all tokens by copies of the nodes from hidden states to logits."""
        renamed = {nodes[0].input[0]: hidden}
        for node in nodes:
            copied = NodeProto()
            copied.CopyFrom(node)
            copied.name = f"step.every.{node.output[0]}"
            copied.input[:] = [renamed.get(name, name) for name in node.input]
            renamed |= {name: f"step.every.{name}.of.file" for name in node.output}
            copied.output[:] = [renamed[name] for name in node.output]
            self._last.append(copied)
        self._node("Cast", [renamed["logits"]], EVERY_LOGITS, last=True, to=TensorProto.FLOAT)
        best = self._node("ArgMax", [EVERY_LOGITS], "step.every.best.wide", last=True, axis=-1, keepdims=0)
        self._node("Cast", [best], EVERY_BEST, last=True, to=TensorProto.INT32)
        self._has_every = True

    def _selected_afterwards(self) -> str:
        (info,) = [info for info in self._graph.output if info.name == "logits"]
        if len(info.type.tensor_type.shape.dim) == 2:
            raise NotSupported(f"{self._name}: 'logits' must be {{batch, new, vocabulary}}, got 2 dimensions")
        self._last.extend(self._selection("logits", "logits.selected", False))
        return "logits.selected"

    def _selection(self, hidden: str, name: str, is_flat: bool) -> list[NodeProto]:
        """Return nodes that take each sequence's last token that counts: {batch, width} or {batch, 1, width}."""
        rows = name if is_flat else f"{name}.rows"
        nodes = [helper.make_node("GatherND", [hidden, "step.last.column"], [rows], name=rows, batch_dims=1)]
        if not is_flat:
            shape = self._constant((0, 1, -1), np.int64)
            nodes.append(helper.make_node("Reshape", [rows, shape], [name], name=name))
        return nodes

    def _is_constant(self, name: str) -> bool:
        producer = self._producers.get(name)
        return name in self._initializers or (producer is not None and producer.op_type == "Constant")

    def _takes_last(self, node: NodeProto) -> bool:
        """Return whether a node takes the last token: Gather of -1, or Slice from -1, along axis 1."""
        if node.op_type == "Gather":
            axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0)
            return axis == 1 and self._integers(node.input[1]) == [-1]
        if node.op_type == "Slice" and len(node.input) >= 4:
            return self._integers(node.input[1]) == [-1] and self._integers(node.input[3]) == [1]
        return False

    def _is_scalar(self, node: NodeProto) -> bool:
        """Return whether a node of ``_takes_last`` removes the axis."""
        tensor = self._tensor(node.input[1])
        return node.op_type == "Gather" and tensor is not None and not tensor.dims

    def _tensor(self, name: str) -> TensorProto | None:
        """Return the value of a constant; None for other tensors."""
        producer = self._producers.get(name)
        if producer is not None and producer.op_type == "Constant":
            return next((attribute.t for attribute in producer.attribute if attribute.name == "value"), None)
        return self._initializers.get(name)

    def _integers(self, name: str) -> list[int] | None:
        """Return the elements of a small constant; None for other tensors."""
        tensor = self._tensor(name)
        if tensor is None or tensor.data_location == TensorProto.EXTERNAL or math.prod(tensor.dims) > _MAX_INTEGERS:
            return None
        return [int(number) for number in numpy_helper.to_array(tensor).reshape(-1)]

    def _insert_before(self, node: NodeProto, added: Sequence[NodeProto]) -> None:
        position = list(self._graph.node).index(node)
        for index, new in enumerate(added):
            self._graph.node.insert(position + index, new)

    # ---- the result ----------------------------------------------------------------------------------------------

    def _replace_interface(self, caches: Sequence[KeyValueCache], states: Sequence[StateCache], is_fixed: bool) -> None:
        standard = {"input_ids", "position_ids", "attention_mask", "seqlens_k"}
        standard |= {PAST_LENGTH, NEW_LENGTH} if states else set()
        unknown = [name for name in self._others(caches) if name not in standard and self._is_used(name)]
        if unknown:
            raise NotSupported(
                f"{self._name}: inputs of a decoder are input_ids, attention_mask, position_ids and caches, "
                f"got {', '.join(unknown)}"
            )
        nodes = [*self._first, *self._graph.node, *self._last]
        graph = GraphProto(name=self._graph.name, initializer=self._graph.initializer, node=nodes)
        graph.input.extend(
            [_info(TOKENS, ["batch", "new"]), _info(PAST, ["batch"]), _info(LAST, ["batch"], TensorProto.INT64)]
            + [_cache_info(cache.past, cache) for cache in caches]
            + [_info(state.past, ["batch", *state.sizes], state.element) for state in states]
        )
        graph.output.append(_info(LOGITS, ["batch", self._config.vocabulary], TensorProto.FLOAT))
        graph.output.extend([_info(BEST, ["batch", 1]), _info(AFTER, ["batch"])])
        if self._hidden is not None:
            graph.output.append(_info(HIDDEN, ["batch", "new", "width"], TensorProto.FLOAT))
        if self._has_every:
            graph.output.append(_info(EVERY_LOGITS, ["batch", "new", self._config.vocabulary], TensorProto.FLOAT))
            graph.output.append(_info(EVERY_BEST, ["batch", "new"]))
        graph.output.extend(
            _cache_info(cache.present if is_fixed else f"step.{cache.present}", cache) for cache in caches
        )
        graph.output.extend(_info(state.present, ["batch", *state.sizes], state.element) for state in states)
        self._proto.graph.CopyFrom(graph)
        self._graph = self._proto.graph

    def _repeated_bytes(self, used: Sequence[TensorProto]) -> int:
        """Return the bytes of further layouts of weights on CPU adapters: of float32 matrices, whose layout depends on
        the number of rows of the product. Lookups of quantized rows read the layout of the product."""
        readers: dict[str, set[str]] = {}
        for node in all_nodes(self._graph):
            for name in node.input:
                readers.setdefault(name, set()).add(node.op_type)
        total = 0
        for tensor in used:
            operators = readers[tensor.name]
            is_matrix = tensor.data_type == _FLOAT and len(tensor.dims) == 2 and _QUANTIZED_PRODUCT not in operators
            if is_matrix and operators & {"Transpose", *_PRODUCTS}:
                total += (_FLOAT_LAYOUTS - 1) * _byte_size(tensor)
        return total

    def _used_initializers(self) -> list[TensorProto]:
        read = {name for node in all_nodes(self._graph) for name in node.input}
        return [tensor for tensor in self._graph.initializer if tensor.name in read]


def _dimension(size: onnx.TensorShapeProto.Dimension) -> int:
    """Return a fixed size; 0 for a free one."""
    return size.dim_value if size.HasField("dim_value") else 0


def _info(name: str, sizes: Sequence[int | str], element: int = TensorProto.INT32) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, element, sizes)


def _cache_info(name: str, cache: KeyValueCache) -> ValueInfoProto:
    return _info(name, ["batch", cache.heads, "rows", cache.head_size], cache.element)


def _byte_size(tensor: TensorProto) -> int:
    return math.prod(tensor.dims) * data_type_of(tensor.data_type, f"initializer {shown(tensor.name)}").bits // 8
