"""The graph of a GGUF file's network, as onnxruntime-genai exports it: one builder for all architectures.

What differs between them is either a switch of ``architectures``, or a tensor that the file has or lacks: biases, fused
query, key and value, normalizations of heads or after attention, an output of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper

from dmlgpu.common.errors import ModelError, NotSupported
from dmlgpu.frontends.generation.gguf.architectures import NetworkConfig, Rotary
from dmlgpu.frontends.generation.gguf.experts import mixture
from dmlgpu.frontends.generation.gguf.files import GgufFile, GgufTensor
from dmlgpu.frontends.generation.gguf.state_space import short_convolution, state_space
from dmlgpu.frontends.generation.gguf.weights import (
    PACKINGS,
    PackedWeight,
    check_supported,
    floats,
    packed,
)
from dmlgpu.frontends.generation.language_model import NEW_LENGTH, PAST_LENGTH
from dmlgpu.frontends.generation.network import table_rows
from dmlgpu.frontends.onnx.operators import DMLGPU
from dmlgpu.frontends.onnx.tensor_proto import ELEMENT_TYPES, DeferredArray
from dmlgpu.frontends.onnx.values import OnnxValue

_CONTRIBUTED = "com.microsoft"
_OPSET, _IR_VERSION = 21, 10
_ROTARY_TENSORS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
_MAX_SHOWN = 8


@dataclass(eq=False)
class NetworkWriter:
    """Nodes and weights under construction.

    Attributes:
        file: The file that weights come from.
        config: Sizes and switches.
        dtype: Type of activations.
        nodes: Nodes.
        weights: Initializers by name.
        used: Names of tensors of the file that the network reads.
        states: ONNX's number of the type, and shape, of the states of layers, by the last part of their names.
    """

    file: GgufFile
    config: NetworkConfig
    dtype: np.dtype[Any]
    nodes: list[NodeProto] = field(default_factory=list)
    weights: dict[str, OnnxValue] = field(default_factory=dict)
    used: set[str] = field(default_factory=lambda: set(_ROTARY_TENSORS))
    states: dict[str, tuple[int, list[str | int]]] = field(default_factory=dict)

    # ---- nodes and weights

    def node(self, operator: str, inputs: Sequence[str], output: str, domain: str = "", **attributes: Any) -> str:
        """Add a node with one output, and return the output's name."""
        return self.node_of(operator, inputs, [output], domain, **attributes)

    def node_of(
        self, operator: str, inputs: Sequence[str], outputs: Sequence[str], domain: str = "", **attributes: Any
    ) -> str:
        """Add a node, and return the name of its first output."""
        self.nodes.append(helper.make_node(operator, inputs, outputs, name=outputs[0], domain=domain, **attributes))
        return outputs[0]

    def node_once(self, operator: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        """Add a node with one output unless it is there, and return the output's name."""
        if not any(node.name == output for node in self.nodes):
            self.node(operator, inputs, output, **attributes)
        return output

    def weight(self, name: str, array: NDArray[Any] | DeferredArray) -> str:
        """Add an initializer unless it is there, and return its name."""
        self.weights.setdefault(name, OnnxValue.of_weight(array))
        return name

    def integers(self, *numbers: int) -> str:
        """Return the name of an INT64 vector."""
        return self.weight("integers " + " ".join(map(str, numbers)), np.array(numbers, np.int64))

    def scalar(self, number: float) -> str:
        """Return the name of a scalar of the activations' type."""
        return self.weight(f"scalar {number!r}", np.array(number, self.dtype))

    def ones(self, size: int) -> str:
        """Return the name of a vector of ones."""
        return self.weight(f"ones {size}", np.ones(size, self.dtype))

    # ---- tensors of the file

    def has(self, name: str) -> bool:
        """Return whether the file has a tensor."""
        return name in self.file.tensors

    def tensor(self, name: str, *shape: int) -> GgufTensor:
        """Return a tensor of the file; some norms of Falcon-H1 have names without ``.weight``.

        Raises:
            ModelError: If it is missing or has another shape.
            NotSupported: If its elements are stored in an unsupported way.
        """
        tensor = self.file.tensors.get(name) or self.file.tensors.get(name.removesuffix(".weight"))
        if tensor is None:
            raise ModelError(self.file.name, f"tensor {name!r} with shape {list(shape)} is missing")
        if tensor.shape != shape:
            raise ModelError(self.file.name, f"tensor {tensor} must have shape {list(shape)}")
        check_supported(tensor, self.file.name)
        self.used.add(tensor.name)
        return tensor

    def vector(self, name: str, *shape: int, flat: bool = False) -> str:
        """Return the name of a vector or a small array of floats, optionally as a vector.

        Raises:
            NotSupported: If it is quantized.
        """
        tensor = self.tensor(name, *shape)
        if tensor.kind in PACKINGS:
            raise NotSupported(f"model {self.file.name!r}: tensor {tensor} must not be quantized")
        array = np.asarray(floats(tensor, self.dtype), self.dtype)
        return self.weight(name, array.reshape(-1) if flat else array)

    def packed(self, weight: PackedWeight, name: str) -> list[str]:
        """Return the names of codes and scales."""
        return [self.weight(f"{name}.codes", weight.codes), self.weight(f"{name}.scales", weight.scales)]

    def floats(self, tensor: GgufTensor) -> str:
        """Return the name of a matrix of floats, whose type may differ from the activations'."""
        return self.weight(tensor.name, floats(tensor, self.dtype))

    def as_activations(self, x: str, tensor: GgufTensor, output: str) -> str:
        """Return elements of a matrix of floats in the type of activations."""
        if self.weights[tensor.name].data_type.numpy == self.dtype:
            return x
        return self.node("Cast", [x], output, to=self.element)

    @property
    def element(self) -> int:
        """ONNX's number of the activations' type."""
        return int(helper.np_dtype_to_tensor_dtype(self.dtype))

    # ---- parts of the network

    def product(self, x: str, name: str, rows: int, inner: int, output: str) -> str:
        """Multiply by a matrix {rows, inner} of the file, and add its bias if it has one."""
        tensor = self.tensor(f"{name}.weight", rows, inner)
        if tensor.kind in PACKINGS:
            weight = packed(tensor, self.dtype)
            inputs = [x, *self.packed(weight, tensor.name)]
            if weight.zero_points is not None:
                inputs.append(self.weight(f"{tensor.name}.zero_points", weight.zero_points))
            sizes = {"bits": weight.bits, "block_size": weight.block, "N": rows, "K": inner}
            result = self.node("MatMulNBits", inputs, output, _CONTRIBUTED, **sizes)
        else:
            matrix = self.as_activations(self.floats(tensor), tensor, f"{output}.cast")
            columns = self.node("Transpose", [matrix], f"{output}.columns", perm=[1, 0])
            result = self.node("MatMul", [x, columns], output)
        if self.has(f"{name}.bias"):
            result = self.node("Add", [result, self.vector(f"{name}.bias", rows)], f"{output}.biased")
        return result

    def embedded(self, tokens: str) -> str:
        """Return the embeddings of tokens {batch, new, hidden}."""
        config = self.config
        tensor = self.tensor("token_embd.weight", config.vocabulary, config.hidden)
        if tensor.kind in PACKINGS:
            weight = packed(tensor, self.dtype)
            codes, scales = self.packed(weight, tensor.name)
            scales = self.node("Unsqueeze", [scales, self.integers(2)], "embedding.scales")
            options = {"bits": weight.bits, "block_size": weight.block, "gather_axis": 0, "quantize_axis": 2}
            x = self.node("GatherBlockQuantized", [codes, tokens, scales], "embedding.blocks", _CONTRIBUTED, **options)
            if weight.zero_points is not None:  # zero points that are no integers: half the range less these is added
                zero_points = self.weight(f"{tensor.name}.zero_points", weight.zero_points)
                zero_points = self.node("Gather", [zero_points, tokens], "embedding.zero_points")
                zero_points = self.node("Unsqueeze", [zero_points, self.integers(3)], "embedding.zero_points.blocks")
                middle = self.scalar(float(1 << weight.bits - 1))
                below = self.node("Sub", [middle, zero_points], "embedding.below")
                factors = self.node("Gather", [scales, tokens], "embedding.factors")
                x = self.node("Add", [x, self.node("Mul", [below, factors], "embedding.low")], "embedding.sum")
            x = self.node("Reshape", [x, self.integers(0, 0, config.hidden)], "embedding")
        else:
            x = self.node("Gather", [self.floats(tensor), tokens], "embedding")
            x = self.as_activations(x, tensor, "embedding.cast")
        if config.traits.scales_embeddings:
            x = self.node("Mul", [x, self.scalar(config.hidden**0.5)], "embedding.scaled")
        return self.scaled(x, config.embedding_scale, "embedding.output")

    def scaled(self, x: str, factor: float, output: str) -> str:
        """Multiply by a number other than 1."""
        return x if factor == 1 else self.node("Mul", [x, self.scalar(factor)], output)

    def normalized(self, x: str, name: str, size: int, output: str) -> str:
        """Divide rows by the root of their mean square, and scale them."""
        return self.normalized_by(x, self.vector(f"{name}.weight", size), output)

    def normalized_by(self, x: str, weight: str, output: str) -> str:
        """Divide rows by the root of their mean square, and scale them by a vector."""
        epsilon = self.config.epsilon
        return self.node("SimplifiedLayerNormalization", [x, weight], output, epsilon=epsilon, axis=-1, stash_type=1)

    def added(self, x: str, skip: str, name: str, output: str) -> tuple[str, str]:
        """Return the input of the next part of the network, which is the normalized sum of two tensors, and the sum."""
        if self.config.traits.normalizes_after and name != self.config.traits.last_norm:
            total = self.node("Add", [x, skip], f"{output}.sum")
            return total, total
        weight, total = self.vector(f"{name}.weight", self.config.hidden), f"{output}.sum"
        self.node_of(
            "SkipSimplifiedLayerNormalization",
            [x, skip, weight],
            [output, "", "", total],
            _CONTRIBUTED,
            epsilon=self.config.epsilon,
        )
        return output, total

    def normalized_heads(self, x: str, name: str, heads: int, *, is_normalized: bool = False) -> str:
        """Normalize each head, or all of them together, if the file has a weight for this, or each without one."""
        tensor, size = self.file.tensors.get(f"{name}.weight"), self.config.head_size
        if tensor is not None and tensor.shape == (heads * size,):
            return self.normalized(x, name, heads * size, f"{name}.output")
        if tensor is None and not is_normalized:
            return x
        weight = self.ones(size) if tensor is None else self.vector(f"{name}.weight", size)
        by_head = self.node("Reshape", [x, self.integers(0, 0, heads, size)], f"{name}.heads")
        normalized = self.normalized_by(by_head, weight, f"{name}.normalized")
        return self.node("Reshape", [normalized, self.integers(0, 0, heads * size)], f"{name}.output")

    def table_rows(self) -> int:
        """Return the rows of tables of positions."""
        return table_rows(self.config.context_length, self.file.integer(f"{self.config.name}.context_length"))

    def tables(self, rotary: Rotary, name: str) -> list[str]:
        """Return the names of tables of cosines and sines."""
        parts = zip(("cos", "sin"), rotary.tables(self.table_rows(), self.dtype), strict=True)
        return [self.weight(f"{part}_cache{name}", table) for part, table in parts]

    def attention(self, layer: int, x: str) -> str:
        """Return attention of a layer, before the sum with its input."""
        config, prefix, name = self.config, f"blk.{layer}", f"layers.{layer}.attention"
        is_rotated = config.rotated[layer]
        widths = [heads * config.head_size for heads in (config.heads, config.kv_heads, config.kv_heads)]
        if self.has(f"{prefix}.attn_qkv.weight"):
            parts = [self.product(x, f"{prefix}.attn_qkv", sum(widths), config.hidden, f"{name}.qkv"), "", ""]
        else:
            parts = [
                self.product(x, f"{prefix}.attn_{part}", width, config.hidden, f"{name}.{part}")
                for part, width in zip("qkv", widths, strict=True)
            ]
            # A rotation keeps the norm of a head, so norms that follow it in the model may come first.
            is_normalized = config.normalizes_heads and is_rotated
            for index, (part, heads) in enumerate((("q", config.heads), ("k", config.kv_heads))):
                norm = f"{prefix}.attn_{part}_norm"
                parts[index] = self.normalized_heads(parts[index], norm, heads, is_normalized=is_normalized)
            parts[0] = parts[0] if is_rotated else self.tempered(parts[0], f"{name}.tempered")
        window = config.windows[layer]
        is_local = bool(window) and config.local_rotary != config.rotary
        tables = self.tables(config.local_rotary, ".local") if is_local else self.tables(config.rotary, "")
        if not is_rotated:
            tables = ["", ""]
        caches = [f"past_key_values.{layer}.{part}" for part in ("key", "value")]
        has_sinks = self.has(f"{prefix}.attn_sinks.weight")
        sinks = self.vector(f"{prefix}.attn_sinks.weight", config.heads) if has_sinks else ""
        chunk = self.chunk_bias(window) if config.traits.chunk and 0 < window < config.context_length else ""
        attended = self.node_of(
            "GroupQueryAttention",
            [*parts, *caches, "seqlens_k", "total_sequence_length", *tables, "", chunk, sinks],
            [name, f"present.{layer}.key", f"present.{layer}.value"],
            _CONTRIBUTED,
            num_heads=config.heads,
            kv_num_heads=config.kv_heads,
            scale=config.scale,
            softcap=config.softcaps[0],
            local_window_size=-1 if config.traits.chunk else window or -1,
            do_rotary=int(is_rotated),
            rotary_interleaved=int(config.traits.interleaved),
        )
        result = self.product(attended, f"{prefix}.attn_output", config.hidden, widths[0], f"{name}.output")
        return self.after(result, layer, "post_attention_norm")

    def tempered(self, query: str, output: str) -> str:
        """Scale queries by the temperature of their positions."""
        temperature, positions = self.config.temperature, self.config.context_length
        if temperature is None or positions < temperature.length:
            return query
        table = self.weight("temperature", temperature.table(self.table_rows()).astype(self.dtype))
        factors = self.node_once("Gather", [table, "position_ids"], "temperature.factors")
        return self.node("Mul", [query, factors], output)

    def chunk_bias(self, chunk: int) -> str:
        """Return the bias {batch, 1, new, total} that hides the positions of earlier chunks: 0 or -inf."""
        size = self.weight(f"integer {chunk}", np.array(chunk, np.int64))
        begin, step = (self.weight(f"integer {number}", np.array(number, np.int64)) for number in (0, 1))
        width = self.node_once("Cast", ["total_sequence_length"], "chunk.width", to=TensorProto.INT64)
        slots = self.node_once("Range", [begin, width, step], "chunk.slots")
        slots = self.node_once("Div", [slots, size], "chunk.of_slots")
        chunks = self.node_once("Div", ["position_ids", size], "chunk.of_positions")
        chunks = self.node_once("Unsqueeze", [chunks, self.integers(1, 3)], "chunk.of_rows")
        is_same = self.node_once("Equal", [chunks, slots], "chunk.is_same")
        return self.node_once("Where", [is_same, self.scalar(0.0), self.scalar(-np.inf)], "chunk.bias")

    def after(self, x: str, layer: int, name: str) -> str:
        """Normalize a result of a layer before it is added, if the file has a weight for this, and scale it."""
        name = f"blk.{layer}.{name}"
        if self.has(f"{name}.weight") and not name.endswith(self.config.traits.middle_norm):
            x = self.normalized(x, name, self.config.hidden, f"{name}.output")
        return self.scaled(x, self.config.residual_scale, f"{name}.scaled")

    def perceptron(self, layer: int, x: str, inner: int, suffix: str = "") -> str:
        """Return the gated product of a layer, whose tensors have names with a suffix."""
        config, prefix, name = self.config, f"blk.{layer}", f"layers.{layer}.mlp{suffix}"
        if self.config.traits.squares_relu:
            up = self.product(x, f"{prefix}.ffn_up{suffix}", inner, config.hidden, f"{name}.up")
            return self.product(
                self.squared(up, name), f"{prefix}.ffn_down{suffix}", config.hidden, inner, f"{name}.down"
            )
        if self.has(f"{prefix}.ffn_gate{suffix}.weight"):
            gate, up = (
                self.product(x, f"{prefix}.ffn_{part}{suffix}", inner, config.hidden, f"{name}.{part}")
                for part in ("gate", "up")
            )
        else:
            both = self.product(x, f"{prefix}.ffn_up{suffix}", 2 * inner, config.hidden, f"{name}.gate_up")
            gate, up = f"{name}.gate", f"{name}.up"
            self.node_of("Split", [both], [gate, up], axis=-1, num_outputs=2)
        gated = self.gated(gate, up, name)
        return self.product(gated, f"{prefix}.ffn_down{suffix}", config.hidden, inner, f"{name}.down")

    def squared(self, up: str, name: str) -> str:
        """Return the square of a ReLU."""
        active = self.node("Relu", [up], f"{name}.active")
        return self.node("Mul", [active, active], f"{name}.squared")

    def gated(self, gate: str, up: str, name: str) -> str:
        """Multiply the activation of a gate by another factor."""
        limit = self.config.traits.gate_limit
        if limit:
            gate = self.node("Min", [gate, self.scalar(limit)], f"{name}.low")
            sigmoid = self.node(
                "Sigmoid", [self.node("Mul", [gate, self.scalar(1.702)], f"{name}.steep")], f"{name}.sigmoid"
            )
            up = self.node("Clip", [up, self.scalar(-limit), self.scalar(limit)], f"{name}.clipped")
            up = self.node("Add", [up, self.scalar(1.0)], f"{name}.factor")
            active = self.node("Mul", [gate, sigmoid], f"{name}.active")
        elif self.config.traits.gelu:
            active = self.node("Gelu", [gate], f"{name}.active", approximate="tanh")
        else:
            active = self.node("Mul", [gate, self.node("Sigmoid", [gate], f"{name}.sigmoid")], f"{name}.active")
        return self.node("Mul", [active, up], f"{name}.gated")

    def fed_forward(self, layer: int, x: str) -> str:
        """Return the perceptron or the mixture of experts of a layer, before the sum with its input."""
        experts = self.config.experts
        if experts is not None and self.has(f"blk.{layer}.ffn_gate_inp.weight"):
            result = mixture(self, experts, layer, x)
        else:
            result = self.perceptron(layer, x, self.config.inner)
        return self.after(result, layer, "post_ffw_norm")

    def lengths(self) -> None:
        """Compute lengths of sequences from the attention mask."""
        count = self.node("ReduceSum", ["attention_mask", self.integers(1)], "mask.count", keepdims=0)
        last = self.node("Sub", [count, self.integers(1)], "mask.last")
        self.node("Cast", [last], "seqlens_k", to=TensorProto.INT32)
        sizes = self.node("Shape", ["attention_mask"], "mask.shape")
        zero_dimensional = self.weight("index 1", np.array(1, np.int64))
        total = self.node("Gather", [sizes, zero_dimensional], "mask.width", axis=0)
        self.node("Cast", [total], "total_sequence_length", to=TensorProto.INT32)

    def logits(self, x: str) -> None:
        """Add the product with the output's matrix, or with the embeddings if the file has none."""
        config = self.config
        name = "output" if self.has("output.weight") else "token_embd"
        x = self.product(x, name, config.vocabulary, config.hidden, "scores")
        x = self.scaled(x, 1 / config.logit_scale, "scores.scaled")
        cap = config.softcaps[1]
        if cap:
            x = self.node("Tanh", [self.node("Mul", [x, self.scalar(1 / cap)], "scores.small")], "scores.tanh")
            x = self.node("Mul", [x, self.scalar(cap)], "scores.capped")
        self.node("Cast", [x], "logits", to=TensorProto.FLOAT)

    def is_attention(self, layer: int) -> bool:
        """Return whether a layer has attention: unless it has something else, to name missing tensors."""
        if self.has(f"blk.{layer}.attn_output.weight"):
            return True
        others = ("ssm_in", "shortconv.in_proj", *(("ffn_up", "ffn_gate_inp") if self.config.traits.alternates else ()))
        return not any(self.has(f"blk.{layer}.{name}.weight") for name in others)

    def mixed(self, layer: int, x: str) -> str:
        """Return the first part of a layer: attention, a state space, the sum of both, or a perceptron."""
        parts = []
        if self.has(f"blk.{layer}.ssm_in.weight"):
            parts.append(state_space(self, layer, x))
        if self.has(f"blk.{layer}.shortconv.in_proj.weight"):
            parts.append(short_convolution(self, layer, x))
        if self.is_attention(layer):
            parts.append(self.attention(layer, x))
        if not parts:
            return self.fed_forward(layer, x)
        return parts[0] if len(parts) == 1 else self.node("Add", parts, f"layers.{layer}.mixed")

    def network(self) -> None:
        """Add all nodes."""
        traits, layers = self.config.traits, range(self.config.layers)
        if any(map(self.is_attention, layers)):
            self.lengths()
        total = self.embedded("input_ids")
        x = total
        if not traits.normalizes_after:
            x = self.normalized(total, "blk.0.attn_norm", self.config.hidden, "layers.0.input")
        for layer in layers:
            following = traits.last_norm if layer + 1 == len(layers) else f"blk.{layer + 1}.attn_norm"
            part = self.mixed(layer, x)
            if not traits.alternates:
                x, total = self.added(total, part, f"blk.{layer}.{traits.middle_norm}", f"layers.{layer}.middle")
                part = self.fed_forward(layer, x)
            x, total = self.added(total, part, following, f"layers.{layer}.output")
        self.logits(x)
        unused = sorted(self.file.tensors.keys() - self.used)
        if unused:
            listed = ", ".join(map(repr, unused[:_MAX_SHOWN]))
            more = f" and {len(unused) - _MAX_SHOWN} more" if len(unused) > _MAX_SHOWN else ""
            raise NotSupported(
                f"model {self.file.name!r}: tensors are not part of architecture {self.config.name}: {listed}{more}"
            )

    def proto(self) -> ModelProto:
        """Return the network, whose initializers have no data."""
        config, element = self.config, self.element
        rows: list[str | int] = ["batch", config.kv_heads, "past", config.head_size]
        caches = [(n, part) for n in range(config.layers) if self.is_attention(n) for part in ("key", "value")]
        read = {name for node in self.nodes for name in node.input}
        inputs = [
            helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "new"]),
            *(
                helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "new"])
                for name in ("position_ids",)
                if name in read
            ),
            *(
                helper.make_tensor_value_info(name, TensorProto.INT32, ["batch"])
                for name in (PAST_LENGTH, NEW_LENGTH)
                if name in read
            ),
            *(
                [helper.make_tensor_value_info("attention_mask", TensorProto.INT64, ["batch", "total"])]
                if caches
                else []
            ),
            *(helper.make_tensor_value_info(f"past_state.{name}", *form) for name, form in self.states.items()),
            *(helper.make_tensor_value_info(f"past_key_values.{n}.{part}", element, rows) for n, part in caches),
        ]
        outputs = [
            helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", "new", config.vocabulary]),
            *(helper.make_tensor_value_info(f"present_state.{name}", *form) for name, form in self.states.items()),
            *(
                helper.make_tensor_value_info(f"present.{n}.{part}", element, [*rows[:2], "rows", rows[3]])
                for n, part in caches
            ),
        ]
        initializers = [
            TensorProto(
                name=name,
                dims=value.shape,
                data_type=ELEMENT_TYPES[value.data_type],
                data_location=TensorProto.EXTERNAL,
            )
            for name, value in self.weights.items()
        ]
        graph = helper.make_graph(self.nodes, self.file.name, inputs, outputs, initializers)
        sets = [helper.make_opsetid("", _OPSET), *(helper.make_opsetid(name, 1) for name in (_CONTRIBUTED, DMLGPU))]
        return helper.make_model(graph, opset_imports=sets, ir_version=_IR_VERSION)


def network_of(
    file: GgufFile, config: NetworkConfig, dtype: np.dtype[Any]
) -> tuple[ModelProto, Mapping[str, OnnxValue]]:
    """Return the network of a file, and the initializers that the ModelProto refers to, by name.

    Args:
        file: The file.
        config: Result of ``network_config`` for the file.
        dtype: Type of activations and caches, float32 or float16.

    Raises:
        ModelError: If a tensor is missing or has another shape.
        NotSupported: If a tensor is stored in an unsupported way, or is not part of the architecture.
    """
    writer = NetworkWriter(file, config, dtype)
    writer.network()
    return writer.proto(), writer.weights
