"""Speech to text by Whisper: windows of 30 seconds, timestamps, languages.

Audio of more than a window is transcribed with timestamps: the next window begins at the last one that the model ended
a segment with. An answer that repeats itself or is improbable is sampled again at a higher temperature, and a window
without speech is skipped. Rules of timestamps, of windows and of these fallbacks are those of OpenAI's code and of
transformers.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu.common.errors import InvalidArgument, NotSupported, shown
from dmlgpu.frontends.generation.decoding import Scores
from dmlgpu.frontends.generation.encoder_decoder import EncodedDecoding, EncoderDecoderNetwork, step_network
from dmlgpu.frontends.generation.folders import read
from dmlgpu.frontends.generation.language_model import LanguageModel
from dmlgpu.frontends.generation.log_mel import HOP, RATE, log_mel
from dmlgpu.frontends.generation.memory import default_context
from dmlgpu.runtime.device import Device
from dmlgpu.tensors.tensor import Tensor

_SECONDS = 0.02
"""Seconds from one timestamp to the next."""

_STRIDE = 2
"""Frames from one timestamp to the next."""

_MULTILINGUAL = 51_865
"""Smallest vocabulary of models for several languages, if the configuration does not say."""

_LANGUAGE = re.compile(r"<\|([a-z]{2,3})\|>")
_HIDDEN = -np.inf


@dataclass(frozen=True)
class TranscribedSegment:
    """A part of a transcription.

    Attributes:
        start, end: Seconds.
        text: Its text.
    """

    start: float
    end: float
    text: str


@dataclass(frozen=True)
class SpeechFallback:
    """When the answer to a window is sampled again, or the window skipped. Defaults are those of OpenAI's code.

    Attributes:
        temperatures: Temperatures to try, one after the other; 0 takes the most likely tokens.
        compression_ratio: An answer whose text zlib compresses to less than one part in this many repeats itself, and
            the next temperature is tried; None for any answer.
        mean_logprob: If the mean log probability of the tokens is lower, the next temperature is tried; None for any.
        no_speech: A window whose probability of no speech is higher is skipped, if the tokens are improbable as well;
            None for no window.
    """

    temperatures: Sequence[float] = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    compression_ratio: float | None = 2.4
    mean_logprob: float | None = -1.0
    no_speech: float | None = 0.6

    def is_improbable(self, answer: SpeechAnswer) -> bool:
        """Return whether the tokens of an answer are improbable."""
        return self.mean_logprob is not None and answer.mean_logprob < self.mean_logprob

    def is_silent(self, answer: SpeechAnswer) -> bool:
        """Return whether the window of an answer has no speech."""
        return self.no_speech is not None and answer.no_speech > self.no_speech and self.is_improbable(answer)

    def rejects(self, answer: SpeechAnswer, text: str) -> bool:
        """Return whether the next temperature is tried."""
        repeats = self.compression_ratio is not None and compression_ratio(text) > self.compression_ratio
        return (repeats or self.is_improbable(answer)) and not self.is_silent(answer)


NO_FALLBACK = SpeechFallback((0.0,), None, None, None)
"""Takes the most likely tokens of all windows."""


@dataclass(frozen=True)
class SpeechAnswer:
    """The answer to a window.

    Attributes:
        tokens: Its tokens, without the one that ends it.
        mean_logprob: Mean log probability of all tokens.
        no_speech: Probability that the window has no speech.
    """

    tokens: Sequence[int]
    mean_logprob: float
    no_speech: float


def compression_ratio(text: str) -> float:
    """Return how many times zlib compresses a text. That of text that repeats itself is high."""
    data = text.strip().encode()
    return len(data) / len(zlib.compress(data))


@dataclass(frozen=True)
class SpeechTokens:
    """Special tokens of a speech model.

    Attributes:
        start: Token that begins an answer.
        end: Token that ends it; those below are text.
        no_timestamps: Token for answers without timestamps; those above are timestamps.
        latest_first: Index of the latest timestamp that may be the first one; None for any.
        languages: Token of each language by its code; empty if the model has one language.
        tasks: Tokens of the tasks, ``transcribe`` and ``translate``.
    """

    start: int
    end: int
    no_timestamps: int
    latest_first: int | None
    languages: Mapping[str, int]
    tasks: Mapping[str, int]

    @classmethod
    def of(cls, model: LanguageModel) -> SpeechTokens:
        """Return those of a model.

        Raises:
            NotSupported: If it is no speech model, or has no tokenizer.
        """
        settings, tokenizer = {} if model.encoder is None else model.encoder.settings, model.tokenizer
        if tokenizer is None or settings.get("model_type") != "whisper":
            raise NotSupported(
                f"model {model.name!r}: transcription needs a folder of Whisper with tokenizer.json, as Optimum "
                f"exports it, got {model.config.architecture}{'' if tokenizer else ' without tokenizer'}"
            )

        def token(name: str, text: str) -> int:
            value = settings.get(name)
            value = tokenizer.token_to_id(text) if value is None else value
            if not isinstance(value, int) or not 0 <= value < model.config.vocabulary or not model.config.eos:
                raise NotSupported(
                    f"model {model.name!r}: has no token {text}; add generation_config.json to its folder"
                )
            return value

        languages: dict[str, int] = {}
        tasks: dict[str, int] = {}
        if settings.get("is_multilingual", model.config.vocabulary >= _MULTILINGUAL):
            listed = settings.get("lang_to_id")
            texts = listed if isinstance(listed, dict) else tokenizer.get_vocab(with_added_tokens=True)
            languages = {match[1]: index for text, index in texts.items() if (match := _LANGUAGE.fullmatch(text))}
            known = settings.get("task_to_id")
            ids = known if isinstance(known, dict) else {}
            tasks = {name: ids.get(name) or token("", f"<|{name}|>") for name in ("transcribe", "translate")}
        latest = settings.get("max_initial_timestamp_index")
        return cls(
            model.config.start[0],
            model.config.eos[0],
            token("no_timestamps_token_id", "<|notimestamps|>"),
            latest if isinstance(latest, int) else None,
            languages,
            tasks,
        )


@dataclass(frozen=True)
class _SpeechRequest:
    """How to transcribe; the parameters of ``Transcriber.transcribe``, and the random numbers of its ``seed``."""

    task: str
    has_timestamps: bool
    fallback: SpeechFallback
    rng: np.random.Generator


class Transcriber:
    """A speech model on a device.

    Args:
        source: Folder of a Whisper model that Optimum exported.
        device: Device to run on.

    Attributes:
        language: Code of the language of the last transcription; None if the model has one language.
        memory: Device memory that the model needs.

    Raises:
        NotSupported: If the model is no speech model.
        DmlError: As ``Generator``.
    """

    def __init__(self, source: str | os.PathLike[str], device: Device):
        model = read(source)
        self._tokens = SpeechTokens.of(model)
        self._label, self._device = f"model {model.name!r}", device
        assert model.encoder is not None
        first = (*model.encoder.suppressed, *model.encoder.first_suppressed)
        self._suppressed, self._first_suppressed = (
            np.array([token for token in tokens if token < model.config.vocabulary], np.int64)
            for tokens in (model.encoder.suppressed, first)
        )
        # Suppressed on the host: the probability of no speech is that of a suppressed token.
        encoder = replace(model.encoder, suppressed=(), first_suppressed=())
        config = replace(model.config, start=(self._tokens.start,))
        self._model = replace(model, config=config, encoder=encoder)
        network = step_network(self._model)
        assert isinstance(network, EncoderDecoderNetwork)
        self._context = default_context(model.config)
        self._decoding = EncodedDecoding(network, device, context=self._context, label=self._label)
        bands, self._window = self._decoding.feature_sizes
        self._bands = bands
        self.memory = self._decoding.memory
        self.language: str | None = None

    def transcribe(
        self,
        audio: NDArray[np.float32],
        *,
        language: str | None = None,
        task: str = "transcribe",
        has_timestamps: bool = False,
        fallback: SpeechFallback | None = None,
        seed: int = 0,
    ) -> Iterator[TranscribedSegment]:
        """Return an iterator over the segments of speech.

        Args:
            audio: Samples {count} at 16,000 per second.
            language: Code of its language; None to detect it by the first window.
            task: ``transcribe``, or ``translate`` into English.
            has_timestamps: Whether segments need exact times. Audio of more than a window always has timestamps.
            fallback: When an answer is sampled again at another temperature, or a window skipped; None for the
                defaults, ``NO_FALLBACK`` for the most likely tokens.
            seed: Seed of the random numbers of temperatures above 0.

        Raises:
            InvalidArgument: If there is no audio, or no temperature, or the model lacks the language or the task.
        """
        tokens = self._tokens
        if audio.ndim != 1 or not len(audio):
            raise InvalidArgument(f"{self._label}: audio must be samples of one channel, got shape {list(audio.shape)}")
        if language is not None and language not in tokens.languages:
            known = ", ".join(sorted(tokens.languages))
            allowed = f"one of {known}" if known else "omitted, because the model has one language only"
            raise InvalidArgument(f"{self._label}: language must be {allowed}, got {shown(language)}")
        if task != "transcribe" and task not in tokens.tasks:
            raise InvalidArgument(
                f"{self._label}: task must be transcribe, the model knows no other, got {shown(task)}"
            )
        fallback = fallback or SpeechFallback()
        if not fallback.temperatures or any(not temperature >= 0 for temperature in fallback.temperatures):
            raise InvalidArgument(
                f"{self._label}: temperatures must be numbers of at least 0, got {shown(fallback.temperatures)}"
            )
        samples = self._window * HOP
        total = -(-min(len(audio), samples) // HOP) if len(audio) <= samples else len(audio) // HOP
        if len(audio) < samples:
            audio = np.pad(audio, (0, samples - len(audio)))
        self.language = language
        features = log_mel(audio, self._bands, self._device)
        has_timestamps |= total > self._window
        request = _SpeechRequest(task, has_timestamps, fallback, np.random.default_rng(seed))
        return self._segments(features, total, request)

    def _segments(
        self, features: NDArray[np.float32], total: int, request: _SpeechRequest
    ) -> Iterator[TranscribedSegment]:
        seek = 0
        while seek < total:
            frames = min(self._window, total - seek)
            window = features[:, seek : seek + self._window]
            window = np.pad(window, ((0, 0), (0, self._window - window.shape[1])))
            answer = self._accepted(window, request)
            if request.fallback.is_silent(answer):
                seek += frames
                continue
            tokens = answer.tokens
            start = seek * HOP / RATE
            if request.has_timestamps:
                parts, offset = cut(tokens, frames, self._tokens.no_timestamps + 1)
            else:
                parts, offset = [(0.0, frames * HOP / RATE, tokens)], frames
            for begin, end, part in parts:
                text = self._text(part)
                if text.strip():
                    yield TranscribedSegment(start + begin, start + end, text)
            seek += offset or frames

    def _text(self, tokens: Sequence[int]) -> str:
        assert self._model.tokenizer is not None
        text: str = self._model.tokenizer.decode([token for token in tokens if token < self._tokens.end])
        return text

    def _accepted(self, window: NDArray[np.float32], request: _SpeechRequest) -> SpeechAnswer:
        """Return the answer to a window at the first temperature that gives an acceptable one, else at the last."""
        self._decoding.prepare([window], [])
        scores = self._decoding.prefill([window], 0)
        for index, temperature in enumerate(request.fallback.temperatures):
            scores = self._decoding.restart(1) if index else scores
            answer = self._answer(scores, request, temperature)
            if not request.fallback.rejects(answer, self._text(answer.tokens)):
                break
        return answer

    def _answer(self, scores: Scores, request: _SpeechRequest, temperature: float) -> SpeechAnswer:
        """Return the answer after the scores of the token that begins it."""
        tokens = self._tokens
        logits = _read(scores)
        no_speech = float(np.exp(_log_softmax(logits)[tokens.no_timestamps - 1]))
        start: list[int] = []
        if tokens.languages:
            self.language = self.language or self._detected(logits)
            start += [tokens.languages[self.language], tokens.tasks[request.task]]
        start += [] if request.has_timestamps else [tokens.no_timestamps]
        for token in start:
            scores = self._decoding.step(self._tensor(token))
        answer: list[int] = []
        total = 0.0
        while True:
            logits = _read(scores)
            logits[self._suppressed if answer else self._first_suppressed] = _HIDDEN
            if request.has_timestamps:
                limit(logits, answer, tokens)
            token = sampled(logits, temperature, request.rng)
            total += float(_log_softmax(logits)[token])
            if token == tokens.end:
                return SpeechAnswer(answer, total / (len(answer) + 1), no_speech)
            answer.append(token)
            if 1 + len(start) + len(answer) >= self._context:
                return SpeechAnswer(answer, total / len(answer), no_speech)
            scores = self._decoding.step(self._tensor(token))

    def _tensor(self, token: int) -> Tensor:
        return Tensor(np.array([[token]], np.int32), device=self._device)

    def _detected(self, logits: NDArray[np.float64]) -> str:
        """Return the most likely language."""
        return max(self._tokens.languages, key=lambda code: float(logits[self._tokens.languages[code]]))


def _read(scores: Scores) -> NDArray[np.float64]:
    """Return the logits of one prompt."""
    return scores[0].numpy()[0].astype(np.float64)


def _log_softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return log probabilities."""
    shifted = logits - logits.max()
    result: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum())
    return result


def sampled(logits: NDArray[np.float64], temperature: float, rng: np.random.Generator) -> int:
    """Return a token by the probabilities of logits divided by a temperature; at 0, the most likely one."""
    if temperature == 0:
        return int(logits.argmax())
    sums = np.exp(_log_softmax(logits / temperature)).cumsum()
    return int(np.searchsorted(sums, rng.random() * sums[-1], side="right"))


def limit(logits: NDArray[Any], answer: Sequence[int], tokens: SpeechTokens) -> None:
    """Hide tokens that must not follow an answer: timestamps come in pairs, except at the end, and do not decrease."""
    begin = tokens.no_timestamps + 1
    logits[tokens.no_timestamps] = _HIDDEN
    is_time = [token >= begin for token in answer]
    times = [token for token in answer if token >= begin]
    is_open = is_time[-1:] == [True] and not (len(is_time) < 2 or is_time[-2])
    if is_time[-1:] == [True]:
        if is_open:
            logits[: tokens.end] = _HIDDEN
        else:
            logits[begin:] = _HIDDEN
    if times:
        logits[begin : times[-1] + (not is_open)] = _HIDDEN
    if not answer:
        logits[:begin] = _HIDDEN
        if tokens.latest_first is not None:
            logits[begin + tokens.latest_first + 1 :] = _HIDDEN
    if np.logaddexp.reduce(logits[begin:]) > logits[:begin].max():
        logits[:begin] = _HIDDEN


def cut(tokens: Sequence[int], frames: int, begin: int) -> tuple[list[tuple[float, float, Sequence[int]]], int]:
    """Cut the answer to a window at pairs of timestamps.

    Args:
        tokens: The answer.
        frames: Frames of the window.
        begin: The first timestamp.

    Returns:
        Start, end and tokens of each segment, in seconds of the window, and the frames to the next window.
    """
    is_time = [token >= begin for token in tokens]
    ends = [index + 1 for index in range(len(tokens) - 1) if is_time[index] and is_time[index + 1]]
    if not ends:
        last = next((token for token in reversed(tokens) if token >= begin), begin) - begin
        return [(0.0, last * _SECONDS if last else frames * HOP / RATE, tokens)], frames
    is_closed = is_time[-2:] == [False, True]
    if is_closed:
        ends.append(len(tokens))
    starts = [0, *ends[:-1]]
    parts = [
        ((tokens[first] - begin) * _SECONDS, (tokens[end - 1] - begin) * _SECONDS, tokens[first:end])
        for first, end in zip(starts, ends, strict=True)
    ]
    return parts, frames if is_closed else (tokens[ends[-1] - 1] - begin) * _STRIDE
