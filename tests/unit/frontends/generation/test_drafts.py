"""Speculative decoding: answers equal those of the model alone, regardless of the drafts."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from dmlgpu import Device, Tensor
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.frontends.generation import decoding
from dmlgpu.frontends.generation.decoding import CachedDecoding
from dmlgpu.frontends.generation.drafts import NgramDraft
from dmlgpu.frontends.generation.generator import Generator
from dmlgpu.frontends.generation.sampling import Sampler, SamplingOptions
from tests.language_models import ADAPTER, SIZES, Expected, folder_of, prompt_of

SMALL = replace(SIZES, layers=1, heads=2, kv_heads=1, feed_forward=32)
SAMPLED = {"temperature": 0.7, "top_k": 3, "repetition_penalty": 1.1, "frequency_penalty": 0.1, "seed": 3}
REPEATED = [5, 6, 7, 8, 9] * 6
"""A prompt whose end n-grams know."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return folder_of(tmp_path_factory.mktemp("model"), SMALL)


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """A model with other weights, whose drafts are usually wrong."""
    return folder_of(tmp_path_factory.mktemp("other"), replace(SMALL, feed_forward=64))


@pytest.fixture(scope="module")
def expected(folder):
    return Expected(folder, SMALL)


@pytest.fixture(scope="module", params=["ngram", "same", "other"])
def drafted(request, folder, other):
    return Generator.load(folder, ADAPTER, draft={"ngram": "ngram", "same": folder, "other": other}[request.param])


@pytest.mark.parametrize("prompt", [prompt_of(11), REPEATED])
def test_greedy_tokens_are_those_of_the_model(drafted, expected, prompt):
    for count in (40, 5):  # the second time, the caches have the prompt
        assert list(drafted.generate_tokens(prompt, max_tokens=count)) == expected.tokens(prompt, count)
    assert drafted.statistics.reused_tokens == len(prompt) - 1


def test_answers_end_where_the_context_ends(drafted, expected):
    prompt = prompt_of(140)
    assert list(drafted.generate_tokens(prompt)) == expected.tokens(prompt, 20)


@pytest.mark.parametrize("draft", ["ngram", "same"])
def test_caches_grow_for_drafts(folder, expected, monkeypatch, draft):
    """Rows of the caches are reserved for all drafted tokens, before any is known to be kept."""
    monkeypatch.setattr(decoding, "SMALLEST_CACHE", 8)
    generator = Generator.load(folder, ADAPTER, draft=folder if draft == "same" else draft)
    for prompt in (REPEATED[:7], REPEATED, prompt_of(11)):
        assert list(generator.generate_tokens(prompt, max_tokens=100)) == expected.tokens(prompt, 100)


def test_sampled_tokens_are_those_of_the_model_for_a_seed(drafted, folder):
    plain = Generator.load(folder, ADAPTER)
    options = SamplingOptions(**SAMPLED)
    tokens = list(plain.generate_tokens(REPEATED, max_tokens=30, options=options))
    assert list(drafted.generate_tokens(REPEATED, max_tokens=30, options=options)) == tokens


def test_a_text_goes_on_after_a_generation_that_was_closed(drafted, expected):
    tokens = []
    for token in drafted.generate_tokens(REPEATED, max_tokens=20):
        tokens.append(token)
        if len(tokens) == 5:
            break
    longer = [*REPEATED, *tokens, 5]
    assert list(drafted.generate_tokens(longer, max_tokens=10)) == expected.tokens(longer, 10)
    assert drafted.statistics.reused_tokens >= len(REPEATED) + 4


def test_drafts_save_steps(folder, monkeypatch):
    """A model that drafts for itself is always right: one run for four tokens."""
    runs = []
    verify = CachedDecoding.verify
    monkeypatch.setattr(CachedDecoding, "verify", lambda *arguments: (runs.append(1), verify(*arguments))[1])
    generator = Generator.load(folder, ADAPTER, draft=folder)
    count = len(list(generator.generate_tokens(prompt_of(11), max_tokens=33)))
    assert len(runs) == -(-(count - 1) // 4)
    assert generator.statistics.kept_tokens == generator.statistics.drafted_tokens == 3 * len(runs)
    assert "drafted" in str(generator.statistics)


def test_memory_counts_the_model_that_drafts(folder):
    plain, drafted = Generator.load(folder, ADAPTER).memory, Generator.load(folder, ADAPTER, draft=folder).memory
    assert (drafted.weights, drafted.caches, drafted.logits) == (2 * plain.weights, 2 * plain.caches, 2 * plain.logits)
    assert drafted.growth == plain.growth
    assert Generator.load(folder, ADAPTER, draft="ngram").memory == plain


def test_ngrams_propose_what_followed():
    draft = NgramDraft()
    assert draft.propose([1, 2, 3]) == []
    assert draft.propose([1, 2, 3, 4, 1, 2]) == [3, 4, 1, 2]
    assert draft.propose([1, 2, 3, 4, 1, 2, 9, 1, 2]) == [9, 1, 2]  # the last occurrence
    assert draft.propose([1, 2, 3, 4, 1, 2, 9, 1, 2, 3]) == [4, 1, 2, 9, 1, 2, 3]  # three tokens before two
    draft.begin()
    assert draft.propose([1, 2]) == []


@pytest.mark.slow
def test_drafts_do_not_change_probabilities():
    """Chi-square of the first token, and of the second one if the first one was drafted."""
    device = Device(ADAPTER)
    logits = np.random.default_rng(0).normal(size=(2, 6)).astype(np.float32)
    probabilities = np.exp(logits.astype(np.float64))
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    sampler, scores = Sampler(device, 6), Tensor(logits, device=device)
    best = Tensor(logits.argmax(axis=1, keepdims=True).astype(np.int32), device=device)
    draft = int(logits[0].argmax())
    sampler.begin(SamplingOptions(temperature=1.0, seed=1), [[]])
    first, second = np.zeros(6), np.zeros(6)
    for _ in range(500):
        tokens, states = sampler.next_of_draft(scores, best)
        values = tokens.numpy()[:, 0]
        agreed = int(values[0] == draft)
        sampler.current = states[agreed]
        first[values[0]] += 1
        if agreed:
            second[values[1]] += 1
    for counts, row in ((first, probabilities[0]), (second, probabilities[1])):
        assert stats.chisquare(counts, counts.sum() * row).pvalue > 1e-4


def test_other_drafts_are_rejected(folder, tmp_path):
    wide = folder_of(tmp_path, replace(SMALL, vocabulary=330))
    with pytest.raises(InvalidArgument, match="draft must be a model with the same vocabulary of 320 tokens"):
        Generator.load(folder, ADAPTER, draft=wide)
    with pytest.raises(InvalidArgument, match="draft must be 'ngram', a path or a Generator"):
        Generator.load(folder, ADAPTER, draft=3)
