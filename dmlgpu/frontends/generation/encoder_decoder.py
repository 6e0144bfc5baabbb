"""Models with an encoder and a decoder, as Optimum exports them: T5, BART, Whisper.

The encoder and the part of ``decoder_model.onnx`` that makes keys and values of its states run once per prompt.
``decoder_with_past_model.onnx`` takes one token at a time, the first one with empty caches, so that the weights of a
decoder are needed once. Its caches get fixed rows (``fixed_rows``); networks that cannot be rewritten append to them,
so that each length is compiled. Those of the encoder's states stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, ValueInfoProto, helper, numpy_helper

from dmlgpu.common.errors import InvalidArgument, ModelError, NotSupported, shown
from dmlgpu.frontends.generation.branches import take_branch
from dmlgpu.frontends.generation.decoding import SMALLEST_CHUNK, Scores, grow_caches, rows_for, run_recorded
from dmlgpu.frontends.generation.editing import drop_unread, index_type, replace_entries
from dmlgpu.frontends.generation.fixed_rows import fix_rows
from dmlgpu.frontends.generation.joining import without_data
from dmlgpu.frontends.generation.language_model import CacheFormat, EncoderNetworks, LanguageModel
from dmlgpu.frontends.generation.memory import MemoryNeed
from dmlgpu.frontends.generation.network import AFTER, BEST, LOGITS, PAST, TOKENS, KeyValueCache, StepNetwork, as_step
from dmlgpu.frontends.generation.shared_weights import SharedWeights
from dmlgpu.frontends.onnx.model import OnnxModel, Source, light
from dmlgpu.frontends.onnx.model import read as read_network
from dmlgpu.frontends.onnx.session import Session, bind_own
from dmlgpu.frontends.onnx.values import OnnxValue
from dmlgpu.frontends.onnx.weights import Weights
from dmlgpu.ops import zeros
from dmlgpu.runtime.device import Device
from dmlgpu.tensors.recorded_call import RecordedCall
from dmlgpu.tensors.tensor import Tensor

_STATES, _MASK = "encoder_hidden_states", "encoder_attention_mask"
_FEATURES = ("input_features", "input_values")
_PLACES = "cache_position"
_IDS = ("input_ids", "decoder_input_ids")
_CACHE = re.compile(r"(?:past_key_values|past|present)\.(\d+)\.(decoder|encoder)\.(key|value)")
_ADDED = "step.suppressed"
_SUPPRESSED = -1e30
"""Added to the logits of suppressed tokens."""

_CacheKey: TypeAlias = tuple[bool, int, str]
"""Identity of a cache: whether it holds the encoder's states, its layer, and ``key`` or ``value``."""


@dataclass(frozen=True)
class _Network:
    """One of the networks, and its large initializers by name."""

    name: str
    proto: ModelProto
    folder: Path | None
    values: dict[str, OnnxValue]

    @classmethod
    def of(cls, source: Source, weights: SharedWeights, *, cached: bool = False) -> _Network:
        """Read a network, or one of its branches: the one with caches, or the other."""
        proto, folder, name = light(source)
        take_branch(proto, cached=cached)
        return cls(name, proto, folder, without_data(proto, folder, weights))

    @property
    def inputs(self) -> list[str]:
        """Names of its inputs."""
        initializers = {tensor.name for tensor in self.proto.graph.initializer}
        return [info.name for info in self.proto.graph.input if info.name not in initializers]

    def read(self) -> OnnxModel:
        """Return the network for a session."""
        return read_network(self.proto, folder=self.folder, external=self.values)

    def caches(self, infos: Iterable[ValueInfoProto]) -> dict[_CacheKey, ValueInfoProto]:
        """Return caches among inputs or outputs, those of the decoder first."""
        matches = [(_CACHE.fullmatch(info.name), info) for info in infos]
        caches = {(match[2] == "encoder", int(match[1]), match[3]): info for match, info in matches if match}
        return dict(sorted(caches.items()))

    def check(self, known: Iterable[str], output: str) -> None:
        """Raise unless its inputs are known and it has an output."""
        allowed = sorted(known)
        unknown = [name for name in self.inputs if name not in allowed]
        if unknown:
            raise NotSupported(f"{self.name}: inputs may be {', '.join(allowed)} and caches, got {', '.join(unknown)}")
        names = [info.name for info in self.proto.graph.output]
        if output not in names:
            raise ModelError(self.name, f"must have the output {output!r}, got {', '.join(names) or 'none'}")

    def keep(self, outputs: Iterable[str]) -> None:
        """Remove all outputs but some, and the inputs, nodes and weights that only the others need."""
        graph, names = self.proto.graph, set(outputs)
        replace_entries(graph.output, [info for info in graph.output if info.name in names])
        drop_unread(graph)
        remaining = {tensor.name for tensor in graph.initializer}
        for name in [name for name in self.values if name not in remaining]:
            del self.values[name]

    def make_step(self, vocabulary: int) -> None:
        """Replace token ids by ``step.tokens``, and logits by those of the last token and the most likely one, after
        ``step.suppressed`` {vocabulary} was added."""
        graph = self.proto.graph
        (ids,) = [info for info in graph.input if info.name in _IDS]
        element = index_type(graph, ids.name, ids.type.tensor_type.elem_type)
        cast = helper.make_node("Cast", [TOKENS], [ids.name], TOKENS, to=element)
        graph.node.insert(0, cast)
        ids.CopyFrom(helper.make_tensor_value_info(TOKENS, TensorProto.INT32, ["batch", "new"]))
        graph.input.append(helper.make_tensor_value_info(_ADDED, TensorProto.FLOAT, [vocabulary]))
        graph.initializer.append(numpy_helper.from_array(np.array(-1), "step.last_index"))
        for op_type, inputs, output, attributes in (
            ("Gather", ["logits", "step.last_index"], "step.last", {"axis": 1}),
            ("Cast", ["step.last"], "step.unlimited", {"to": TensorProto.FLOAT}),
            ("Add", ["step.unlimited", _ADDED], LOGITS, {}),
            ("ArgMax", [LOGITS], "step.best.wide", {"axis": -1, "keepdims": 1}),
            ("Cast", ["step.best.wide"], BEST, {"to": TensorProto.INT32}),
        ):
            graph.node.append(helper.make_node(op_type, inputs, [output], output, **attributes))
        others = [info for info in graph.output if info.name != "logits"]
        steps = [
            helper.make_tensor_value_info(LOGITS, TensorProto.FLOAT, ["batch", vocabulary]),
            helper.make_tensor_value_info(BEST, TensorProto.INT32, ["batch", 1]),
        ]
        replace_entries(graph.output, [*steps, *others])


@dataclass(frozen=True)
class EncoderDecoderNetwork:
    """The networks of a model with an encoder, as steps.

    Attributes:
        settings: Settings of the encoder.
        start: Tokens that begin an answer.
        encoder: Network from prompts to states.
        cross: Network from states to the caches of keys and values of all layers.
        decoder: Network of one token. Networks share the objects of equal weights.
        caches: Caches of the decoder's tokens.
        cross_caches: Caches of the encoder's states.
        vocabulary: Number of logits.
        weight_bytes: Bytes of the weights.
        largest_bytes: Bytes of the largest of them.
        is_fixed: Whether the caches of the decoder's tokens have fixed rows; else they grow by concatenation.
    """

    settings: EncoderNetworks
    start: tuple[int, ...]
    encoder: _Network
    cross: _Network
    decoder: _Network
    caches: tuple[KeyValueCache, ...]
    cross_caches: tuple[KeyValueCache, ...]
    vocabulary: int
    weight_bytes: int
    largest_bytes: int
    is_fixed: bool

    repeated_bytes: ClassVar[int] = 0

    @property
    def row_bytes(self) -> int:
        """Bytes that a token of the answer takes in all caches."""
        return sum(cache.row_bytes for cache in self.caches)

    def cache_bytes(self, context: int) -> int:
        """Return the bytes of all caches of a prompt; those of the encoder's states have the same size and are not
        copied."""
        return ((1 if self.is_fixed else 2) * context + self.settings.prompt_length) * self.row_bytes

    @property
    def cache_kind(self) -> str:
        """Text that describes how the caches change."""
        return "a row per token of the context" if self.is_fixed else "grow by concatenation"

    @property
    def features(self) -> str | None:
        """Name of the input of the encoder if prompts are arrays of features, of audio for example; else None."""
        return next((name for name in self.encoder.inputs if name in _FEATURES), None)


def step_network(
    model: LanguageModel,
    cache: CacheFormat | None = None,
    *,
    context: int | None = None,
    has_integer_activations: bool = False,
    has_every: bool = False,
) -> StepNetwork | EncoderDecoderNetwork:
    """Return the network of a model as steps.

    Args:
        model: The model.
        cache: Format of its caches; None keeps that of the network.
        context: As for ``as_step``.
        has_integer_activations: Likewise.
        has_every: Likewise, of decoders.

    Raises:
        ModelError: If a network is malformed, lacks an input or output, or contradicts the configuration.
        NotSupported: If it needs other inputs, or its caches cannot have this type.
    """
    settings, config = model.encoder, model.config
    if settings is None:
        return as_step(
            model.network,
            config,
            cache,
            weights=model.weights,
            context=context,
            has_integer_activations=has_integer_activations,
            has_every=has_every,
        )
    if cache is not None:
        raise NotSupported(f"model {model.name!r}: caches that grow keep the network's type; omit cache_dtype")
    if has_integer_activations:
        raise NotSupported(f"model {model.name!r}: networks with an encoder keep floats; omit activation_dtype")
    weights = SharedWeights()
    encoder, cross = (_Network.of(source, weights) for source in (settings.encoder, settings.first))
    decoder = _Network.of(model.network, weights, cached=True)
    encoder.check(("input_ids", "attention_mask", *_FEATURES), "last_hidden_state")
    pasts = decoder.caches(decoder.proto.graph.input)
    cross.check((*_IDS, _STATES, _MASK, _PLACES), "logits")
    decoder.check((*_IDS, _STATES, _MASK, _PLACES, *(info.name for info in pasts.values())), "logits")
    if len(pasts) != 4 * config.layers:
        raise ModelError(
            decoder.name,
            f"must have caches of keys and values for {config.layers} layers, as the configuration says, both of the "
            f"decoder and of the encoder's states, got {len(pasts)} inputs past_key_values.N.decoder.key and so on",
        )
    presents = {True: cross.caches(cross.proto.graph.output), False: decoder.caches(decoder.proto.graph.output)}
    caches: list[KeyValueCache] = []
    for key, info in pasts.items():
        of_encoder, *_ = key
        if key not in presents[of_encoder]:
            raise ModelError(model.name, f"cache {info.name!r} has no output that makes or updates it")
        names = info.name, presents[of_encoder][key].name
        element = info.type.tensor_type.elem_type
        caches.append(KeyValueCache(*names, config.kv_heads, config.head_size, element))
    half = len(caches) // 2
    cross.keep(cache.present for cache in caches[half:])
    decoder.keep(["logits", *(cache.present for cache in caches[:half])])
    is_fixed = fix_rows(decoder.proto, decoder.folder, decoder.values, caches[:half])
    decoder.make_step(config.vocabulary)
    arrays = {id(value.array): value.array for part in (encoder, cross, decoder) for value in part.values.values()}
    sizes = [array.nbytes for array in arrays.values() if array is not None]
    return EncoderDecoderNetwork(
        settings,
        config.start,
        encoder,
        cross,
        decoder,
        tuple(caches[:half]),
        tuple(caches[half:]),
        config.vocabulary,
        weight_bytes=sum(sizes),
        largest_bytes=max(sizes, default=0),
        is_fixed=is_fixed,
    )


class EncodedDecoding:
    """Decoding of models with an encoder.

    Args:
        network: Their networks.
        device: Device to run on.
        context: Maximum number of tokens of an answer.
        label: Name of the model in messages.

    Attributes:
        sessions: Sessions of the encoder, of the caches of its states, and of the decoder.
    """

    shares_prompts = False

    def __init__(self, network: EncoderDecoderNetwork, device: Device, *, context: int, label: str):
        self._network, self._device, self._context, self._label = network, device, context, label
        self.memory = MemoryNeed.of(network, context, device)
        self.memory.check(label, device)
        self.takes_features = network.features is not None
        weights = Weights(device)
        networks = (network.encoder, network.cross, network.decoder)
        self.sessions = tuple(Session(part.read(), device, weights=weights) for part in networks)
        self._encoder, self._cross, self._decoder = self.sessions
        self._count = self._capacity = 0  # tokens in the caches, and their rows if these are fixed
        self._after = Tensor(np.zeros(1, np.int32), device=device)
        self._recorded: dict[int, RecordedCall | None] = {}

    @property
    def max_prompt(self) -> int:
        """Maximum number of tokens of a prompt."""
        return self._network.settings.prompt_length

    @property
    def feature_sizes(self) -> tuple[Any, ...]:
        """Sizes of a prompt that is an array of features; those that are free are no integers."""
        (shape,) = [info.shape for info in self._encoder.inputs if info.name == self._network.features]
        return (None,) * 2 if shape is None else shape[1:]

    def features_of(self, prompt: Any) -> NDArray[Any] | None:
        """Return a prompt of a model that takes features; None if it takes tokens.

        Raises:
            InvalidArgument: If it is not an array of that shape.
        """
        name = self._network.features
        if name is None:
            return None
        sizes = self.feature_sizes
        fits = isinstance(prompt, np.ndarray) and prompt.dtype.kind == "f" and len(prompt.shape) == len(sizes)
        if not fits or any(
            isinstance(size, int) and size != axis for size, axis in zip(sizes, prompt.shape, strict=True)
        ):
            listed = ", ".join("?" if not isinstance(size, int) else str(size) for size in sizes)
            actual = f"an array of shape {list(prompt.shape)}" if isinstance(prompt, np.ndarray) else shown(prompt)
            raise InvalidArgument(
                f"{self._label}: prompt must be a floating-point array [{listed}], the encoder's {name!r}, got {actual}"
            )
        return np.asarray(prompt)

    def history(self, prompt: Any) -> list[int]:
        """Return the tokens that begin an answer."""
        return list(self._network.start)

    def prepare(self, prompts: Sequence[Any], cached: list[int]) -> int:
        """Check the sizes of the prompts' caches. They start empty."""
        self.memory = MemoryNeed.of(self._network, self._context, self._device, len(prompts))
        self.memory.check(self._label, self._device)
        return 0

    def prefill(self, prompts: Sequence[Any], reused: int) -> Scores:
        """Encode the prompts, and run the tokens that begin an answer."""
        network = self._network
        inputs, mask = self._encoder_inputs(prompts)
        states = self._encoder.run_tensors(inputs, ["last_hidden_state"])["last_hidden_state"]
        starts = self._starts(len(prompts))
        known = {_STATES: states, _MASK: mask}
        fed = known | dict.fromkeys(_IDS, starts) | {_PLACES: np.arange(starts.shape[1])}
        keys_and_values = self._cross.run_tensors(_inputs_of(fed, network.cross))
        known |= {cache.past: keys_and_values[cache.present] for cache in network.cross_caches}
        for name, value in _inputs_of(known, network.decoder).items():
            self._decoder.bind(name, value)
        return self.restart(len(prompts))

    def _starts(self, rows: int) -> NDArray[np.int64]:
        """Return the tokens that begin an answer, for each prompt."""
        return np.tile(np.array(self._network.start, np.int64), (rows, 1))

    def restart(self, rows: int) -> Scores:
        """Run the tokens that begin an answer to the prompts that were encoded last."""
        self._begin(rows)
        for step, column in enumerate(self._starts(rows).astype(np.int32).T, 1):
            self.suppress(is_first=step == len(self._network.start))
            scores = self.step(Tensor(column[:, None], device=self._device))
        self.suppress()
        return scores

    def _begin(self, rows: int) -> None:
        """Empty the caches."""
        network, self._count, self._capacity = self._network, 0, rows_for(1, self._context)
        self._after = Tensor(np.zeros(1, np.int32), device=self._device)
        for cache in network.caches:
            if network.is_fixed:
                shape = rows, cache.heads, self._capacity, cache.head_size
                empty: Tensor = zeros(shape, cache.dtype, device=self._device)
                bind_own(self._decoder, cache.past, empty, updated_by=cache.present)
            elif cache.past in self._decoder.bound:
                self._decoder.unbind(cache.past)

    def suppress(self, *, is_first: bool = False) -> None:
        """Suppress tokens from the next step on."""
        settings = self._network.settings
        tokens = (*settings.suppressed, *(settings.first_suppressed if is_first else ()))
        added = np.zeros(self._network.vocabulary, np.float32)
        added[[token for token in tokens if token < len(added)]] = _SUPPRESSED
        self._decoder.bind(_ADDED, added)
        self._recorded = {}

    def repeat(self, scores: Scores, count: int) -> Scores:
        """Raise NotSupported: ``shares_prompts`` is False."""
        raise NotSupported(f"{self._label}: prompts run once per answer")

    def hidden(self, prompt: Any) -> NDArray[np.float32]:
        """Raise NotSupported: models with an encoder have no embeddings."""
        raise NotSupported(f"{self._label}: embeddings are those of models without an encoder")

    def step(self, tokens: Tensor) -> Scores:
        """Run the next tokens."""
        return self._step_in_place(tokens) if self._network.is_fixed else self._growing_step(tokens)

    def _step_in_place(self, tokens: Tensor) -> Scores:
        """Run the next tokens in caches with fixed rows."""
        capacity = rows_for(self._count + 1, self._context)
        if capacity > self._capacity:
            updates = {cache.past: cache.present for cache in self._network.caches}
            grow_caches(self._decoder, updates, self._capacity, capacity)
            self._capacity, self._recorded = capacity, {}
        self._count += 1
        inputs = {TOKENS: tokens, PAST: self._after}
        logits, best, self._after = run_recorded(self._decoder, self._recorded, inputs, (LOGITS, BEST, AFTER))
        return logits, best

    def _growing_step(self, tokens: Tensor) -> Scores:
        """Run the next tokens; the caches grow."""
        network, count = self._network, self._count
        inputs = {TOKENS: tokens, **_inputs_of({_PLACES: np.array([count])}, network.decoder)}
        self._count = 0  # after an exception, the caches do not match the tokens
        if count == 0:
            for cache in network.caches:
                inputs[cache.past] = np.zeros((tokens.shape[0], cache.heads, 0, cache.head_size), cache.dtype)
            names = [LOGITS, BEST, *(cache.present for cache in network.caches)]
            outputs = self._decoder.run_tensors(inputs, names)
            for cache in network.caches:
                self._decoder.bind(cache.past, outputs[cache.present], updated_by=cache.present)
        else:
            outputs = self._decoder.run_tensors(inputs, [LOGITS, BEST])
        self._count = count + 1
        logits, best = outputs[LOGITS], outputs[BEST]
        assert isinstance(logits, Tensor)
        assert isinstance(best, Tensor)
        return logits, best

    def _encoder_inputs(self, prompts: Sequence[Any]) -> tuple[dict[str, Any], NDArray[np.int64]]:
        """Return the inputs of the encoder, and the mask of its states."""
        network = self._network
        if network.features is not None:
            features = np.stack([np.asarray(prompt) for prompt in prompts])
            (info,) = [info for info in self._encoder.inputs if info.name == network.features]
            states = np.ones((len(prompts), 1), np.int64)
            return {network.features: features.astype(info.dtype)}, states
        size = max(map(len, prompts))
        if "attention_mask" in network.encoder.inputs and _MASK in network.decoder.inputs:
            size = min(max(SMALLEST_CHUNK, 1 << (size - 1).bit_length()), self.max_prompt)  # few shapes are compiled
        elif size != min(map(len, prompts)):
            raise InvalidArgument(
                f"{self._label}: its networks have no attention masks: prompts of a batch must have equal lengths"
            )
        tokens = np.full((len(prompts), size), network.settings.padding, np.int64)
        mask = np.zeros_like(tokens)
        for row, seen, prompt in zip(tokens, mask, prompts, strict=True):
            row[: len(prompt)] = prompt
            seen[: len(prompt)] = 1
        return _inputs_of({"input_ids": tokens, "attention_mask": mask}, network.encoder), mask


def _inputs_of(values: Mapping[str, Any], network: _Network) -> dict[str, Any]:
    """Return the values that a network takes."""
    return {name: value for name, value in values.items() if name in network.inputs}
