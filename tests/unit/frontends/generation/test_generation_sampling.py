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
    before = np.cumsum(weights) - weights
    return order[before < options.top_p], weights[before < options.top_p]


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
                order, weights = np.arange(VOCABULARY), weights[np.argsort(order)]
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
