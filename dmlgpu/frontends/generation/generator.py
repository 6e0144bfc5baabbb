"""Generators: a language model on a device, from prompts to text."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from dmlgpu.common.errors import InvalidArgument, InvalidState, NotSupported, counted, shown
from dmlgpu.frontends.generation.cache_bounds import default_caches
from dmlgpu.frontends.generation.decoding import CachedDecoding, Decoding, Scores
from dmlgpu.frontends.generation.drafts import DraftMethod, ModelDraft, NgramDraft, agreed_count
from dmlgpu.frontends.generation.encoder_decoder import EncodedDecoding, EncoderDecoderNetwork, step_network
from dmlgpu.frontends.generation.folders import read
from dmlgpu.frontends.generation.language_model import CacheFormat, LanguageModel, type_among
from dmlgpu.frontends.generation.memory import MemoryNeed, default_context
from dmlgpu.frontends.generation.sampling import CHAT_DEFAULTS, Sampler, SamplingOptions, TokenLogprob, read_words
from dmlgpu.frontends.generation.scheduler import Scheduler, pooled
from dmlgpu.frontends.generation.text import (
    Message,
    TextStream,
    checked_messages,
    checked_stops,
    checked_tools,
    conversation,
)
from dmlgpu.frontends.generation.tool_calls import reads_tools, with_tools
from dmlgpu.runtime.buffer import Readback
from dmlgpu.runtime.device import Device, as_device
from dmlgpu.tensors.tensor import Tensor

if TYPE_CHECKING:
    from dmlgpu.frontends.generation.grammar import Grammar, Matcher

Prompt = str | Sequence[int] | NDArray[Any]

CHUNK = 256
"""Default number of prompt tokens per run."""

_MAX_CONTEXT = 2**24
MAX_LOGPROBS = 100
"""Maximum number of most likely tokens whose probabilities are returned."""

_MIN_NORM = 1e-30


@dataclass
class GenerationStatistics:
    """Times and sizes of a generation. ``print`` shows them as a line.

    Attributes:
        prompt_tokens: Tokens of the prompts.
        reused_tokens: Prompt tokens that were already in the caches.
        tokens: Generated tokens.
        prefill_seconds: Time of the prompt, with the first token.
        decode_seconds: Time of the other tokens.
        memory: Device memory, estimated.
        compiles: Whether it is the first one of its generator, for which kernels are compiled or read from a cache.
        drafted_tokens: Tokens of drafts that were run.
        kept_tokens: Those that the model agreed to.
    """

    prompt_tokens: int = 0
    reused_tokens: int = 0
    tokens: int = 0
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0
    memory: MemoryNeed = field(default_factory=MemoryNeed)
    compiles: bool = False
    drafted_tokens: int = 0
    kept_tokens: int = 0
    _rows: int = field(default=1, repr=False)

    @property
    def prefill_rate(self) -> float:
        """Prompt tokens per second."""
        return (self.prompt_tokens - self.reused_tokens) / self.prefill_seconds if self.prefill_seconds else 0.0

    @property
    def decode_rate(self) -> float:
        """Tokens per second after the first one of each prompt."""
        return max(self.tokens - self._rows, 0) / self.decode_seconds if self.decode_seconds else 0.0

    def add(self, tokens: int, seconds: float) -> None:
        """Count the tokens of a step that ended some seconds after the beginning."""
        if self.tokens:
            self.decode_seconds = seconds - self.prefill_seconds
        else:
            self.prefill_seconds = seconds
        self.tokens += tokens

    def __str__(self) -> str:
        """Return a line, without rates if the generation was interrupted."""
        reused = f" ({self.reused_tokens:,} reused)" if self.reused_tokens else ""
        parts = [f"prompt {counted(self.prompt_tokens, 'token')}{reused}"]
        if self.tokens:
            compiling = ", with compiling" if self.compiles else ""
            parts[0] += f" in {_duration(self.prefill_seconds)} ({self.prefill_rate:,.1f} tokens/s{compiling})"
            rate = f", {self.decode_rate:,.1f} tokens/s" if self.decode_seconds else ""
            drafts = f", {self.kept_tokens:,} of {self.drafted_tokens:,} drafted" if self.drafted_tokens else ""
            parts.append(f"{counted(self.tokens, 'token')}{rate}{drafts}")
        return "; ".join([*parts, str(self.memory)])


@dataclass(frozen=True)
class GeneratedText:
    """The answer to a prompt.

    Attributes:
        text: Its text; empty if the model has no tokenizer.
        tokens: Its tokens, with the one that ended it.
        logprobs: The probabilities of its tokens; empty unless they are requested.
    """

    text: str
    tokens: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...] = ()


class PromptTooLong(InvalidArgument):
    """A prompt has more tokens than the context has room for."""


class Generator:
    """A language model on a device.

        generator = Generator.load("phi-3-mini", context=2048)
        for piece in generator.generate("Once upon a time", max_tokens=100):
            print(piece, end="", flush=True)

    Caches have rows for the whole context and stay on the device. A prompt that continues the previous one, with its
    answer, computes only the rest. Not thread-safe.

    Args:
        model: The model.
        device: A Device, the name of an adapter, or None for ``default_device()``.
        context: Maximum number of tokens of prompt and answer; None takes the model's, at most 4,096.
        chunk: Maximum number of prompt tokens per run, which bounds the memory of a long prompt.
        cache_dtype: Type of the caches, float16, float32 or int8; None takes float16 on GPUs if the weights show that
            no element can overflow, else the network's. Attention reads this type and sums in float32; int8 caches have
            a scale per token and head.
        cache_block: Adjacent elements of a head that share a scale of int8 caches, a divisor of its size; None takes
            the whole head.
        activation_dtype: int8 rounds the activations of products with quantized weights (MatMulNBits, GGUF) to
            integers, with a scale per token and block of weights, so that GPUs multiply integers. None takes the
            network's floating-point type.
        draft: How tokens are drafted for speculative decoding: "ngram" for those that followed the same tokens before,
            or the path of a smaller model with the same vocabulary, or its Generator, which must not be used otherwise;
            None for no drafts. Answers have the same probabilities. Batches and answers with a grammar or
            ``logprobs`` are not drafted.

    Attributes:
        statistics: Times and sizes of the last generation.
        answers: Its tokens so far, a list per answer, with the token that ended it.
        logprobs: Their probabilities, if requested; else empty lists.

    Raises:
        InvalidArgument: If an argument is out of range, or the model does not fit the adapter.
        ModelError: If the model is malformed.
        NotSupported: If its network is not a decoder, or has unsupported operators.
    """

    def __init__(
        self,
        model: LanguageModel,
        device: Device | str | None = None,
        *,
        context: int | None = None,
        chunk: int = CHUNK,
        cache_dtype: DTypeLike | None = None,
        cache_block: int | None = None,
        activation_dtype: DTypeLike | None = None,
        draft: str | os.PathLike[str] | Generator | None = None,
    ):
        self.model, self.device = model, as_device("Generator", device)
        limit = model.config.context_length
        self.context = default_context(model.config) if context is None else context
        if not _is_between(self.context, 2, min(limit, _MAX_CONTEXT)):
            raise InvalidArgument(f"{self._label}: context must be from 2 to {limit}, got {shown(context)}")
        if not _is_between(chunk, 1, _MAX_CONTEXT):
            raise InvalidArgument(f"{self._label}: chunk must be from 1 to {_MAX_CONTEXT}, got {shown(chunk)}")
        caches = CacheFormat.of(cache_dtype, cache_block, model.config.head_size, self._label)
        caches = caches or default_caches(model, self.device)
        if activation_dtype is not None:
            type_among(activation_dtype, f"{self._label}: activation_dtype", ("int8",))
        network = step_network(
            model,
            caches,
            context=self.context,
            has_integer_activations=activation_dtype is not None,
            has_every=draft is not None,
        )
        self._decoding: Decoding
        if isinstance(network, EncoderDecoderNetwork):
            self._decoding = EncodedDecoding(network, self.device, context=self.context, label=self._label)
        else:
            self._decoding = CachedDecoding(
                model, network, self.device, context=self.context, chunk=chunk, label=self._label
            )
        self._sampler = Sampler(self.device, model.config.vocabulary)
        self._draft = None if draft is None else self._drafts_by(draft)
        self.memory.check(self._label, self.device)
        self.statistics = GenerationStatistics(memory=self.memory)
        self.answers: list[list[int]] = []
        self.logprobs: list[list[TokenLogprob]] = []
        self._cached: list[int] = []
        self._runs = 0
        self._matched: Any = None

    @classmethod
    def load(
        cls,
        source: str | os.PathLike[str],
        device: Device | str | None = None,
        *,
        context: int | None = None,
        chunk: int = CHUNK,
        cache_dtype: DTypeLike | None = None,
        cache_block: int | None = None,
        activation_dtype: DTypeLike | None = None,
        draft: str | os.PathLike[str] | Generator | None = None,
    ) -> Generator:
        """Load a model from files.

        Args:
            source: A folder as onnxruntime-genai or Optimum writes it, or a GGUF file.
            device: As for the constructor.
            context: As for the constructor.
            chunk: As for the constructor.
            cache_dtype: As for the constructor.
            cache_block: As for the constructor.
            activation_dtype: As for the constructor.
            draft: As for the constructor.

        Returns:
            The generator.

        Raises:
            DmlError: As the constructor.
        """
        model = read(source, context)
        return cls(
            model,
            device,
            context=context,
            chunk=chunk,
            cache_dtype=cache_dtype,
            cache_block=cache_block,
            activation_dtype=activation_dtype,
            draft=draft,
        )

    def _drafts_by(self, draft: str | os.PathLike[str] | Generator) -> DraftMethod:
        """Return the method of drafting tokens."""
        if isinstance(self._decoding, CachedDecoding) and self._decoding.has_states:
            raise NotSupported(
                f"{self._label}: draft needs a model that can take tokens back, and the states of its Mamba or "
                "convolution layers cannot; omit draft (on the command line, --draft)"
            )
        if not isinstance(self._decoding, CachedDecoding) or not self._decoding.can_verify:
            raise NotSupported(
                f"{self._label}: draft needs caches with fixed rows (GroupQueryAttention), and logits by a product of "
                "hidden states; omit draft"
            )
        if draft == "ngram":
            return NgramDraft()
        if not isinstance(draft, str | os.PathLike | Generator):
            raise InvalidArgument(
                f"{self._label}: draft must be 'ngram', a path or a Generator of a smaller model, got {shown(draft)}"
            )
        other = draft if isinstance(draft, Generator) else Generator.load(draft, self.device, context=self.context)
        tokenizers = [generator.model.tokenizer for generator in (self, other)]
        vocabularies = [None if tokenizer is None else tokenizer.get_vocab() for tokenizer in tokenizers]
        sizes = [generator.model.config.vocabulary for generator in (self, other)]
        decoding = other._decoding
        is_fixed = isinstance(decoding, CachedDecoding) and decoding.has_fixed_rows
        if sizes[0] != sizes[1] or vocabularies[0] != vocabularies[1] or not is_fixed:
            raise InvalidArgument(
                f"{self._label}: draft must be a model with the same vocabulary of {sizes[0]} tokens, and caches with "
                f"fixed rows and no states, got {other.model.name!r} with {sizes[1]}"
            )
        assert isinstance(decoding, CachedDecoding)
        return ModelDraft(decoding)

    @property
    def memory(self) -> MemoryNeed:
        """Estimated device memory that the model needs, and the smaller one of ``draft``."""
        need = self._decoding.memory
        return need.plus(self._draft.memory) if isinstance(self._draft, ModelDraft) else need

    @property
    def takes_features(self) -> bool:
        """Whether prompts are arrays of features, of audio for example, instead of text."""
        return self._decoding.takes_features

    @property
    def sampling_defaults(self) -> Mapping[str, float]:
        """Sampling options of ``chat`` and of the command line: those that the files of the model recommend, else a
        temperature of 0.7, ``top_p`` of 0.9 and ``repetition_penalty`` of 1.05. Models with an encoder have none."""
        return self.model.sampling or (CHAT_DEFAULTS if self.model.encoder is None else {})

    def with_defaults(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return options with ``sampling_defaults`` for omitted ones; with a temperature of 0, as they are.

        Args:
            options: Options of ``generate``.

        Returns:
            Options of ``generate``.
        """
        return {**({} if options.get("temperature") == 0 else self.sampling_defaults), **options}

    def __repr__(self) -> str:
        config = self.model.config
        return (
            f"<Generator {self.model.name!r}: {config.architecture}, {config.layers} layers, context {self.context}; "
            f"on '{self.device.adapter}'>"
        )

    # ---- text --------------------------------------------------------------------------------------------------------

    def generate(
        self,
        prompt: Prompt,
        *,
        max_tokens: int | None = None,
        stop: str | Sequence[str] = (),
        logprobs: int | None = None,
        grammar: Grammar | None = None,
        **sampling: Any,
    ) -> Iterator[str]:
        """Continue a prompt. To ask a chat model a question, call ``chat``, which applies the model's chat template.

        Args:
            prompt: Text, or token ids; features {bands, frames} if the model takes those (Whisper).
            max_tokens: Maximum number of tokens; None for as many as the context has room for.
            stop: Strings that end the output; they are not part of it.
            logprobs: Number of most likely tokens, 0 to 100, whose probabilities ``generator.logprobs`` has for each
                token, besides its own; None for no probabilities.
            grammar: What the text must be, such as JSON of a schema: ``Grammar.json_schema(schema)``. Needs the extra
                ``grammar``.
            sampling: Options of choosing tokens: the fields of SamplingOptions, such as ``temperature``, ``top_p`` and
                ``seed``. By default, always the most likely one.

        Returns:
            An iterator over pieces of text. The generation ends if the iterator is closed; the generator remains
            usable.

        Raises:
            InvalidArgument: If an argument is out of range, or the prompt does not fit the context.
            DmlError: As ``Session.run``.
        """
        options = self._sampling(sampling)
        matchers = self.matchers(grammar, 1)
        return self._text(self._prompt_of(prompt), max_tokens, options, self._stops(stop), logprobs, matchers=matchers)

    def chat(
        self,
        messages: str | Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        enable_thinking: bool | None = None,
        **options: Any,
    ) -> Iterator[str]:
        """Answer a question, or generate the next message of a conversation, by the chat template of the model.

            answer = "".join(generator.chat("Why is the sky blue?"))

        Args:
            messages: A question, or the messages of a conversation, each with ``role`` ("system", "user", "assistant",
                "tool") and ``content``.
            tools: Functions that the model may call, as JSON schemas: ``{"type": "function", "function": {...}}``. If
                the chat template has no place for them, the system message lists them.
            enable_thinking: Whether the model reasons before it answers, if its template has this switch; None for the
                default of the template.
            options: As for ``generate``, with ``sampling_defaults`` for omitted ones. With ``temperature=0``, the most
                likely token is always taken.

        Returns:
            An iterator over pieces of text.

        Raises:
            InvalidArgument: If the model has no chat template, or it rejects the messages.
            DmlError: As ``generate``.
        """
        tokens = self.chat_tokens(messages, tools=tools, enable_thinking=enable_thinking)
        return self.generate(tokens, **self.with_defaults(options))

    def generate_batch(
        self,
        prompts: Sequence[Prompt],
        *,
        n: int = 1,
        max_tokens: int | None = None,
        stop: str | Sequence[str] = (),
        logprobs: int | None = None,
        grammar: Grammar | None = None,
        **sampling: Any,
    ) -> list[GeneratedText]:
        """Continue several prompts of any lengths at the same time.

        Args:
            prompts: Strings, or lists of token ids; ``chat_tokens`` returns those of a conversation.
            n: Number of answers to each prompt, which is computed once. Equal ones unless they are sampled.
            max_tokens: As for ``generate``, of each answer.
            stop: As for ``generate``.
            logprobs: As for ``generate``.
            grammar: As for ``generate``.
            sampling: As for ``generate``.

        Returns:
            A GeneratedText per answer, the ``n`` of the first prompt first.

        Raises:
            DmlError: As ``generate``.
        """
        if isinstance(prompts, str) or not isinstance(prompts, Sequence) or not prompts:
            raise InvalidArgument(f"{self._label}: prompts must be a list of prompts, got {shown(prompts)}")
        if not _is_between(n, 1, _MAX_CONTEXT):
            raise InvalidArgument(f"{self._label}: n must be an integer of at least 1, got {shown(n)}")
        options = self._sampling(sampling)
        stops = self._stops(stop)
        tokenizer = self.model.tokenizer
        checked = [self._prompt_of(prompt) for prompt in prompts]
        streams = [
            None if tokenizer is None else TextStream(tokenizer, stops, self._decoding.history(prompt))
            for prompt in checked
            for _ in range(n)
        ]
        texts: list[list[str]] = [[] for _ in streams]
        done: set[int] = set()
        matchers = self.matchers(grammar, len(streams))
        for step in self._steps(checked, max_tokens, options, done, logprobs=logprobs, copies=n, matchers=matchers):
            for row, token in step.items():
                stream = streams[row]
                if token in self.model.config.eos or stream is None:
                    continue
                texts[row].append(stream.add(token))
                if stream.stopped:
                    done.add(row)
        for pieces, stream in zip(texts, streams, strict=True):
            pieces.append("" if stream is None else stream.finish())
        return [
            GeneratedText("".join(pieces), tuple(row), tuple(probabilities))
            for pieces, row, probabilities in zip(texts, self.answers, self.logprobs, strict=True)
        ]

    def generate_tokens(
        self, prompt: Prompt, *, max_tokens: int | None = None, options: SamplingOptions | None = None
    ) -> Iterator[int]:
        """Generate tokens after a prompt.

        Args:
            prompt: Text, or token ids.
            max_tokens: As for ``generate``.
            options: Options of choosing tokens; None for the most likely ones.

        Returns:
            An iterator over tokens, with the one that ends the text.

        Raises:
            DmlError: As ``generate``.
        """
        steps = self._steps([self._prompt_of(prompt)], max_tokens, options or SamplingOptions(), set())
        return (step[0] for step in steps)

    def embed(
        self, prompts: Prompt | Sequence[Prompt], *, pooling: str = "mean", normalize: bool = True
    ) -> NDArray[np.float32]:
        """Return embeddings of prompts, from the hidden states after the last normalization.

        Args:
            prompts: Strings, or lists of token ids; or one of them.
            pooling: "mean" takes the mean of the hidden states of all tokens, "last" that of the last token. The card
                of an embedding model says which one it was trained for.
            normalize: Whether embeddings are divided by their Euclidean norm.

        Returns:
            An array {prompts, width}, or {width} of a single one.

        Raises:
            InvalidArgument: If an argument is out of range, or a prompt does not fit the context.
            NotSupported: If the model has an encoder, or its network has no hidden states of all tokens.
            DmlError: As ``Session.run``.
        """
        if pooling not in ("mean", "last"):
            raise InvalidArgument(f"{self._label}: pooling must be 'mean' or 'last', got {shown(pooling)}")
        if isinstance(prompts, Sequence | np.ndarray) and not isinstance(prompts, str) and not len(prompts):
            raise InvalidArgument(f"{self._label}: prompts must be a list of prompts, got {shown(prompts)}")
        is_single = isinstance(prompts, str) or not (
            isinstance(prompts, Sequence) and isinstance(prompts[0], str | Sequence | np.ndarray)
        )
        every: Sequence[Any] = [prompts] if is_single else prompts  # type: ignore[assignment]
        rows = [self._embedded(tokens, pooling) for tokens in map(self.tokens_of, every)]
        if normalize:
            rows = [row / max(float(np.linalg.norm(row)), _MIN_NORM) for row in rows]
        return rows[0] if is_single else np.stack(rows)

    def _embedded(self, tokens: list[int], pooling: str) -> NDArray[Any]:
        """Return the embedding of a prompt. It takes the caches, so a generation that runs ends."""
        self._runs += 1
        self._cached = []
        return pooled(self._decoding.hidden(tokens), pooling)

    def scheduler(self, *, rows: int = 4, max_queued: int = 64) -> Scheduler:
        """Return a scheduler that answers many requests at the same time. The generator must not be used meanwhile.

        Args:
            rows: Maximum number of answers at the same time. Each takes a row of all caches.
            max_queued: Maximum number of requests that wait.

        Returns:
            The scheduler; call its ``start``.

        Raises:
            InvalidArgument: If an argument is out of range, or the caches of the rows do not fit the adapter.
            NotSupported: If the model has an encoder, or drafts are those of a smaller model.
        """
        for name, value in (("rows", rows), ("max_queued", max_queued)):
            if not _is_between(value, 1, _MAX_CONTEXT):
                raise InvalidArgument(f"{self._label}: {name} must be an integer of at least 1, got {shown(value)}")
        if not isinstance(self._decoding, CachedDecoding):
            raise NotSupported(f"{self._label}: requests are answered by models without an encoder")
        if isinstance(self._draft, ModelDraft):
            raise NotSupported(
                f"{self._label}: a smaller model drafts for one answer at a time, requests need draft='ngram' (on the "
                "command line, --draft ngram)"
            )
        self._runs += 1
        self._cached = []
        return Scheduler(
            self.model,
            self._decoding,
            self._sampler,
            self.matchers,
            context=self.context,
            rows=rows,
            max_queued=max_queued,
            has_drafts=self._draft is not None,
        )

    def matchers(self, grammar: Grammar | None, count: int) -> Sequence[Matcher]:
        """Return matchers of a grammar, which say what tokens it allows.

        Args:
            grammar: The grammar; None for any text.
            count: Number of answers.

        Returns:
            The matchers; empty without a grammar.

        Raises:
            InvalidArgument: If the grammar is too complex, or the model has no tokenizer.
        """
        if grammar is None:
            return ()
        from dmlgpu.frontends.generation import grammar as grammars  # noqa: PLC0415 - an extra

        if not isinstance(grammar, grammars.Grammar):
            raise InvalidArgument(f"{self._label}: grammar must be a Grammar, got {shown(grammar)}")
        tokenizer, config = self.model.tokenizer, self.model.config
        if tokenizer is None:
            raise InvalidArgument(f"{self._label}: a grammar needs a tokenizer, which the model lacks")
        if self._matched is None:
            self._matched = grammars.matched_tokenizer(tokenizer, config.vocabulary, config.eos)
        return [grammars.Matcher(self._matched, grammar, config.vocabulary) for _ in range(count)]

    def tokens_of(self, prompt: Prompt) -> list[int]:
        """Return the tokens of a prompt.

        Args:
            prompt: Text, or token ids.

        Returns:
            Token ids.

        Raises:
            InvalidArgument: If it is empty, has tokens outside the vocabulary, or is text and the model has no
                tokenizer.
        """
        if isinstance(prompt, str):
            return self._checked(self._encoded(prompt, special=True))
        if not isinstance(prompt, Sequence | np.ndarray) or isinstance(prompt, bytes | bytearray):
            raise InvalidArgument(f"{self._label}: prompt must be text or a list of token ids, got {shown(prompt)}")
        return self._checked(prompt)

    def chat_tokens(
        self,
        messages: str | Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        enable_thinking: bool | None = None,
        switches: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """Return the tokens of a conversation, by the chat template of the model.

        Args:
            messages: As for ``chat``.
            tools: As for ``chat``.
            enable_thinking: As for ``chat``.
            switches: Values of other names that the template may read, such as ``reasoning_effort``.

        Returns:
            Token ids.

        Raises:
            InvalidArgument: As ``chat``.
        """
        return self._checked(self._conversation(messages, tools, enable_thinking, switches))

    def chat_length(
        self,
        messages: str | Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        enable_thinking: bool | None = None,
    ) -> int:
        """Return the number of tokens of a conversation, which may exceed the context.

        Args:
            messages: As for ``chat``.
            tools: As for ``chat``.
            enable_thinking: As for ``chat``.

        Returns:
            The number of tokens.

        Raises:
            InvalidArgument: As ``chat``.
        """
        return len(self._conversation(messages, tools, enable_thinking))

    def _conversation(
        self,
        messages: str | Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None = None,
        enable_thinking: bool | None = None,
        switches: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """Return the tokens of a conversation, of any length."""
        config = self.model.config
        ends = (config.bos, config.eos[0] if config.eos else None)
        names = {
            name: "" if token is None or self.model.tokenizer is None else self.model.tokenizer.id_to_token(token) or ""
            for name, token in zip(("bos_token", "eos_token"), ends, strict=True)
        }
        names |= self.model.special_tokens
        if isinstance(messages, str):
            if not messages.strip():
                raise InvalidArgument(f"{self._label}: a question must have text, got {shown(messages)}")
            messages = [{"role": "user", "content": messages}]
        template = self.model.chat_template
        if tools and template and not reads_tools(template):
            functions = checked_tools(tools, self._label)
            messages, tools = with_tools(checked_messages(messages, self._label), functions), None
        text = conversation(
            template,
            messages,
            names,
            self._label,
            tools=tools,
            enable_thinking=enable_thinking,
            switches=switches,
        )
        return self._encoded(text, special=False)

    def _prompt_of(self, prompt: Prompt) -> Any:
        """Return a prompt as tokens, or as features if the model's encoder takes them."""
        features = self._decoding.features_of(prompt)
        return self.tokens_of(prompt) if features is None else features

    def _encoded(self, text: str, *, special: bool) -> list[int]:
        tokenizer, config = self.model.tokenizer, self.model.config
        if tokenizer is None:
            raise InvalidArgument(
                f"{self._label}: has no tokenizer; pass a list of token ids, or a model with tokenizer.json, or a GGUF "
                "file with a tokenizer"
            )
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidArgument(f"{self._label}: prompt must be text in Unicode: {error}") from None
        tokens: list[int] = tokenizer.encode(text, add_special_tokens=special).ids
        if special and config.add_bos and config.bos is not None and tokens[:1] != [config.bos]:
            tokens = [config.bos, *tokens]
        return tokens

    def _checked(self, prompt: Any) -> list[int]:
        for token in prompt:
            if isinstance(token, bool) or not isinstance(token, int | np.integer):
                raise InvalidArgument(
                    f"{self._label}: prompt must be text or a list of token ids, got {shown(token)} in it"
                )
            if not 0 <= token < self.model.config.vocabulary:
                raise InvalidArgument(
                    f"{self._label}: tokens must be from 0 to {self.model.config.vocabulary - 1}, got {shown(token)}"
                )
        tokens = [int(token) for token in prompt]
        if not tokens:
            raise InvalidArgument(f"{self._label}: prompt must have tokens, got none")
        limit = self._decoding.max_prompt
        if len(tokens) > limit:
            allowed = max(self.model.config.context_length, self.model.config.trained_length)
            options = f"context=, or -c on the command line; the model allows {allowed}"
            longer = f"a longer context ({options}) or " if self.context < allowed else ""
            place, advice = "", ""
            if self.model.encoder is None:
                place, advice = f" for a context of {self.context}", f"; pass {longer}a shorter prompt"
            raise PromptTooLong(
                f"{self._label}: prompt must have at most {limit} tokens{place}, got {len(tokens)}{advice}"
            )
        return tokens

    def _sampling(self, options: Mapping[str, Any]) -> SamplingOptions:
        names = [option.name for option in fields(SamplingOptions)]
        for name in options:
            if name not in names:
                raise InvalidArgument(
                    f"{self._label}: unknown option {name!r}; options are max_tokens, stop, {', '.join(names)}"
                )
        return SamplingOptions(**options)

    def _stops(self, stop: str | Sequence[str]) -> tuple[str, ...]:
        return checked_stops(stop, self._label)

    def _text(
        self,
        prompt: Any,
        max_tokens: int | None,
        options: SamplingOptions,
        stops: tuple[str, ...],
        logprobs: int | None,
        *,
        matchers: Sequence[Matcher],
    ) -> Iterator[str]:
        if self.model.tokenizer is None:
            raise InvalidArgument(f"{self._label}: has no tokenizer; call generate_tokens")
        stream = TextStream(self.model.tokenizer, stops, self._decoding.history(prompt))
        done: set[int] = set()
        steps = self._steps([prompt], max_tokens, options, done, logprobs=logprobs, matchers=matchers)

        def pieces() -> Iterator[str]:
            for step in steps:
                piece = "" if step[0] in self.model.config.eos else stream.add(step[0])
                if stream.stopped:
                    done.add(0)
                if piece:
                    yield piece
            rest = stream.finish()
            if rest:
                yield rest

        return pieces()

    # ---- tokens ------------------------------------------------------------------------------------------------------

    def _steps(
        self,
        prompts: list[Any],
        max_tokens: int | None,
        options: SamplingOptions,
        done: set[int],
        *,
        logprobs: int | None = None,
        copies: int = 1,
        matchers: Sequence[Matcher] = (),
    ) -> Iterator[dict[int, int]]:
        """Return an iterator over the next tokens, by row. The caller adds rows that end to ``done``."""
        options.check(self._label, self.model.config.vocabulary)
        if max_tokens is not None and not _is_between(max_tokens, 1, _MAX_CONTEXT):
            raise InvalidArgument(
                f"{self._label}: max_tokens must be an integer of at least 1, got {shown(max_tokens)}"
            )
        if logprobs is not None and not _is_between(logprobs, 0, MAX_LOGPROBS):
            raise InvalidArgument(f"{self._label}: logprobs must be from 0 to {MAX_LOGPROBS}, got {shown(logprobs)}")
        limit = max_tokens or self.context
        if self._draft is not None and len(prompts) * copies == 1 and not matchers and logprobs is None:
            return self._run_drafted(self._draft, prompts[0], limit, options, done)
        return self._run_steps(prompts, limit, options, done, logprobs=logprobs, copies=copies, matchers=matchers)

    def _run_steps(
        self,
        prompts: list[Any],
        limit: int,
        options: SamplingOptions,
        done: set[int],
        *,
        logprobs: int | None = None,
        copies: int = 1,
        matchers: Sequence[Matcher] = (),
    ) -> Iterator[dict[int, int]]:
        self._runs += 1
        run, rows = self._runs, len(prompts) * copies
        if not self._decoding.shares_prompts:
            prompts, copies = [prompt for prompt in prompts for _ in range(copies)], 1
        statistics = self.statistics = GenerationStatistics(memory=self.memory, compiles=run == 1, _rows=rows)
        statistics.prompt_tokens = sum(len(prompt) for prompt in prompts if isinstance(prompt, list))
        answers = self.answers = [[] for _ in range(rows)]
        probabilities: list[list[TokenLogprob]] = [[] for _ in range(rows)]
        self.logprobs = probabilities
        start = time.perf_counter()
        cached, self._cached = self._cached, []  # after an exception, the content of the caches is unknown
        reused = statistics.reused_tokens = self._decoding.prepare(prompts, cached)
        statistics.memory = self.memory
        scores = self._decoding.prefill(prompts, reused)
        if copies > 1:
            scores = self._decoding.repeat(scores, copies)
        statistics.memory = self.memory
        fed = [self._decoding.history(prompt) for prompt in prompts for _ in range(copies)]
        self._sampler.begin(options, fed, matchers)
        best, reading = self._next(scores, logprobs)
        limits = [min(limit, self.context - len(tokens)) for tokens in fed]
        count = 0
        while len(done) < rows:
            pending = reading
            count += 1
            is_last = all(row in done or limits[row] <= count for row in range(rows))
            if not is_last:  # the next step runs while the host waits for this one
                self._cached = []
                scores = self._decoding.step(best)
                if not matchers:
                    best, reading = self._next(scores, logprobs)
            token_reading, logprob_reading = pending
            values = token_reading.result().view(np.int32)
            numbers = None if logprob_reading is None else logprob_reading.result().view(np.float32).reshape(rows, -1)
            for history, value in zip(fed, values, strict=True):
                history.extend([] if is_last else [int(value)])
            if len(fed) == 1:
                self._cached = fed[0]
            step = {row: int(value) for row, value in enumerate(values) if row not in done}
            for row, token in step.items():
                answers[row].append(token)
                if numbers is not None:
                    probabilities[row].append(TokenLogprob.of_row(token, numbers[row]))
            statistics.add(len(step), time.perf_counter() - start)
            done.update(row for row, value in step.items() if value in self.model.config.eos or limits[row] <= count)
            if matchers:  # they need this token for the next one
                done.update(row for row, value in step.items() if matchers[row].add(value))
                if not is_last and len(done) < rows:
                    best, reading = self._next(scores, logprobs)
            yield step
            self._check_current(run)

    def _run_drafted(
        self, draft: DraftMethod, prompt: list[int], limit: int, options: SamplingOptions, done: set[int]
    ) -> Iterator[dict[int, int]]:
        """Generate the answer to a prompt with drafts: a step takes several tokens, which are yielded one by one."""
        self._runs += 1
        run, decoding, sampler = self._runs, self._decoding, self._sampler
        assert isinstance(decoding, CachedDecoding)
        statistics = self.statistics = GenerationStatistics(memory=self.memory, compiles=run == 1)
        statistics.prompt_tokens = len(prompt)
        (answer,) = self.answers = [[]]
        self.logprobs = [[]]
        start = time.perf_counter()
        cached, self._cached = self._cached, []
        statistics.reused_tokens = decoding.prepare([prompt], cached)
        scores = decoding.prefill([prompt], statistics.reused_tokens)
        history, limit = list(prompt), min(limit, self.context - len(prompt))
        draft.begin()
        sampler.begin(options, [history])
        values = read_words(sampler.next(*scores)).result().view(np.int32).tolist()
        while True:
            for token in values:
                history.append(token)
                answer.append(token)
                statistics.add(1, time.perf_counter() - start)
                self._cached = history[:-1]  # the last token has not been run, or its row does not count
                if token in self.model.config.eos or len(answer) >= limit:
                    done.add(0)
                yield {0: token}
                self._check_current(run)
                if done:
                    return
            self._cached = []
            drafts = draft.propose(history)
            size = draft.count + 1
            if not drafts or len(history) - 1 + size > self.context:
                last = Tensor(np.array([history[-1:]], np.int32), device=self.device)
                values = read_words(sampler.next(*decoding.step(last))).result().view(np.int32).tolist()
                continue
            padding = [history[-1]] * (size - 1 - len(drafts))  # so that one size is compiled; it is not kept
            tokens, states = sampler.next_of_draft(*decoding.verify([[history[-1], *drafts, *padding]]))
            values = read_words(tokens).result().view(np.int32).tolist()
            agreed = agreed_count(drafts, values)
            sampler.current, values = states[agreed], values[: agreed + 1]
            decoding.keep([len(history) + agreed])
            statistics.drafted_tokens += len(drafts)
            statistics.kept_tokens += agreed

    def _next(self, scores: Scores, logprobs: int | None) -> tuple[Tensor, tuple[Readback, Readback | None]]:
        """Return the next tokens, and start reading them and their probabilities, in the submission of the step."""
        tokens = self._sampler.next(*scores)
        numbers = None if logprobs is None else self._sampler.logprobs(scores[0], tokens, logprobs)
        return tokens, (read_words(tokens), None if numbers is None else read_words(numbers))

    def _check_current(self, run: int) -> None:
        if run != self._runs:
            raise InvalidState(
                f"{self._label}: another generation has begun, which uses the caches; iterate it instead"
            )

    @property
    def _label(self) -> str:
        return f"model {self.model.name!r}"


def _duration(seconds: float) -> str:
    """Return ``1.25 s``, or ``4.1 ms`` below a tenth of a second."""
    return f"{seconds:.2f} s" if seconds >= 0.1 else f"{1e3 * seconds:.1f} ms"


def _is_between(value: object, low: int, high: int) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(low <= value <= high)
