"""The scheduler of requests, against onnxruntime and answers to one request at a time."""

import random
import threading

import numpy as np
import pytest

from dmlgpu.common.errors import InvalidArgument, InvalidState, NotSupported
from dmlgpu.demo.language_model import DecoderSizes
from dmlgpu.frontends.generation.decoding import CachedDecoding
from dmlgpu.frontends.generation.drafts import agreed_count
from dmlgpu.frontends.generation.generator import Generator
from dmlgpu.frontends.generation.sampling import SamplingOptions
from dmlgpu.frontends.generation.scheduler import QueueFull, Request
from tests.language_models import ADAPTER, Expected, folder_of, prompt_of

SIZES = DecoderSizes(
    layers=1, heads=2, kv_heads=1, head_size=16, feed_forward=32, vocabulary=320, context=160, deviation=0.5
)
SAMPLED = {"temperature": 0.9, "top_p": 0.9, "repetition_penalty": 1.1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return folder_of(tmp_path_factory.mktemp("model"), SIZES)


@pytest.fixture(scope="module")
def expected(folder):
    return Expected(folder, SIZES)


@pytest.fixture(scope="module")
def generator(folder):
    return Generator.load(folder, ADAPTER)


def finish(scheduler):
    """Advance until nothing is left to do."""
    steps = 0
    while scheduler.is_busy:
        scheduler.advance()
        steps += 1
    return steps


def answers_of(submission):
    """The tokens of each answer."""
    answers = [[] for _ in range(submission.request.n)]
    for piece in submission.pieces():
        answers[piece.index].append(piece.token)
    return answers


def requests_of(count):
    """Requests of random lengths; every fourth one is sampled, and every eighth one has two answers."""
    lengths = random.Random(0)
    return [
        Request(
            prompt_of(lengths.randint(1, 100), seed),
            SamplingOptions(seed=seed, **SAMPLED) if seed % 4 == 0 else SamplingOptions(),
            max_tokens=lengths.randint(1, 14),
            n=2 if seed % 8 == 0 else 1,
        )
        for seed in range(count)
    ]


@pytest.mark.parametrize("count", [24, pytest.param(200, marks=pytest.mark.slow)])
def test_answers_equal_those_to_one_request_at_a_time(folder, generator, expected, count):
    requests = requests_of(count)
    scheduler = Generator.load(folder, ADAPTER, chunk=32).scheduler(rows=8, max_queued=count)
    submissions = [scheduler.submit(request) for request in requests]
    steps = finish(scheduler)
    assert steps < sum(request.n * request.max_tokens for request in requests) / 2
    for request, submission in zip(requests, submissions, strict=True):
        if request.options.temperature:
            options = {"max_tokens": request.max_tokens, "seed": request.options.seed, **SAMPLED}
            texts = generator.generate_batch([request.prompt], n=request.n, **options)
            assert answers_of(submission) == [list(text.tokens) for text in texts]
        else:
            assert answers_of(submission) == [expected.tokens(request.prompt, request.max_tokens)] * request.n


def repeating_requests(count):
    """Requests whose prompts repeat themselves, so that there are drafts; every third one is sampled."""
    for seed, request in enumerate(requests_of(count)):
        prompt = [*request.prompt[:20], *request.prompt[:20], *request.prompt[:3]]
        options = SamplingOptions(temperature=0.3, seed=seed, top_p=0.9) if seed % 3 == 0 else SamplingOptions()
        yield Request(prompt, options, max_tokens=request.max_tokens + 20, n=request.n)


@pytest.mark.parametrize("count", [12, pytest.param(60, marks=pytest.mark.slow)])
def test_drafts_do_not_change_answers(folder, generator, expected, monkeypatch, count):
    counts = []

    def counted(drafts, tokens):
        counts.append((len(drafts), agreed_count(drafts, tokens)))
        return counts[-1][1]

    monkeypatch.setattr("dmlgpu.frontends.generation.scheduler.agreed_count", counted)
    requests = list(repeating_requests(count))
    scheduler = Generator.load(folder, ADAPTER, chunk=32, draft="ngram").scheduler(rows=4, max_queued=count + 1)
    submissions = [scheduler.submit(request) for request in requests]
    plain = scheduler.submit(Request(requests[1].prompt, max_tokens=9, logprobs=1))  # drafts wait for it
    finish(scheduler)
    for request, submission in zip(requests, submissions, strict=True):
        if request.options.temperature:
            options = {"max_tokens": request.max_tokens, "seed": request.options.seed, "temperature": 0.3, "top_p": 0.9}
            texts = generator.generate_batch([request.prompt], n=request.n, **options)
            assert answers_of(submission) == [list(text.tokens) for text in texts]
        else:
            assert answers_of(submission) == [expected.tokens(request.prompt, request.max_tokens)] * request.n
    assert answers_of(plain) == [expected.tokens(requests[1].prompt, 9)]
    drafted, agreed = np.sum(counts, axis=0)
    assert 0 < agreed < drafted


def test_a_smaller_model_drafts_for_no_server(folder):
    with pytest.raises(NotSupported, match="a smaller model drafts for one answer at a time"):
        Generator.load(folder, ADAPTER, draft=folder).scheduler()


def test_pieces_have_text_probabilities_and_the_reason_of_the_end(folder, generator):
    scheduler = Generator.load(folder, ADAPTER).scheduler()
    prompt = prompt_of(9, 2)
    (whole,) = generator.generate_batch([prompt], max_tokens=12, logprobs=2)
    stop = whole.text[3:5]
    (stopped,) = generator.generate_batch([prompt], max_tokens=12, stop=stop)
    assert stopped.text != whole.text
    requests = [
        (Request(prompt, max_tokens=12, logprobs=2), whole.text, whole.logprobs, "length"),
        (Request(prompt, max_tokens=12, stop=(stop,)), stopped.text, (None,) * len(stopped.tokens), "stop"),
    ]
    submissions = [scheduler.submit(request) for request, *_ in requests]
    finish(scheduler)
    for submission, (_, text, logprobs, reason) in zip(submissions, requests, strict=True):
        pieces = list(submission.pieces())
        assert "".join(piece.text for piece in pieces) == text
        assert [piece.finish for piece in pieces] == [""] * (len(pieces) - 1) + [reason]
        for piece, logprob in zip(pieces, logprobs, strict=True):
            if logprob is not None:
                assert [token for token, _ in piece.logprob.top] == [token for token, _ in logprob.top]
                np.testing.assert_allclose(piece.logprob.logprob, logprob.logprob, rtol=1e-4, atol=1e-5)


def test_a_long_prompt_does_not_stall_running_answers(folder, expected):
    scheduler = Generator.load(folder, ADAPTER, chunk=16).scheduler()
    running = scheduler.submit(Request(prompt_of(5), max_tokens=20))
    for _ in range(3):
        scheduler.advance()
    received = []
    running.receive = received.append
    long = scheduler.submit(Request(prompt_of(130, 1), max_tokens=2))
    chunks = -(-130 // 16)
    for _ in range(chunks - 1):
        scheduler.advance()
    assert len(received) == chunks - 1  # a token for each chunk
    finish(scheduler)
    assert answers_of(long) == [expected.tokens(prompt_of(130, 1), 2)]
    tokens = [piece.token for piece in received if piece is not None]
    assert tokens == expected.tokens(prompt_of(5), 20)[-len(tokens) :]


def test_rows_of_cancelled_requests_are_given_back(folder, expected):
    scheduler = Generator.load(folder, ADAPTER, chunk=16).scheduler(rows=2)
    requests = [Request(prompt_of(5 + seed, seed), max_tokens=30) for seed in range(3)]
    first, second, waiting = (scheduler.submit(request) for request in requests)
    for _ in range(4):
        scheduler.advance()
    assert scheduler.queued == 1
    first.cancel()
    scheduler.advance()
    assert scheduler.queued == 0
    assert 1 <= len(list(first.pieces())) < 10
    prefilled = scheduler.submit(Request(prompt_of(100), max_tokens=4))
    queued = scheduler.submit(Request(prompt_of(3), max_tokens=4))
    second.cancel()
    scheduler.advance()
    for submission in (prefilled, queued):
        submission.cancel()
    finish(scheduler)
    assert answers_of(waiting) == [expected.tokens(requests[2].prompt, 30)]
    assert [list(submission.pieces()) for submission in (prefilled, queued)] == [[], []]


def test_an_exception_ends_the_answers_that_run_and_no_others(folder, expected, monkeypatch):
    scheduler = Generator.load(folder, ADAPTER).scheduler(rows=1)
    failing, waiting = (scheduler.submit(Request(prompt_of(5, seed), max_tokens=6)) for seed in range(2))
    step = CachedDecoding.step

    def fail(*_):
        monkeypatch.setattr(CachedDecoding, "step", step)
        raise InvalidState("the device was lost")

    monkeypatch.setattr(CachedDecoding, "step", fail)
    finish(scheduler)
    with pytest.raises(InvalidState, match="the device was lost"):
        list(failing.pieces())
    assert answers_of(waiting) == [expected.tokens(prompt_of(5, 1), 6)]


def test_a_client_that_cannot_receive_disturbs_no_other(folder, expected):
    scheduler = Generator.load(folder, ADAPTER).scheduler()

    def fail(piece):
        raise RuntimeError("the event loop is closed")

    gone = scheduler.submit(Request(prompt_of(5), max_tokens=100), fail)
    other = scheduler.submit(Request(prompt_of(5), max_tokens=6))
    assert finish(scheduler) < 20
    assert gone.is_cancelled
    assert answers_of(other) == [expected.tokens(prompt_of(5), 6)]


def test_prompts_that_begin_like_the_last_one_reuse_it(folder, expected):
    scheduler = Generator.load(folder, ADAPTER).scheduler()
    prompt = prompt_of(40)
    submissions = [scheduler.submit(Request(tokens, max_tokens=3)) for tokens in (prompt, [*prompt[:30], 7])]
    finish(scheduler)
    assert [submission.reused_tokens for submission in submissions] == [0, 30]
    assert answers_of(submissions[1]) == [expected.tokens([*prompt[:30], 7], 3)]


def test_embeddings_are_computed_between_answers(folder, generator, expected):
    scheduler = Generator.load(folder, ADAPTER).scheduler()
    running = scheduler.submit(Request(prompt_of(5), max_tokens=8))
    futures = [scheduler.embed(prompt_of(20), pooling) for pooling in ("mean", "last")]
    cancelled = scheduler.embed(prompt_of(20))
    cancelled.cancel()
    after = scheduler.submit(Request(prompt_of(20), max_tokens=2))
    finish(scheduler)
    for future, pooling in zip(futures, ("mean", "last"), strict=True):
        vector = generator.embed(prompt_of(20), pooling=pooling, normalize=False)
        np.testing.assert_allclose(future.result(), vector, rtol=1e-5, atol=1e-6)
    assert answers_of(running) == [expected.tokens(prompt_of(5), 8)]
    assert answers_of(after) == [expected.tokens(prompt_of(20), 2)]


def test_answers_go_on_while_a_long_prompt_is_embedded(folder, generator, expected):
    scheduler = Generator.load(folder, ADAPTER, chunk=16).scheduler()
    pieces = []
    scheduler.submit(Request(prompt_of(5), max_tokens=20), pieces.append)
    scheduler.advance()
    future = scheduler.embed(prompt_of(100))
    counts = []
    while not future.done():
        scheduler.advance()
        counts.append(len(pieces))
    assert counts == list(range(counts[0], counts[0] + 7))  # 100 tokens are 7 chunks
    np.testing.assert_allclose(future.result(), generator.embed(prompt_of(100), normalize=False), rtol=1e-5, atol=1e-6)
    finish(scheduler)
    assert [piece.token for piece in pieces if piece] == expected.tokens(prompt_of(5), 20)


def test_limits_of_requests(folder):
    generator = Generator.load(folder, ADAPTER)
    with pytest.raises(InvalidArgument, match="rows must be an integer of at least 1, got 0"):
        generator.scheduler(rows=0)
    scheduler = generator.scheduler(rows=2, max_queued=1)
    with pytest.raises(NotSupported, match="n must be at most 2"):
        scheduler.submit(Request([5], n=3))
    waiting = scheduler.submit(Request([5]))
    with pytest.raises(QueueFull, match="1 requests wait already"):
        scheduler.submit(Request([5]))
    scheduler.start()
    scheduler.close()
    with pytest.raises(InvalidState, match="the server ends"):
        list(waiting.pieces())
    with pytest.raises(InvalidState, match="the server ends"):
        scheduler.submit(Request([5]))


def test_threads_wait_for_their_answers(folder, expected):
    answers = {}
    with Generator.load(folder, ADAPTER).scheduler(rows=2) as scheduler:

        def ask(seed):
            submission = scheduler.submit(Request(prompt_of(8, seed), max_tokens=5))
            answers[seed] = answers_of(submission)

        threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert answers == {seed: [expected.tokens(prompt_of(8, seed), 5)] for seed in range(5)}
