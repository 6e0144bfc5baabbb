"""A scheduler of requests: many prompts are answered at the same time on one device.

Each answer has a row of the caches. A step runs the next token of every row, regardless of its position. Between two
steps, a chunk of one waiting prompt runs in caches of its own, whose row then joins the others: answers wait at most
for a chunk, and not for a prompt. Embeddings run in chunks as well. Rows are rearranged when a prompt joins, to a power
of two of them, so that the batch has no more rows than its answers need. The row of an answer that has ended, or whose
client has gone, is idle until then.

With drafts, a step runs several tokens of every row, if some row has a draft: its own next token, and what followed the
same tokens before.

Tokens depend only on the request: ``Generator.generate_batch`` takes the same ones for this prompt alone.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dmlgpu.common.errors import DmlError, InvalidState, NotSupported
from dmlgpu.frontends.generation.decoding import CachedDecoding, Scores
from dmlgpu.frontends.generation.drafts import NgramDraft, agreed_count
from dmlgpu.frontends.generation.language_model import LanguageModel
from dmlgpu.frontends.generation.sampling import Sampler, SamplingOptions, SamplingState, TokenLogprob, read_words
from dmlgpu.frontends.generation.text import TextStream
from dmlgpu.ops import concatenate, take
from dmlgpu.runtime.buffer import Readback
from dmlgpu.tensors.tensor import Tensor

if TYPE_CHECKING:
    from dmlgpu.frontends.generation.grammar import Grammar, Matcher


class QueueFull(DmlError):
    """As many requests wait as may."""


@dataclass(frozen=True)
class Request:
    """A prompt, and how to answer it.

    Attributes:
        prompt: Token ids, as ``Generator.tokens_of`` and ``chat_tokens`` return them.
        options: Options of choosing tokens.
        max_tokens: Maximum number of tokens of an answer; None for as many as the context has room for.
        stop: Strings that end an answer.
        logprobs: Number of most likely tokens whose probabilities are returned; None for no probabilities.
        n: Number of answers.
        grammar: What the text of an answer must be; None for any text.
        marks: Special tokens that the text of an answer has.
    """

    prompt: Sequence[int]
    options: SamplingOptions = field(default_factory=SamplingOptions)
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    logprobs: int | None = None
    n: int = 1
    grammar: Grammar | None = None
    marks: frozenset[int] = frozenset()


@dataclass(frozen=True)
class AnswerPiece:
    """A token of an answer.

    Attributes:
        index: Index of the answer among those of its request.
        token: The token.
        text: The text that it completes; empty if it is part of a character, or perhaps of a stop string.
        logprob: Its probability, if it was requested.
        finish: "stop" if the model or a stop string ended the answer with it, "length" if there is no room for more;
            empty if there are more tokens.
    """

    index: int
    token: int
    text: str
    logprob: TokenLogprob | None = None
    finish: str = ""


Received: TypeAlias = "AnswerPiece | Exception | None"
"""A piece; an exception that ends all answers; None after the last piece of all."""


class Submission:
    """A request that waits or is being answered.

    Args:
        request: The request.
        receive: Called in the thread of the scheduler for each piece, the exception or the end; None stores them for
            ``pieces``.

    Attributes:
        request: The request.
        reused_tokens: Prompt tokens that were already in the caches.
        is_cancelled: Whether the client has gone.
    """

    def __init__(self, request: Request, receive: Callable[[Received], None] | None = None):
        self.request, self.reused_tokens, self.is_cancelled = request, 0, False
        self._received: SimpleQueue[Received] = SimpleQueue()
        self.receive = receive or self._received.put

    def cancel(self) -> None:
        """End the answers. Their rows are free from the next step on."""
        self.is_cancelled = True

    def pieces(self) -> Iterator[AnswerPiece]:
        """Return an iterator over the pieces of all answers, which waits for them.

        Raises:
            DmlError: As ``Generator.generate``, or if the scheduler was closed.
        """
        while (received := self._received.get()) is not None:
            if isinstance(received, Exception):
                raise received
            yield received


@dataclass(eq=False)
class _Row:
    """An answer, whose tokens have a row of the caches.

    Attributes:
        index: As of AnswerPiece.
        limit: Maximum number of its tokens.
        stream: Turns tokens into text.
        history: Prompt and answer so far, as the host knows them.
        taken: Number of tokens taken on the device.
        received: Number of tokens that the host has read.
        is_done: Whether no more of them count.
        draft: Drafts its next tokens.
    """

    index: int
    limit: int
    stream: TextStream | None
    history: list[int]
    taken: int = 0
    received: int = 0
    is_done: bool = False
    draft: NgramDraft = field(default_factory=NgramDraft)

    @property
    def needs_token(self) -> bool:
        return not self.is_done and self.taken < self.limit


@dataclass(eq=False)
class _Running:
    """A submission with rows of the caches, next to each other until all of its answers are done.

    Attributes:
        submission: The submission.
        state: State of its sampling.
        rows: Its answers.
        start: Index of the first row.
    """

    submission: Submission
    state: SamplingState
    rows: list[_Row]
    start: int = 0

    @property
    def is_done(self) -> bool:
        return all(row.is_done for row in self.rows)


@dataclass(eq=False)
class _Prefill:
    """A prompt whose chunks are being run."""

    submission: Submission
    chunks: Iterator[tuple[Scores, int]]


@dataclass(eq=False)
class _Embedding:
    """A prompt whose embedding is requested.

    Attributes:
        tokens: The prompt.
        pooling: As for ``Generator.embed``.
        future: The vector.
        chunks: Hidden states of its chunks, which are being run.
        states: Those so far.
    """

    tokens: list[int]
    pooling: str
    future: Future[NDArray[np.float32]] = field(default_factory=Future)
    chunks: Iterator[NDArray[np.float32]] = field(default_factory=lambda: iter(()))
    states: list[NDArray[np.float32]] = field(default_factory=list)

    @property
    def is_cancelled(self) -> bool:
        return self.future.cancelled()


@dataclass
class _Reading:
    """Tokens of a step, on their way to the host.

    Attributes:
        rows: The answers that get a token, with their submissions and the indices of their tokens.
        tokens: The tokens.
        logprobs: Probabilities by submission.
    """

    rows: list[tuple[_Running, _Row, int]]
    tokens: Readback
    logprobs: dict[int, Readback] = field(default_factory=dict)


class Scheduler:
    """Answers many requests at the same time; made by ``Generator.scheduler``.

        with generator.scheduler(rows=8) as scheduler:
            submissions = [scheduler.submit(Request(tokens)) for tokens in prompts]
            answers = ["".join(piece.text for piece in each.pieces()) for each in submissions]

    ``submit`` and ``embed`` may be called from any thread. The device is used by one thread of the scheduler.

    Args:
        model: The model.
        decoding: Its decoding, whose caches hold the prompt that is being computed.
        sampler: Chooses tokens.
        match: Returns matchers of a grammar for a number of answers.
        context: Maximum number of tokens of a prompt and an answer.
        rows: Maximum number of answers at the same time.
        max_queued: Maximum number of requests that wait.
        has_drafts: Whether tokens are drafted.

    Raises:
        InvalidArgument: If the caches of the rows do not fit the adapter.
    """

    def __init__(
        self,
        model: LanguageModel,
        decoding: CachedDecoding,
        sampler: Sampler,
        match: Callable[[Grammar | None, int], Sequence[Matcher]],
        *,
        context: int,
        rows: int,
        max_queued: int,
        has_drafts: bool = False,
    ):
        self.rows = rows
        self._model, self._sampler, self._context, self._max_queued = model, sampler, context, max_queued
        self._match, self._has_drafts = match, has_drafts
        self._prompts, self._decoding = decoding, decoding.sibling()
        decoding.check(_power_of_two(rows) + 1)
        self._queue: deque[Submission | _Embedding] = deque()
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread: threading.Thread | None = None
        self._prefill: _Prefill | None = None
        self._embedding: _Embedding | None = None
        self._cached: list[int] = []
        self._running: list[_Running] = []
        self._active: list[bool] = []
        self._tokens: Tensor | None = None
        self._readings: list[_Reading] = []

    # ---- requests ----------------------------------------------------------------------------------------------------

    def submit(self, request: Request, receive: Callable[[Received], None] | None = None) -> Submission:
        """Submit a request.

        Args:
            request: The request. Its options have been checked.
            receive: As for Submission.

        Returns:
            The submission.

        Raises:
            QueueFull: If too many requests wait.
            NotSupported: If it needs more rows than there are.
            InvalidState: If the scheduler is closed.
        """
        if request.n > self.rows:
            raise NotSupported(
                f"n must be at most {self.rows}, the number of answers at the same time, got {request.n}"
            )
        submission = Submission(request, receive)
        self._enqueue(submission)
        return submission

    def embed(self, tokens: Sequence[int], pooling: str = "mean") -> Future[NDArray[np.float32]]:
        """Submit a prompt whose embedding is requested.

        Args:
            tokens: Token ids.
            pooling: As for ``Generator.embed``.

        Returns:
            A future of the vector, which is not normalized.

        Raises:
            QueueFull: If too many requests wait.
            InvalidState: If the scheduler is closed.
        """
        embedding = _Embedding(list(tokens), pooling)
        self._enqueue(embedding)
        return embedding.future

    def _enqueue(self, entry: Submission | _Embedding) -> None:
        with self._changed:
            if self._is_closed:
                raise InvalidState("the server ends")
            if self.queued >= self._max_queued:
                raise QueueFull(f"{self._max_queued} requests wait already")
            self._queue.append(entry)
            self._changed.notify()

    @property
    def queued(self) -> int:
        """Number of requests that wait and whose clients have not gone."""
        return sum(not entry.is_cancelled for entry in self._queue)

    # ---- the thread --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread that answers."""
        self._thread = threading.Thread(target=self._run, name="dmlgpu scheduler", daemon=True)
        self._thread.start()

    def __enter__(self) -> Scheduler:
        self.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def stop(self) -> None:
        """End all answers by an exception, without waiting."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def close(self) -> None:
        """End all answers by an exception, and the thread."""
        self.stop()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_closed or self.is_busy)
                if self._is_closed:
                    break
            self.advance()
        self._fail(InvalidState("the server ends"), all_queued=True)

    @property
    def is_busy(self) -> bool:
        """Whether there is something to compute."""
        return bool(self._queue or self._prefill or self._embedding or self._running)

    def advance(self) -> None:
        """Run a chunk of a prompt, and a step of all answers. An exception ends those that run."""
        try:
            self._drop_cancelled()
            self._run_chunk()
            readings, self._readings = self._readings, []
            is_drafted = False
            if self._has_drafts:
                self._deliver(readings)
                readings = []
                is_drafted = self._run_drafted()
            scores = None if is_drafted else self._run_step()
            if any(running.state.matchers for running in self._running):
                self._deliver(readings)  # a grammar needs them for the next tokens
                readings = []
            if scores is not None:
                self._tokens, reading = self._taken(self._running, *scores)
                self._readings.append(reading)
            self._deliver(readings)  # while the step runs
            self._drop_done()
            if not self._running:
                self._release()
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception, *, all_queued: bool = False) -> None:
        """End the answers that run by an exception, or those that wait as well."""
        ended = [running.submission for running in self._running if not running.is_done]
        ended += [] if self._prefill is None else [self._prefill.submission]
        if self._embedding is not None:
            self._embedding.future.set_exception(error)
        self._embedding, self._prefill, self._cached, self._running, self._readings = None, None, [], [], []
        self._release()
        with self._changed:
            queued = list(self._queue) if all_queued else []
            self._queue = deque() if all_queued else self._queue
        for entry in [*ended, *queued]:
            if isinstance(entry, Submission):
                _send(entry, error)
            elif entry.future.set_running_or_notify_cancel():
                entry.future.set_exception(error)

    def _release(self) -> None:
        """Free the caches of answers."""
        self._active, self._tokens = [], None
        self._decoding.release()

    def _drop_done(self) -> None:
        self._running = [running for running in self._running if not running.is_done]

    def _drop_cancelled(self) -> None:
        """Drop the requests of clients that have gone."""
        with self._changed:
            dropped = [entry for entry in self._queue if entry.is_cancelled]
            self._queue = deque(entry for entry in self._queue if not entry.is_cancelled)
        submissions = [entry for entry in dropped if isinstance(entry, Submission)]
        if self._prefill is not None and self._prefill.submission.is_cancelled:
            submissions.append(self._prefill.submission)
            self._prefill, self._cached = None, []
        for running in self._running:
            if running.submission.is_cancelled:
                submissions.append(running.submission)
                for row in running.rows:
                    row.is_done = True
        self._drop_done()
        for submission in submissions:
            _send(submission, None)

    # ---- prompts -----------------------------------------------------------------------------------------------------

    def _run_chunk(self) -> None:
        """Run a chunk of the oldest prompt. A prompt joins the others after its last chunk, unless it is embedded."""
        if self._prefill is None and self._embedding is None:
            entry = self._admitted()
            if entry is None:
                return
            if isinstance(entry, _Embedding):
                if entry.future.set_running_or_notify_cancel():
                    self._cached, self._embedding = [], entry
                    entry.chunks = self._prompts.hidden_chunks(entry.tokens)
                    self._embed_chunk(entry)
                return
            prompt = list(entry.request.prompt)
            cached, self._cached = self._cached, []
            entry.reused_tokens = self._prompts.prepare([prompt], cached)
            self._prefill = _Prefill(entry, self._prompts.prefill_chunks(prompt, entry.reused_tokens))
        if self._embedding is not None:
            self._embed_chunk(self._embedding)
            return
        assert self._prefill is not None
        scores, count = next(self._prefill.chunks)
        prompt = list(self._prefill.submission.request.prompt)
        if count == len(prompt):
            submission, self._prefill = self._prefill.submission, None
            self._join(submission, scores)
            self._cached = prompt

    def _embed_chunk(self, embedding: _Embedding) -> None:
        """Run a chunk of an embedding; its vector is complete after the last one."""
        try:
            embedding.states.append(next(embedding.chunks))
            if sum(map(len, embedding.states)) < len(embedding.tokens):
                return
            result: Any = pooled(np.concatenate(embedding.states), embedding.pooling)
        except Exception as error:
            self._embedding = None
            embedding.future.set_exception(error)
        else:
            self._embedding = None
            embedding.future.set_result(result)

    def _admitted(self) -> Submission | _Embedding | None:
        """Take the next entry from the queue, if there are rows for it."""
        used = sum(len(running.rows) for running in self._running)
        with self._changed:
            if not self._queue:
                return None
            entry = self._queue[0]
            if isinstance(entry, Submission) and used + entry.request.n > self.rows:
                return None
            return self._queue.popleft()

    def _join(self, submission: Submission, scores: Scores) -> None:
        """Give a prompt its rows, and take its first tokens."""
        request = submission.request
        prompt, n = list(request.prompt), request.n
        limit = min(request.max_tokens or self._context, self._context - len(prompt))
        tokenizer = self._model.tokenizer
        streams = [
            None if tokenizer is None else TextStream(tokenizer, request.stop, prompt, request.marks) for _ in range(n)
        ]
        rows = [_Row(index, limit, stream, list(prompt)) for index, stream in enumerate(streams)]
        state = self._sampler.begin(request.options, [prompt] * n, self._match(request.grammar, n))
        joined = _Running(submission, state, rows)
        logits, best = scores if n == 1 else (take(tensor, self._integers([0] * n), axis=0) for tensor in scores)
        first, reading = self._taken([joined], logits, best)
        before = len(self._active)
        sources: list[int | None] = []
        for running in self._running:
            start = len(sources)
            sources += range(running.start, running.start + len(running.rows))
            running.start = start
        joined.start = len(sources)
        idle = [None] * (_power_of_two(len(sources) + n) - len(sources) - n)
        self._decoding.arrange([*sources, *[before] * n, *idle], self._prompts)
        every = first if self._tokens is None else concatenate([self._tokens, first], axis=0)
        places = [*sources, *range(before, before + n), *idle]
        self._tokens = take(every, self._integers([place or 0 for place in places]), axis=0)
        self._active = [place is not None for place in places]
        self._running.append(joined)
        self._readings.append(reading)

    # ---- answers -----------------------------------------------------------------------------------------------------

    def _activate(self) -> bool:
        """Let the tokens of answers that need a next one count; return whether there are any."""
        active = [False] * len(self._active)
        for running in self._running:
            for row in running.rows:
                active[running.start + row.index] = row.needs_token
        if any(active) and active != self._active:
            self._decoding.count(active)
            self._active = active
        return any(active)

    def _run_step(self) -> Scores | None:
        """Run the last tokens of all answers that need a next one."""
        if not self._activate():
            return None
        assert self._tokens is not None
        return self._decoding.step(self._tokens)

    def _drafts(self) -> dict[int, list[int]]:
        """Return the drafts by row, of which some are not empty; else nothing."""
        running = [each for each in self._running if not each.is_done]
        rows = [(each.start + row.index, row) for each in running for row in each.rows if row.needs_token]
        needs_steps = any(each.state.matchers or each.submission.request.logprobs is not None for each in running)
        fits = all(len(row.history) + NgramDraft.count <= self._context for _, row in rows)
        if needs_steps or not fits:
            return {}
        drafts = {place: row.draft.propose(row.history) for place, row in rows}
        for each in running:
            if len(each.rows) > 1 and not each.state.options.is_greedy:  # their states are those of one step
                drafts |= {each.start + row.index: [] for row in each.rows}
        return drafts if any(drafts.values()) else {}

    def _run_drafted(self) -> bool:
        """Run the last tokens of all answers with drafts, and send the tokens that they take; return whether there are
        any drafts."""
        drafts = self._drafts()
        if not drafts or not self._activate():
            return False
        size, count = NgramDraft.count + 1, len(self._active)
        rows = {each.start + row.index: row for each in self._running for row in each.rows}
        tokens = [[0] * size for _ in range(count)]
        for place, draft in drafts.items():
            tokens[place] = [rows[place].history[-1], *draft, *[0] * (size - 1 - len(draft))]
        taken, states = self._taken_of_drafts(*self._decoding.verify(tokens), size)
        for running in [running for running in self._running if not running.is_done]:
            for row in running.rows:
                place = running.start + row.index
                if place not in drafts:
                    continue
                values = taken[place].tolist()
                agreed = agreed_count(drafts[place], values)
                running.state = states[place][agreed] if place in states else running.state
                for token in values[: agreed + 1]:
                    if row.needs_token:
                        row.taken += 1
                        self._give(running, row, token, None)
        histories = [rows[place].history if place in drafts else [0] for place in range(count)]
        self._decoding.keep([len(history) - 1 for history in histories])  # the last token has not been run
        last = np.array([history[-1:] for history in histories], np.int32)
        self._tokens = Tensor(last, device=self._decoding.device)
        self._drop_done()
        return True

    def _taken_of_drafts(
        self, logits: Tensor, best: Tensor, size: int
    ) -> tuple[NDArray[np.int32], dict[int, list[SamplingState]]]:
        """Return the next tokens {batch, size} after each token of the drafts, and the states of sampling by row."""
        parts, places = [best], []
        states: dict[int, list[SamplingState]] = {}
        for running in self._running:
            if running.is_done or running.state.options.is_greedy:
                continue
            count = len(running.rows)
            places.append((running.start, count))
            self._sampler.current = running.state
            start = running.start * size
            if count == 1:
                block = slice(start, start + size)
                values, states[running.start] = self._sampler.next_of_draft(logits[block], best[block])
            else:  # without drafts
                firsts = self._integers(range(start, start + count * size, size))
                values = self._sampler.next(take(logits, firsts, axis=0), take(best, firsts, axis=0))
                values = concatenate([values] * size, axis=1).reshape(count * size, 1)
            parts.append(values)
        table = read_words(concatenate(parts, axis=0) if places else best).result().view(np.int32).reshape(-1, size)
        taken, sampled = np.split(table, [len(self._active)])
        taken = taken.copy()
        for start, count in places:
            taken[start : start + count], sampled = sampled[:count], sampled[count:]
        return taken, states

    def _taken(self, running: Sequence[_Running], logits: Tensor, best: Tensor) -> tuple[Tensor, _Reading]:
        """Take the next tokens {batch, 1}, and start reading them."""
        running = [each for each in running if any(row.needs_token for row in each.rows)]
        parts, end = [], 0
        for each in sorted(running, key=lambda running: running.start):
            if each.state.options.is_greedy and not each.state.matchers:
                continue
            if end < each.start:
                parts.append(best[end : each.start])
            self._sampler.current = each.state
            parts.append(self._sampler.next(_part(logits, each), _part(best, each)))
            end = each.start + len(each.rows)
        if end < best.shape[0]:
            parts.append(best if end == 0 else best[end:])
        tokens = parts[0] if len(parts) == 1 else concatenate(parts, axis=0)
        reading = _Reading([], read_words(tokens))
        for each in running:
            count = each.submission.request.logprobs
            if count is not None:
                logprobs = self._sampler.logprobs(_part(logits, each), _part(tokens, each), count)
                reading.logprobs[id(each)] = read_words(logprobs)
            for row in each.rows:
                if row.needs_token:
                    row.taken += 1
                    reading.rows.append((each, row, each.start + row.index))
        return tokens, reading

    def _deliver(self, readings: Sequence[_Reading]) -> None:
        """Send tokens to those who wait for them."""
        for reading in readings:
            self._deliver_step(reading)

    def _deliver_step(self, reading: _Reading) -> None:
        tokens = reading.tokens.result().view(np.int32)
        numbers = {key: readback.result().view(np.float32) for key, readback in reading.logprobs.items()}
        for running, row, place in reading.rows:
            if row.is_done:
                continue
            token, logprob = int(tokens[place]), None
            if id(running) in numbers:
                by_row = numbers[id(running)].reshape(len(running.rows), -1)
                logprob = TokenLogprob.of_row(token, by_row[row.index])
            self._give(running, row, token, logprob)

    def _give(self, running: _Running, row: _Row, token: int, logprob: TokenLogprob | None) -> None:
        """Send a token to its client, and the end after the last one of all answers."""
        _send(running.submission, self._piece(running, row, token, logprob))
        if running.is_done:
            _send(running.submission, None)

    def _piece(self, running: _Running, row: _Row, token: int, logprob: TokenLogprob | None) -> AnswerPiece:
        row.received += 1
        row.history.append(token)
        ends, stream = token in self._model.config.eos, row.stream
        text = "" if ends or stream is None else stream.add(token)
        matchers = running.state.matchers
        is_matched = bool(matchers) and matchers[row.index].add(token)
        stops = ends or is_matched or (stream is not None and stream.stopped)
        finish = "stop" if stops else "length" if row.received >= row.limit else ""
        if finish:
            text += "" if stream is None else stream.finish()
            row.is_done = True
        return AnswerPiece(row.index, token, text, logprob, finish)

    def _integers(self, values: Sequence[int]) -> Tensor:
        return Tensor(np.array(values, np.int32), device=self._decoding.device)


def pooled(states: NDArray[np.float32], pooling: str) -> NDArray[np.float32]:
    """Return an embedding of hidden states {tokens, width}: their mean, or the last one."""
    result: NDArray[np.float32] = states[-1] if pooling == "last" else states.mean(axis=0)
    return result


def _send(submission: Submission, received: Received) -> None:
    """Send something to a client; one that cannot receive it is gone."""
    try:
        submission.receive(received)
    except Exception:
        submission.cancel()


def _part(tensor: Tensor, running: _Running) -> Tensor:
    """Return the rows of a submission."""
    count = len(running.rows)
    return tensor if count == tensor.shape[0] else tensor[running.start : running.start + count]


def _power_of_two(count: int) -> int:
    return 1 << (count - 1).bit_length()
