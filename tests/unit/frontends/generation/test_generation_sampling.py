"""Sampling: tokens from logits, against NumPy and the random numbers of the same stream."""

import numpy as np
import pytest

from dmlgpu import random
from dmlgpu.frontends.generation.generator import Generator
from dmlgpu.frontends.generation.sampling import Sampler, SamplingOptions
from dmlgpu.runtime.device import Device
from dmlgpu.tensors.tensor import Tensor
from tests.language_models import ADAPTER, folder_of, prompt_of

ROWS, VOCABULARY, STEPS = 2, 50, 40


def candidates_of(logits, options):
    """Tokens by probability, and their probabilities, after transformers' logits warpers."""
    scores = logits.astype(np.float64) / options.temperature
    order = np.argsort(-scores, kind="stable")[: options.top_k or None]
    weights = np.exp(scores[order] - scores[order].max())
    weights /= weights.sum()
    remains = (np.cumsum(weights) - weights < options.top_p) & (weights >= options.min_p * weights.max())
    return order[remains], weights[remains]


def sampled(options, logits, prompts, device=None):
    """Tokens of some steps; the logits are the same in each."""
    device = device or Device(ADAPTER)
    sampler = Sampler(device, VOCABULARY)
    sampler.begin(options, prompts)
    scores = Tensor(logits, device=device)
    best = Tensor(logits.argmax(1).astype(np.int32)[:, None], device=device)
    return np.array([sampler.next(scores, best).numpy()[:, 0] for _ in range(STEPS)])


LOGITS = np.random.default_rng(0).normal(0, 2, (ROWS, VOCABULARY)).astype(np.float32)
PROMPTS = [[1, 2, 3], [4]]


@pytest.mark.parametrize(
    "options",
    [
        SamplingOptions(1.0, seed=1),
        SamplingOptions(0.7, top_k=5, seed=2),
        SamplingOptions(1.3, top_p=0.6, seed=3),
        SamplingOptions(1.0, top_k=20, top_p=0.9, seed=2**64 - 1),
        SamplingOptions(1.0, top_k=200, seed=4),
        SamplingOptions(1.0, top_p=1e-6, seed=5),
        SamplingOptions(1.5, min_p=0.1, seed=6),
        SamplingOptions(1.5, min_p=1.0, seed=7),
        SamplingOptions(2.0, top_k=30, top_p=0.95, min_p=0.05, seed=8),
    ],
)
def test_tokens_follow_the_random_numbers(options):
    tokens = sampled(options, LOGITS, PROMPTS)
    generator = random.default_rng(options.seed, device=ADAPTER)
    for step in tokens:
        numbers = generator.random((ROWS, 1)).numpy()[:, 0]
        for row, token, number in zip(LOGITS, step, numbers, strict=True):
            order, weights = candidates_of(row, options)
            if not options.top_k % VOCABULARY and options.top_p == 1:  # in the order of the vocabulary
                order, weights = np.sort(order), weights[np.argsort(order)]
            sums = np.cumsum(weights)
            threshold = number * sums[-1]
            if np.abs(sums - threshold).min() > 1e-5:  # not at the edge of rounding
                assert token == order[np.searchsorted(sums, threshold, side="right")]


def test_frequencies_are_the_probabilities():
    logits = np.repeat(np.log(np.array([[0.5, 0.3, 0.15, 0.05]], np.float32)), 500, 0)
    device = Device(ADAPTER)
    sampler = Sampler(device, 4)
    sampler.begin(SamplingOptions(1.0, seed=0), [[0]] * 500)
    scores = Tensor(logits, device=device)
    tokens = np.concatenate([sampler.next(scores, scores).numpy() for _ in range(8)])
    np.testing.assert_allclose(np.bincount(tokens[:, 0]) / len(tokens), [0.5, 0.3, 0.15, 0.05], atol=0.025)


def test_a_penalty_lowers_tokens_that_occurred():
    logits = np.array([[3.0, 2.9, 2.8, -1.0], [-1.0, -1.1, -1.2, -1.3]], np.float32)
    device = Device(ADAPTER)
    sampler = Sampler(device, 4)
    sampler.begin(SamplingOptions(repetition_penalty=1.2), [[3], [0]])
    scores = Tensor(logits, device=device)
    tokens = [sampler.next(scores, scores).numpy()[:, 0].tolist() for _ in range(4)]
    # Row 0: 3/1.2 = 2.5, 2.9/1.2 = 2.42. Row 1: token 0 is in the prompt, -1.2; then -1.1 * 1.2 = -1.32.
    assert tokens == [[0, 1], [1, 0], [2, 0], [0, 0]]


def greedy_after(options, logits, prompt, steps):
    """The most likely tokens after penalties and biases, in float64."""
    answer, occurred = [], set(prompt)
    for _ in range(steps):
        scores = logits.astype(np.float64)
        for token in occurred:
            factor = options.repetition_penalty
            scores[token] *= factor if scores[token] < 0 else 1 / factor
        for token in set(answer):
            scores[token] -= options.presence_penalty + options.frequency_penalty * answer.count(token)
        for token, bias in (options.logit_bias or {}).items():
            scores[token] += bias
        answer.append(int(scores.argmax()))
        occurred.add(answer[-1])
    return answer


@pytest.mark.parametrize(
    "options",
    [
        SamplingOptions(presence_penalty=0.8),
        SamplingOptions(frequency_penalty=0.3),
        SamplingOptions(presence_penalty=0.5, frequency_penalty=0.2, repetition_penalty=1.3),
        SamplingOptions(frequency_penalty=-0.5),
        SamplingOptions(logit_bias={7: 100.0}),
        SamplingOptions(logit_bias={int(LOGITS[0].argmax()): -1e30, 3: 0.25}, frequency_penalty=0.4),
    ],
)
def test_penalties_and_biases_change_logits(options):
    tokens = sampled(options, LOGITS, PROMPTS)
    expected = [greedy_after(options, row, prompt, STEPS) for row, prompt in zip(LOGITS, PROMPTS, strict=True)]
    assert tokens.T.tolist() == expected


def test_penalties_and_biases_come_before_temperature_and_min_p():
    """With every token but two forbidden, and one of these far below the other, one remains."""
    bias = {token: -1e30 for token in range(VOCABULARY) if token not in (5, 9)} | {5: 8.0 - LOGITS[0, 5] + LOGITS[0, 9]}
    options = SamplingOptions(2.0, min_p=0.03, logit_bias=bias, seed=1)
    assert set(sampled(options, LOGITS[:1], PROMPTS[:1])[:, 0].tolist()) == {5}
    both = sampled(SamplingOptions(2.0, min_p=0.01, logit_bias=bias, seed=1), LOGITS[:1], PROMPTS[:1])
    # exp(-8 / 2) is 0.018: of 40 tokens, none to four are 9; a penalty of 8 makes both equally likely.
    assert set(both[:, 0].tolist()) <= {5, 9}
    even = SamplingOptions(2.0, min_p=0.03, logit_bias=bias, presence_penalty=8.0, seed=1)
    assert set(sampled(even, LOGITS[:1], PROMPTS[:1])[:, 0].tolist()) == {5, 9}


@pytest.mark.parametrize("options", [SamplingOptions(), SamplingOptions(0.9, top_k=1), SamplingOptions(0.0, top_p=0.5)])
def test_certain_options_take_the_most_likely_token(options):
    assert (sampled(options, LOGITS, PROMPTS) == LOGITS.argmax(1)).all()


@pytest.mark.slow
def test_seeds_repeat_a_generation(tmp_path):
    generator = Generator.load(folder_of(tmp_path), ADAPTER)
    options = SamplingOptions(1.5, seed=7)
    first, second, other = (
        list(generator.generate_tokens(prompt_of(5), max_tokens=20, options=chosen))
        for chosen in (options, options, SamplingOptions(1.5, seed=8))
    )
    assert first == second != other
