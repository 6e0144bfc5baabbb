"""Models with an encoder and a decoder, as Optimum exports them: T5, BART, Whisper.

Three networks share their weights: the encoder runs once per prompt, ``decoder_model.onnx`` takes the first tokens of
the answer and makes the caches, ``decoder_with_past_model.onnx`` takes one token at a time. Caches of the decoder grow,
and kernels are shared between their lengths; those of the encoder's states stay as they are.
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
from dmlgpu.frontends.generation.decoding import SMALLEST_CHUNK, Scores
from dmlgpu.frontends.generation.joining import SharedWeights, without_data
from dmlgpu.frontends.generation.language_model import EncoderNetworks, LanguageModel
from dmlgpu.frontends.generation.memory import MemoryNeed
from dmlgpu.frontends.generation.network import BEST, LOGITS, TOKENS, KeyValueCache, StepNetwork, as_step
from dmlgpu.frontends.onnx.model import OnnxModel, Source, light
from dmlgpu.frontends.onnx.model import read as read_network
from dmlgpu.frontends.onnx.segments import Weights
from dmlgpu.frontends.onnx.session import Session
from dmlgpu.frontends.onnx.values import OnnxValue
from dmlgpu.runtime.device import Device
from dmlgpu.tensors.tensor import Tensor

_STATES, _MASK = "encoder_hidden_states", "encoder_attention_mask"
_FEATURES = ("input_features", "input_values")
_PLACES = "cache_position"
_IDS = ("input_ids", "decoder_input_ids")
_CACHE = re.compile(r"(?:past_key_values|past|present)\.(\d+)\.(decoder|encoder)\.(key|value)")
_SUPPRESSED = -1e30
"""Added to logits of tokens that an answer must not have."""

_CacheKey: TypeAlias = tuple[bool, int, str]
"""Whether a cache is of the encoder's states, its layer, and its part: key or value."""


@dataclass(frozen=True)
class _Network:
    """One of the networks, and its large initializers by name."""

    name: str
    proto: ModelProto
    folder: Path | None
    values: Mapping[str, OnnxValue]

    @classmethod
    def of(cls, source: Source, weights: SharedWeights) -> _Network:
        proto, folder, name = light(source)
        return cls(name, proto, folder, without_data(proto, folder, weights))

    @property
    def inputs(self) -> list[str]:
        """Names of its inputs."""
        known = {tensor.name for tensor in self.proto.graph.initializer}
        return [info.name for info in self.proto.graph.input if info.name not in known]

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

    def make_step(self, vocabulary: int, suppressed: Iterable[int]) -> None:
        """Replace token ids by ``step.tokens``, and logits by those of the last token and the most likely one."""
        graph = self.proto.graph
        (ids,) = [info for info in graph.input if info.name in _IDS]
        cast = helper.make_node("Cast", [TOKENS], [ids.name], TOKENS, to=ids.type.tensor_type.elem_type)
        graph.node.insert(0, cast)
        ids.CopyFrom(helper.make_tensor_value_info(TOKENS, TensorProto.INT32, ["batch", "new"]))
        added = np.zeros(vocabulary, np.float32)
        added[[token for token in suppressed if token < vocabulary]] = _SUPPRESSED
        constants = {"step.last_index": np.array(-1), "step.suppressed": added}
        graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
        for op_type, inputs, output, attributes in (
            ("Gather", ["logits", "step.last_index"], "step.last", {"axis": 1}),
            ("Cast", ["step.last"], "step.unlimited", {"to": TensorProto.FLOAT}),
            ("Add", ["step.unlimited", "step.suppressed"], LOGITS, {}),
            ("ArgMax", [LOGITS], "step.best.wide", {"axis": -1, "keepdims": 1}),
            ("Cast", ["step.best.wide"], BEST, {"to": TensorProto.INT32}),
        ):
            graph.node.append(helper.make_node(op_type, inputs, [output], output, **attributes))
        others = [info for info in graph.output if info.name != "logits"]
        steps = [
            helper.make_tensor_value_info(LOGITS, TensorProto.FLOAT, ["batch", vocabulary]),
            helper.make_tensor_value_info(BEST, TensorProto.INT32, ["batch", 1]),
        ]
        outputs = [ValueInfoProto.FromString(info.SerializeToString()) for info in (*steps, *others)]
        del graph.output[:]
        graph.output.extend(outputs)


@dataclass(frozen=True)
class EncoderDecoderNetwork:
    """The networks of a model with an encoder, as steps.

    Attributes:
        settings: Of the encoder.
        start: Tokens that begin an answer.
        encoder, first, later: The networks. Weights that several have are the same objects.
        caches: Those of the decoder's tokens, then those of the encoder's states.
        vocabulary: Number of logits.
        weight_bytes: Bytes of the weights.
        largest_bytes: Bytes of the largest of them.
    """

    settings: EncoderNetworks
    start: tuple[int, ...]
    encoder: _Network
    first: _Network
    later: _Network
    caches: tuple[KeyValueCache, ...]
    vocabulary: int
    weight_bytes: int
    largest_bytes: int

    cache_kind: ClassVar[str] = "grow by concatenation"

    @property
    def row_bytes(self) -> int:
        """Bytes that a token of the answer takes in all caches."""
        return sum(cache.row_bytes for cache in self.caches) // 2

    def cache_bytes(self, context: int) -> int:
        """Return the bytes of all caches of a prompt; those of the encoder's states, of equal size, are not copied."""
        return (2 * context + self.settings.prompt_length) * self.row_bytes

    @property
    def features(self) -> str | None:
        """Name of the input of the encoder if prompts are arrays of features, of audio for example; else None."""
        return next((name for name in self.encoder.inputs if name in _FEATURES), None)


def step_network(model: LanguageModel, cache_dtype: np.dtype[Any] | None = None) -> StepNetwork | EncoderDecoderNetwork:
    """Return the network of a model as steps.

    Args:
        model: The model.
        cache_dtype: Type of its caches; None keeps that of the network.

    Raises:
        ModelError: If a network is malformed, lacks an input or output, or contradicts the configuration.
        NotSupported: If it needs other inputs, or its caches cannot have this type.
    """
    settings, config = model.encoder, model.config
    if settings is None:
        return as_step(model.network, config, cache_dtype)
    if cache_dtype is not None:
        raise NotSupported(f"model {model.name!r}: caches that grow keep the network's type; omit cache_dtype")
    weights = SharedWeights()
    encoder, first, later = (
        _Network.of(source, weights) for source in (settings.encoder, settings.first, model.network)
    )
    encoder.check(("input_ids", "attention_mask", *_FEATURES), "last_hidden_state")
    pasts = later.caches(later.proto.graph.input)
    first.check((*_IDS, _STATES, _MASK, _PLACES), "logits")
    later.check((*_IDS, _STATES, _MASK, _PLACES, *(info.name for info in pasts.values())), "logits")
    presents = first.caches(first.proto.graph.output), later.caches(later.proto.graph.output)
    if len(pasts) != 4 * config.layers:
        raise ModelError(
            later.name,
            f"must have caches of keys and values for {config.layers} layers, as the configuration says, both of the "
            f"decoder and of the encoder's states, got {len(pasts)} inputs past_key_values.N.decoder.key and so on",
        )
    for key, info in pasts.items():
        is_constant, *_ = key
        if key not in presents[0] or (key not in presents[1] and not is_constant):
            raise ModelError(model.name, f"cache {info.name!r} has no output that makes or updates it")
    caches = tuple(
        KeyValueCache(
            info.name,
            presents[0 if key[0] else 1][key].name,
            config.kv_heads,
            config.head_size,
            info.type.tensor_type.elem_type,
        )
        for key, info in pasts.items()
    )
    first.make_step(config.vocabulary, (*settings.suppressed, *settings.first_suppressed))
    later.make_step(config.vocabulary, settings.suppressed)
    arrays = {id(value.array): value.array for part in (encoder, first, later) for value in part.values.values()}
    sizes = [array.nbytes for array in arrays.values() if array is not None]
    totals = sum(sizes), max(sizes, default=0)
    return EncoderDecoderNetwork(settings, config.start, encoder, first, later, caches, config.vocabulary, *totals)


class EncodedDecoding:
    """Decoding of models with an encoder.

    Args:
        network: Their networks.
        device: Where they run.
        context: Maximum number of tokens of an answer.
        label: Name of the model in messages.
    """

    def __init__(self, network: EncoderDecoderNetwork, device: Device, *, context: int, label: str):
        self._network, self._device, self._context, self._label = network, device, context, label
        self.memory = MemoryNeed.of(network, context)
        self.memory.check(label, device)
        self.takes_features = network.features is not None
        weights = Weights(device)
        self._encoder, self._first, self._later = (
            Session(part.read(), device, weights=weights) for part in (network.encoder, network.first, network.later)
        )
        self._count = 0

    @property
    def most_prompt(self) -> int:
        """Maximum number of tokens of a prompt."""
        return self._network.settings.prompt_length

    def features_of(self, prompt: Any) -> NDArray[Any] | None:
        """Return a prompt of a model that takes features; None if it takes tokens.

        Raises:
            InvalidArgument: If it is no such array.
        """
        name = self._network.features
        if name is None:
            return None
        (shape,) = [info.shape for info in self._encoder.inputs if info.name == name]
        sizes = (None,) * 2 if shape is None else shape[1:]
        fits = isinstance(prompt, np.ndarray) and prompt.dtype.kind == "f" and len(prompt.shape) == len(sizes)
        if not fits or any(
            isinstance(size, int) and size != axis for size, axis in zip(sizes, prompt.shape, strict=True)
        ):
            listed = ", ".join("?" if not isinstance(size, int) else str(size) for size in sizes)
            what = f"an array of shape {list(prompt.shape)}" if isinstance(prompt, np.ndarray) else shown(prompt)
            raise InvalidArgument(
                f"{self._label}: prompt must be a floating-point array [{listed}], the encoder's {name!r}, got {what}"
            )
        return np.asarray(prompt)

    def history(self, prompt: Any) -> list[int]:
        """Return the tokens that begin an answer."""
        return list(self._network.start)

    def prepare(self, prompts: Sequence[Any], cached: list[int]) -> int:
        """Check what the caches of the prompts need. They are made from the beginning."""
        self.memory = MemoryNeed.of(self._network, self._context, len(prompts))
        self.memory.check(self._label, self._device)
        return 0

    def prefill(self, prompts: Sequence[Any], reused: int) -> Scores:
        """Encode the prompts, and run the tokens that begin an answer."""
        inputs, mask = self._encoder_inputs(prompts)
        states = self._encoder.run_tensors(inputs, ["last_hidden_state"])["last_hidden_state"]
        self._count = len(self._network.start)
        known = {_STATES: states, _MASK: mask, _PLACES: np.arange(self._count)}
        tokens = np.tile(np.array(self._network.start, np.int32), (len(prompts), 1))
        outputs = self._first.run_tensors({TOKENS: tokens, **_inputs_of(known, self._network.first)})
        later = self._network.later
        sources = self._network.first.caches(self._network.first.proto.graph.output)
        pasts = later.caches(later.proto.graph.input)
        presents = later.caches(later.proto.graph.output)
        for key, info in pasts.items():
            updated_by = None if key[0] else presents[key].name
            self._later.bind(info.name, outputs[sources[key].name], updated_by=updated_by)
        del known[_PLACES]
        for name, value in _inputs_of(known, later).items():
            self._later.bind(name, value)
        return _scores(outputs)

    def step(self, tokens: Tensor) -> Scores:
        """Run the next tokens."""
        places = _inputs_of({_PLACES: np.array([self._count])}, self._network.later)
        self._count += 1
        return _scores(self._later.run_tensors({TOKENS: tokens, **places}, [LOGITS, BEST]))

    def _encoder_inputs(self, prompts: Sequence[Any]) -> tuple[dict[str, Any], NDArray[np.int64]]:
        """Return the inputs of the encoder, and the mask of its states."""
        network = self._network
        if network.features is not None:
            features = np.stack([np.asarray(prompt) for prompt in prompts])
            (info,) = [info for info in self._encoder.inputs if info.name == network.features]
            states = np.ones((len(prompts), 1), np.int64)
            return {network.features: features.astype(info.dtype)}, states
        size = max(map(len, prompts))
        if "attention_mask" in network.encoder.inputs and _MASK in network.later.inputs:
            size = min(max(SMALLEST_CHUNK, 1 << (size - 1).bit_length()), self.most_prompt)  # few shapes are compiled
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


def _scores(outputs: Mapping[str, Any]) -> Scores:
    return outputs[LOGITS], outputs[BEST]
