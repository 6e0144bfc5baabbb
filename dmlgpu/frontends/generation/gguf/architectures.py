"""The configuration of a network from the metadata of a GGUF file: one set of switches for all architectures."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dmlgpu.common.errors import InvalidArgument, ModelError, NotSupported, shown
from dmlgpu.frontends.generation.gguf.files import GgufFile
from dmlgpu.frontends.generation.gguf.weights import check_supported, floats
from dmlgpu.frontends.onnx.tensor_proto import DeferredArray

_MAX_LAYERS = 1024
_MAX_CONTEXT = 1 << 24
_MAX_EXPERTS = 1 << 12
_MAX_TAPS = 64
_SOFTMAX, _SIGMOID, _SOFTMAX_OF_SELECTED = 1, 2, 3
"""Values of ``expert_gating_func``: weights of experts by a softmax over all of them, by sigmoids, or by a softmax over
those selected."""

_LARGEST_LLAMA4 = 128
"""Number of experts of the only Llama 4 that does not normalize heads."""


@dataclass(frozen=True)
class Architecture:
    """Properties of an architecture that its files do not mention.

    Attributes:
        interleaved: Whether rotary embeddings rotate adjacent elements, not elements half a head apart.
        gelu: Whether the gate's activation is GELU, not SiLU.
        scales_embeddings: Whether embeddings are multiplied by the root of their size.
        window_period: Period of layers without a sliding window; 0 if all layers are alike.
        softcaps: Default soft caps of attention and of logits; 0 for none.
        local_base: Base of the rotary embedding in layers with a sliding window; 0 if all layers share one.
        wide_scale_layers: Number of layers of the variant that scales attention by hidden size per head, not head size.
        normalizes_experts: Whether the weights of the selected experts are divided by their sum.
        gate_limit: Limit of the factors of the gated product, which then has a sigmoid of 1.702 times the gate, and
            adds 1 to the other factor; 0 for none.
        rounds_yarn: Whether YaRN rounds the pairs between which it divides frequencies in part.
        middle_norm: Normalization between attention and perceptron.
        normalizes_after: Whether layers normalize only the results of attention and perceptron, not their inputs.
        plain_period: Period of layers without rotary embedding; 0 if all layers have one.
        chunk: Default number of positions of a chunk, to which layers with a rotary embedding limit attention instead
            of to a sliding window; other layers scale queries by their position. 0 for windows.
        has_sigmoids, weighs_inputs: As of Experts.
        alternates: Whether a layer has one part, attention, a state space or a perceptron, not a perceptron after one.
        squares_relu: Whether perceptrons square a ReLU instead of multiplying by a gate.
        last_norm: Normalization after the last layer.
    """

    interleaved: bool = False
    gelu: bool = False
    scales_embeddings: bool = False
    window_period: int = 0
    softcaps: tuple[float, float] = (0.0, 0.0)
    local_base: float = 0.0
    wide_scale_layers: int = 0
    normalizes_experts: bool = True
    gate_limit: float = 0.0
    rounds_yarn: bool = True
    middle_norm: str = "ffn_norm"
    normalizes_after: bool = False
    plain_period: int = 0
    chunk: int = 0
    has_sigmoids: bool = False
    weighs_inputs: bool = False
    alternates: bool = False
    squares_relu: bool = False
    last_norm: str = "output_norm"


ARCHITECTURES: Mapping[str, Architecture] = {
    "llama": Architecture(interleaved=True),
    "llama4": Architecture(
        interleaved=True,
        plain_period=4,
        window_period=4,
        chunk=8192,
        has_sigmoids=True,
        weighs_inputs=True,
        normalizes_experts=False,
    ),
    "qwen2": Architecture(),
    "qwen3": Architecture(),
    "qwen2moe": Architecture(normalizes_experts=False),
    "qwen3moe": Architecture(),
    "olmo2": Architecture(normalizes_after=True),
    "smollm3": Architecture(interleaved=True, plain_period=4),
    "granite": Architecture(interleaved=True),
    "granitemoe": Architecture(interleaved=True),
    "granitehybrid": Architecture(interleaved=True),
    "mamba2": Architecture(alternates=True),
    "nemotron_h": Architecture(alternates=True, squares_relu=True, plain_period=1),
    "nemotron_h_moe": Architecture(alternates=True, squares_relu=True, plain_period=1, has_sigmoids=True),
    "falcon-h1": Architecture(),
    "lfm2": Architecture(last_norm="token_embd_norm"),
    "lfm2moe": Architecture(last_norm="token_embd_norm", has_sigmoids=True),
    "olmoe": Architecture(normalizes_experts=False),
    "gpt-oss": Architecture(window_period=2, gate_limit=7.0, rounds_yarn=False, middle_norm="post_attention_norm"),
    "phi3": Architecture(),
    "gemma": Architecture(gelu=True, scales_embeddings=True),
    "gemma2": Architecture(
        gelu=True, scales_embeddings=True, window_period=2, softcaps=(50.0, 30.0), wide_scale_layers=46
    ),
    "gemma3": Architecture(
        gelu=True, scales_embeddings=True, window_period=6, local_base=10000.0, wide_scale_layers=62
    ),
}
"""Supported architectures by their name in a file; files of Mistral models say ``llama``."""


@dataclass(frozen=True)
class Rotary:
    """A rotary embedding.

    Attributes:
        size: Elements of a head that are rotated.
        base: Base of the frequencies.
        factor: Divisor of positions (linear), or of low frequencies (YaRN).
        original: Context length before YaRN; 0 for linear scaling.
        betas: Rotations over the original context above which YaRN keeps a frequency, and below which it divides it.
        divisors: Divisors of the frequencies, as in Llama 3; None for none.
        gain: Factor of cosines and sines.
        rounds: Whether YaRN rounds the pairs between which it divides frequencies in part.
    """

    size: int
    base: float
    factor: float = 1.0
    original: int = 0
    betas: tuple[float, float] = (32.0, 1.0)
    divisors: tuple[float, ...] | None = None
    gain: float = 1.0
    rounds: bool = True

    @property
    def frequencies(self) -> NDArray[np.float64]:
        """Angle of each pair at position 1."""
        pairs = self.size // 2
        frequencies = self.base ** -(np.arange(pairs) / pairs)
        if self.divisors is not None:
            frequencies = frequencies / np.array(self.divisors)
        if not self.original:
            return np.asarray(frequencies / self.factor)
        low, high = (self._pair_with(rotations) for rotations in self.betas)
        if self.rounds:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, self.size - 1)
        divided = np.clip((np.arange(pairs) - low) / max(high - low, 0.001), 0, 1)
        return np.asarray(frequencies * (1 - divided) + frequencies / self.factor * divided)

    def _pair_with(self, rotations: float) -> float:
        """Return the pair that makes a given number of rotations over the original context."""
        pairs = self.size / 2
        return pairs * math.log(self.original / (rotations * 2 * math.pi)) / math.log(self.base)

    def tables(self, positions: int, dtype: np.dtype[np.generic]) -> tuple[DeferredArray, DeferredArray]:
        """Return cosines and sines {positions, pairs}."""
        frequencies, gain = self.frequencies, self.gain

        def cosines(span: slice) -> NDArray[np.float64]:
            return np.cos(np.arange(span.start, span.stop)[:, None] * frequencies) * gain

        def sines(span: slice) -> NDArray[np.float64]:
            return np.sin(np.arange(span.start, span.stop)[:, None] * frequencies) * gain

        shape, row_bytes = (positions, self.size // 2), 16 * self.size
        return DeferredArray(shape, dtype, cosines, row_bytes), DeferredArray(shape, dtype, sines, row_bytes)


@dataclass(frozen=True)
class Temperature:
    """Factors of queries by position: 1 + scale * log(1 + floor((position + 1) / length)).

    Attributes:
        length: Positions that have the same factor.
        scale: Scale of the logarithm.
    """

    length: int
    scale: float

    def table(self, positions: int) -> NDArray[np.float64]:
        """Return the factors {positions, 1}."""
        counts = np.arange(1, positions + 1)[:, None] // self.length
        return np.asarray(1 + self.scale * np.log1p(counts))


@dataclass(frozen=True)
class Experts:
    """A mixture of experts in place of a perceptron.

    Attributes:
        count, used: Number of experts, and of those that a token selects.
        inner, shared_inner: Size of the gated product of an expert, and of the one that all tokens use.
        normalizes: Whether the weights of the selected experts are divided by their sum.
        scale: Factor of the weights.
        has_sigmoids: Whether the weights are sigmoids, to which files may add a bias for the selection alone.
        weighs_inputs: Whether the weights are factors of the inputs of the experts, not of their results.
    """

    count: int
    used: int
    inner: int
    shared_inner: int
    normalizes: bool
    scale: float
    has_sigmoids: bool
    weighs_inputs: bool


@dataclass(frozen=True)
class StateSpace:
    """A layer with a state instead of keys and values.

    Attributes:
        taps: Rows that its convolution reads.
        inner: Channels of its values.
        heads: Heads of a state space; 0 of a layer with a convolution only.
        entries: Size of the state of a channel.
        groups: Groups of heads that share the vectors by which states are written and read.
    """

    taps: int
    inner: int
    heads: int = 0
    entries: int = 0
    groups: int = 1

    @property
    def channels(self) -> int:
        """Channels of the convolution."""
        return self.inner + 2 * self.groups * self.entries


@dataclass(frozen=True)
class NetworkConfig:
    """Sizes and switches of a network.

    Attributes:
        name: Architecture.
        traits: Its properties.
        layers, hidden, inner, vocabulary: Number of layers, size of embeddings, of the gated product, of logits.
        heads, kv_heads, head_size: Sizes of attention; 0 if no layer has it.
        context_length: Number of positions.
        epsilon: Epsilon of normalizations.
        scale: Scale of attention.
        softcaps: Soft caps of attention and of logits; 0 for none.
        windows: Sliding window, or chunk, of each layer; 0 for none.
        rotary, local_rotary: Rotary embedding, and that of layers with a window.
        experts: The mixture of experts; None if there is none.
        state_space: Layers with a state; None if there are none.
        rotated: Whether each layer has a rotary embedding.
        normalizes_heads: Whether layers with one normalize queries and keys per head without weights.
        temperature: Factors of queries in layers without one; None for none.
        embedding_scale, residual_scale, logit_scale: Factors of embeddings and of the results of attention and
            perceptrons, and divisor of logits.
    """

    name: str
    traits: Architecture
    layers: int
    hidden: int
    inner: int
    vocabulary: int
    heads: int
    kv_heads: int
    head_size: int
    context_length: int
    epsilon: float
    scale: float
    softcaps: tuple[float, float]
    windows: tuple[int, ...]
    rotary: Rotary
    local_rotary: Rotary
    experts: Experts | None
    state_space: StateSpace | None
    rotated: tuple[bool, ...]
    normalizes_heads: bool
    temperature: Temperature | None
    embedding_scale: float
    residual_scale: float
    logit_scale: float


def network_config(file: GgufFile, context: int | None = None) -> NetworkConfig:
    """Return the configuration of the network in a file.

    Args:
        file: The file.
        context: Number of positions; defaults to all that the model was trained for.

    Raises:
        ModelError: If metadata are missing, or sizes contradict each other.
        NotSupported: If the architecture is not supported.
        InvalidArgument: If `context` is larger than the model's.
    """
    name = file.text("general.architecture")
    traits = ARCHITECTURES.get(name)
    if traits is None:
        supported = ", ".join(ARCHITECTURES)
        raise NotSupported(
            f"model {file.name!r}: architecture {shown(name)} is not supported: it must be one of {supported}"
        )
    trained = file.integer(f"{name}.context_length", high=_MAX_CONTEXT)
    positions = trained if context is None else context
    if not isinstance(positions, int) or not 1 <= positions <= trained:
        raise InvalidArgument(
            f"model {file.name!r}: context must be an integer from 1 to {trained}, got {shown(context)}"
        )
    layers, hidden = file.integer(f"{name}.block_count", high=_MAX_LAYERS), file.integer(f"{name}.embedding_length")
    heads = _of_layers(file, f"{name}.attention.head_count")
    kv_heads = _of_layers(file, f"{name}.attention.head_count_kv", heads)
    head_size = file.integer(f"{name}.attention.key_length", hidden // heads) if heads else 0
    if (heads and not kv_heads) or heads % max(kv_heads, 1) or head_size % 2:
        raise ModelError(
            file.name,
            f"heads must be a multiple of key-value heads, of an even size, got {heads}, {kv_heads} and {head_size}",
        )
    value_size = file.integer(f"{name}.attention.value_length", head_size) if heads else 0
    if value_size != head_size:
        raise NotSupported(
            f"model {file.name!r}: heads of keys and values must have equal sizes, got {head_size} and {value_size}"
        )
    words = file.tensors.get("token_embd.weight")
    if words is None:
        raise ModelError(file.name, "tensor 'token_embd.weight' is missing")
    rotary = _rotary(file, name, head_size, positions) if heads else Rotary(0, 10000.0)
    base = file.number(f"{name}.rope.freq_base_swa", traits.local_base or rotary.base)
    is_wide = layers == traits.wide_scale_layers
    caps = [
        file.number(f"{name}.{key}_logit_softcapping", default)
        for key, default in zip(("attn", "final"), traits.softcaps, strict=True)
    ]
    experts, windows = _experts(file, name, traits), _windows(file, name, traits, layers)
    period = 0 if traits.chunk and not any(windows) else traits.plain_period
    if name == "granitehybrid" and not file.flag(f"{name}.rope.scaling.finetuned"):
        period = 1
    return NetworkConfig(
        name,
        traits,
        layers,
        hidden,
        _of_layers(file, f"{name}.feed_forward_length"),
        words.shape[0],
        heads,
        kv_heads,
        head_size,
        positions,
        file.number(f"{name}.attention.layer_norm_rms_epsilon"),
        file.number(f"{name}.attention.scale", 0.0) or 1 / math.sqrt(hidden / heads if is_wide else head_size or 1),
        (caps[0], caps[1]),
        windows,
        rotary,
        Rotary(rotary.size, base) if traits.local_base else replace(rotary, base=base),
        experts,
        _state_space(file, name, hidden),
        tuple(not period or bool((layer + 1) % period) for layer in range(layers)),
        bool(traits.chunk) and (experts is None or experts.count != _LARGEST_LLAMA4),
        _temperature(file, name, traits),
        *(file.number(f"{name}.{part}_scale", 1.0) for part in ("embedding", "residual", "logit")),
    )


def _experts(file: GgufFile, name: str, traits: Architecture) -> Experts | None:
    """Return the mixture of experts; None if the file has none."""
    count = file.integer(f"{name}.expert_count", 0, low=0, high=_MAX_EXPERTS)
    if not count:
        return None
    allowed = (_SIGMOID,) if traits.has_sigmoids else (_SOFTMAX, _SOFTMAX_OF_SELECTED)
    gating = file.integer(f"{name}.expert_gating_func", allowed[0])
    if gating not in allowed:
        kind = "sigmoid" if traits.has_sigmoids else "softmax"
        raise NotSupported(
            f"model {file.name!r}: {name}.expert_gating_func must be {allowed[0]} ({kind}), got {gating}"
        )
    if file.integer(f"{name}.expert_group_count", 1, low=0) > 1:
        raise NotSupported(f"model {file.name!r}: {name}.expert_group_count must be 1: groups are not supported")
    inner = file.integer(f"{name}.expert_feed_forward_length", _of_layers(file, f"{name}.feed_forward_length"))
    return Experts(
        count,
        file.integer(f"{name}.expert_used_count", high=count),
        inner,
        file.integer(f"{name}.expert_shared_feed_forward_length", inner),
        gating == _SOFTMAX_OF_SELECTED or file.flag(f"{name}.expert_weights_norm", traits.normalizes_experts),
        file.number(f"{name}.expert_weights_scale", 1.0),
        traits.has_sigmoids,
        traits.weighs_inputs,
    )


def _of_layers(file: GgufFile, key: str, default: int | None = None) -> int:
    """Return a size that layers of an array have, unless they have 0."""
    value = file.metadata.get(key)
    if isinstance(value, np.ndarray) and value.dtype.kind in "iu" and value.size:
        sizes = np.unique(value[value != 0]) if value.any() else value[:1]
        if len(sizes) > 1 or not 0 <= sizes[0] < 1 << 31:
            raise NotSupported(f"model {file.name!r}: {key} must be equal for all layers that have it, or 0")
        return int(sizes[0])
    return file.integer(key, default, low=0)


def _state_space(file: GgufFile, name: str, hidden: int) -> StateSpace | None:
    """Return the sizes of layers with a state; None if the file has none."""
    if f"{name}.shortconv.l_cache" in file.metadata:
        return StateSpace(file.integer(f"{name}.shortconv.l_cache", low=2, high=_MAX_TAPS), hidden)
    prefix = f"{name}.ssm"
    if f"{prefix}.state_size" not in file.metadata:
        return None
    space = StateSpace(
        file.integer(f"{prefix}.conv_kernel", low=2, high=_MAX_TAPS),
        file.integer(f"{prefix}.inner_size"),
        file.integer(f"{prefix}.time_step_rank"),
        file.integer(f"{prefix}.state_size"),
        file.integer(f"{prefix}.group_count", 1),
    )
    if space.inner % space.heads or space.heads % space.groups:
        raise ModelError(
            file.name,
            f"{prefix}.inner_size must be a multiple of time_step_rank, and this of group_count, got {space.inner}, "
            f"{space.heads} and {space.groups}",
        )
    return space


def _temperature(file: GgufFile, name: str, traits: Architecture) -> Temperature | None:
    """Return the factors of queries; None if the architecture has none."""
    if not traits.chunk:
        return None
    length = file.integer(f"{name}.attention.temperature_length", traits.chunk)
    return Temperature(length, file.number(f"{name}.attention.temperature_scale", 0.1))


def _windows(file: GgufFile, name: str, traits: Architecture, layers: int) -> tuple[int, ...]:
    """Return the sliding window or the chunk of each layer; 0 for none."""
    window = file.integer(f"{name}.attention.sliding_window", traits.chunk, low=0)
    pattern = file.metadata.get(f"{name}.attention.sliding_window_pattern", traits.window_period)
    if isinstance(pattern, np.ndarray):
        if len(pattern) < layers:
            raise ModelError(file.name, f"{name}.attention.sliding_window_pattern must have {layers} elements")
        return tuple(window if slides else 0 for slides in pattern[:layers])
    period = file.integer(f"{name}.attention.sliding_window_pattern", traits.window_period, low=0)
    return tuple(window if not period or (layer + 1) % period else 0 for layer in range(layers))


def _rotary(file: GgufFile, name: str, head_size: int, positions: int) -> Rotary:
    size = file.integer(f"{name}.rope.dimension_count", head_size)
    if size % 2 or size > head_size:
        raise ModelError(
            file.name, f"{name}.rope.dimension_count must be even and at most the head size {head_size}, got {size}"
        )
    base, prefix = file.number(f"{name}.rope.freq_base", 10000.0), f"{name}.rope.scaling"
    factor = file.number(f"{prefix}.factor", file.number(f"{name}.rope.scale_linear", 1.0))
    if base <= 1 or factor <= 0:
        raise ModelError(file.name, f"{name}.rope.freq_base must exceed 1 and its factor 0, got {base} and {factor}")
    kind = file.text(f"{prefix}.type", "linear" if factor != 1 else "none")
    gain = file.number(f"{prefix}.attn_factor", 1.0)
    divisors = _divisors(file, "rope_freqs.weight", size)
    trained = file.integer(f"{name}.context_length", high=_MAX_CONTEXT)
    original = file.integer(f"{prefix}.original_context_length", trained, high=_MAX_CONTEXT)
    long = "long" if positions > original else "short"
    divisors = divisors or _divisors(file, f"rope_factors_{long}.weight", size)
    if kind in ("none", "longrope"):
        return Rotary(size, base, divisors=divisors, gain=gain)
    if kind == "linear":
        return Rotary(size, base, factor, divisors=divisors, gain=gain)
    if kind != "yarn":
        raise NotSupported(f"model {file.name!r}: {prefix}.type must be none, linear, yarn or longrope, got {kind!r}")
    fast, slow = (
        file.number(f"{prefix}.yarn_{beta}", default) for beta, default in (("beta_fast", 32.0), ("beta_slow", 1.0))
    )
    if fast <= 0 or slow <= 0:
        raise ModelError(file.name, f"{prefix}.yarn_beta_fast and yarn_beta_slow must exceed 0, got {fast} and {slow}")
    gain *= 1 + 0.1 * math.log(factor) if factor > 1 else 1
    return Rotary(size, base, factor, original, (fast, slow), divisors, gain, ARCHITECTURES[name].rounds_yarn)


def _divisors(file: GgufFile, tensor_name: str, size: int) -> tuple[float, ...] | None:
    """Return a tensor of divisors of frequencies; None if the file has none."""
    tensor = file.tensors.get(tensor_name)
    if tensor is None:
        return None
    if tensor.shape != (size // 2,):
        raise ModelError(file.name, f"tensor {tensor} must have shape [{size // 2}]")
    check_supported(tensor, file.name)
    divisors = np.asarray(floats(tensor, np.float32))
    if not (np.isfinite(divisors).all() and (divisors > 0).all()):
        raise ModelError(file.name, f"tensor {tensor} must have positive elements")
    return tuple(float(divisor) for divisor in divisors)
