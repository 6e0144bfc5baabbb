"""Random variates and their gradients, gamma functions and the CTC loss on the PyTorch device."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special

torch = pytest.importorskip("torch", reason="PyTorch, which the device is for, is not installed")
pytest.importorskip("dmlgpu.torch", reason="the installed PyTorch is older than 2.13")

from tests.unit.frontends.torch.torch_comparison import assert_close, check_on_device  # noqa: E402 - after the check

F = torch.nn.functional
distributions = torch.distributions

SHAPES = [0.05, 0.3, 0.9, 1.0, 2.5, 8.0, 20.0, 31.0, 33.0, 100.0, 5000.0]
"""Shapes of gamma variates, on both sides of the start of another expansion."""


def around(shapes: list[float]) -> tuple[Any, Any]:
    """Shapes and arguments up to five deviations around their means."""
    a = torch.tensor(shapes)[:, None].expand(-1, 21).contiguous()
    x = (a + torch.linspace(-5, 5, 21) * a.sqrt()).clamp(min=1e-3)
    return a, x


# ---- functions -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["igamma", "igammac"])
def test_incomplete_gamma_functions(name: str) -> None:
    a, x = around(SHAPES)
    function = getattr(torch, name)
    expected = function(a.double(), x.double()).float()
    torch.testing.assert_close(function(a.to("dml"), x.to("dml")).cpu(), expected, rtol=1e-4, atol=1e-6)
    limits = torch.tensor([0.0, 1.0, math.inf, -1.0, math.nan])
    first, second = torch.meshgrid(limits, limits, indexing="ij")
    actual = function(first.to("dml"), second.to("dml")).cpu()
    torch.testing.assert_close(actual, function(first, second), equal_nan=True)
    assert_close(function(a[:, 0].to("dml"), torch.tensor(2.0)), function(a[:, 0], torch.tensor(2.0)))


def test_slopes_of_gamma_variates() -> None:
    """Against differences of float64: PyTorch's own approximation is right to 1e-3."""
    a, x = (value.double() for value in around(SHAPES))
    step = 1e-5 * a
    below = (torch.igamma(a + step, x) - torch.igamma(a - step, x)) / (2 * step)
    above = (torch.igammac(a + step, x) - torch.igammac(a - step, x)) / (2 * step)
    density = torch.exp((a - 1) * x.log() - x - torch.lgamma(a))
    expected = torch.where(x < a, -below, above) / density
    actual = torch._standard_gamma_grad(a.float().to("dml"), x.float().to("dml"))
    torch.testing.assert_close(actual.cpu(), expected.float(), rtol=5e-4, atol=1e-5)


@pytest.mark.slow
def test_slopes_of_dirichlet_variates() -> None:
    """Against differences of float64: PyTorch's own approximation is right to 1e-2."""
    shapes = torch.tensor([0.1, 0.7, 1.0, 3.0, 12.0, 60.0]).double()
    grid = torch.meshgrid(shapes, shapes, torch.linspace(0.02, 0.98, 13).double(), indexing="ij")
    density = distributions.Beta(*grid[:2]).log_prob(grid[2])
    a, b, x = (part[density > -8] for part in grid)
    step = 1e-4 * a
    ends = [
        torch.from_numpy(scipy.special.betainc((a + side * step).numpy(), b.numpy(), x.numpy())) for side in (-1, 1)
    ]
    expected = (ends[0] - ends[1]) / (2 * step) / density[density > -8].exp() / (1 - x)
    actual = torch._dirichlet_grad(*[part.float().to("dml") for part in (x, a, a + b)])
    torch.testing.assert_close(actual.cpu(), expected.float(), rtol=5e-4, atol=1e-5)


# ---- variates --------------------------------------------------------------------------------------------------------

COUNT = 20_000


def check_frequencies(samples: Any, distribution: Any) -> None:
    """Compare how often counts occur with their probabilities, by the chi-squared statistic."""
    values, counts = np.unique(samples.cpu().double().numpy(), return_counts=True)
    expected = distribution.log_prob(torch.tensor(values)).exp().numpy() * COUNT
    is_common = expected > 5
    rest = max(COUNT - expected[is_common].sum(), 1e-3), counts[~is_common].sum()
    statistic = ((counts - expected) ** 2 / expected)[is_common].sum()
    statistic += (rest[1] - rest[0]) ** 2 / rest[0] if rest[0] > 5 else 0
    freedom = max(is_common.sum() - 1, 1)
    assert counts[~is_common].sum() < max(5 * rest[0], 20)
    assert statistic < freedom + 5 * math.sqrt(2 * freedom) + 5


@pytest.mark.parametrize("rate", [0.01, 0.7, 9.9, 10.0, 40.0, 1000.0])
def test_poisson(rate: float) -> None:
    torch.manual_seed(1)
    samples = torch.poisson(torch.full((COUNT,), rate, device="dml"))
    check_frequencies(samples, distributions.Poisson(torch.tensor(rate).double()))


@pytest.mark.parametrize(
    ("number", "probability"), [(1, 0.3), (10, 0.5), (100, 0.05), (100, 0.2), (40, 0.9), (21, 0.5), (1000, 0.5)]
)
def test_binomial(number: int, probability: float) -> None:
    torch.manual_seed(2)
    samples = torch.binomial(torch.full((COUNT,), float(number), device="dml"), torch.tensor([probability]).to("dml"))
    assert samples.min() >= 0 and samples.max() <= number
    check_frequencies(samples, distributions.Binomial(number, torch.tensor(probability).double()))


def check_uniform(probabilities: Any) -> None:
    """Compare the largest distance of a distribution function from that of uniform numbers (Kolmogorov, 1e-5)."""
    steps = torch.arange(1, COUNT + 1, dtype=torch.float64) / COUNT
    assert (probabilities.sort().values - steps).abs().max() < 2.5 / math.sqrt(COUNT)


@pytest.mark.parametrize("shape", [0.05, 0.5, 1.0, 1.5, 20.0, 1e4])
def test_gamma(shape: float) -> None:
    torch.manual_seed(3)
    samples = torch._standard_gamma(torch.full((COUNT,), shape, device="dml")).cpu().double()
    check_uniform(torch.igamma(torch.full_like(samples, shape), samples))


@pytest.mark.slow
def test_dirichlet() -> None:
    """The second of two parts with the shapes a and 1 has the distribution function 1 - (1 - x) ** a."""
    torch.manual_seed(4)
    samples = distributions.Dirichlet(torch.tensor([0.3, 1.0], device="dml")).sample((COUNT,)).cpu().double()
    torch.testing.assert_close(samples.sum(1), torch.ones(COUNT, dtype=torch.float64), rtol=0, atol=1e-6)
    check_uniform(1 - samples[:, 0].pow(0.3).neg().add(1))
    tiny = distributions.Dirichlet(torch.full((3,), 1e-4, device="dml")).sample((50,)).cpu()
    assert torch.isfinite(tiny).all() and (tiny.sum(1) - 1).abs().max() < 1e-5


@pytest.mark.slow
def test_limits_of_variates() -> None:
    zeros = torch.zeros(5, device="dml")
    assert torch.poisson(zeros).tolist() == [0] * 5
    assert torch.binomial(zeros + 7, zeros).tolist() == [0] * 5
    assert torch.binomial(zeros + 7, zeros + 1).tolist() == [7] * 5
    assert torch._standard_gamma(zeros).tolist() == [0] * 5
    assert torch.poisson(zeros[:0]).shape == (0,)
    generator = torch.Generator().manual_seed(5)
    draws = [torch.poisson(zeros + 3, generator=generator.manual_seed(5)).tolist() for _ in range(2)]
    assert draws[0] == draws[1] != torch.poisson(zeros + 3, generator=generator).tolist()
    with pytest.raises(NotImplementedError, match="poisson takes floats"):
        torch.poisson(torch.ones(2, dtype=torch.int64, device="dml"))


# ---- torch.distributions ---------------------------------------------------------------------------------------------


def positive(*sizes: int) -> Any:
    return (torch.rand(*sizes) + 0.5).requires_grad_()


DISTRIBUTIONS: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]] = {
    "Beta": (distributions.Beta, lambda: (positive(3), positive(3))),
    "Binomial": (lambda p: distributions.Binomial(10, p), lambda: (torch.rand(3).requires_grad_(),)),
    "Chi2": (distributions.Chi2, lambda: (positive(3),)),
    "Dirichlet": (distributions.Dirichlet, lambda: (positive(2, 3),)),
    "FisherSnedecor": (distributions.FisherSnedecor, lambda: (positive(3), positive(3))),
    "Gamma": (distributions.Gamma, lambda: (positive(3), positive(3))),
    "GeneralizedPareto": (distributions.GeneralizedPareto, lambda: (positive(3), positive(3), positive(3))),
    "InverseGamma": (distributions.InverseGamma, lambda: (positive(3), positive(3))),
    "LKJCholesky": (lambda c: distributions.LKJCholesky(3, c), lambda: (positive(2),)),
    "LowRankMultivariateNormal": (
        distributions.LowRankMultivariateNormal,
        lambda: (positive(3), positive(3, 2), positive(3)),
    ),
    "MultivariateNormal": (
        lambda mean, factor: distributions.MultivariateNormal(mean, factor @ factor.mT + torch.eye(3).to(factor)),
        lambda: (positive(2, 3), positive(3, 3)),
    ),
    "MultivariateNormal, precision": (
        lambda mean, factor: distributions.MultivariateNormal(
            mean, precision_matrix=factor @ factor.mT + torch.eye(3).to(factor)
        ),
        lambda: (positive(3), positive(3, 3)),
    ),
    "NegativeBinomial": (distributions.NegativeBinomial, lambda: (positive(3), torch.rand(3).requires_grad_())),
    "Poisson": (distributions.Poisson, lambda: (positive(3),)),
    "StudentT": (distributions.StudentT, lambda: (positive(3) * 3,)),
    "Wishart": (
        lambda freedom, factor: distributions.Wishart(freedom, factor @ factor.mT + torch.eye(3).to(factor)),
        lambda: (positive(1) + 4, positive(3, 3)),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_distributions(name: str) -> None:
    """Draws on the device have the log probabilities, with gradients, that the CPU computes for them."""
    make, parameters = DISTRIBUTIONS[name]
    torch.manual_seed(len(name))
    inputs = [x.detach().requires_grad_() for x in parameters()]
    on_device = make(*[x.detach().to("dml") for x in inputs])
    samples = on_device.sample((4,))
    assert samples.device.type == "dml" and samples.shape == make(*inputs).sample((4,)).shape
    check_on_device(lambda *values: make(*values).log_prob(samples.to(values[0].device)), inputs)
    if on_device.has_rsample and name != "Wishart":  # whose own masks PyTorch changes in place before the gradient
        moved = [x.detach().to("dml").requires_grad_() for x in inputs]
        make(*moved).rsample((4,)).sum().backward()
        assert all(torch.isfinite(x.grad.cpu()).all() for x in moved)


@pytest.mark.slow
def test_gradients_of_draws() -> None:
    """The mean of gamma variates grows with their shape as fast as the shape does."""
    torch.manual_seed(6)
    shape = torch.tensor([0.5, 2.0, 50.0]).to("dml").requires_grad_()
    distributions.Gamma(shape, torch.ones(3, device="dml")).rsample((COUNT,)).mean(0).sum().backward()
    assert_close(shape.grad, torch.ones(3), 0.06)
    a = torch.tensor(2.0).to("dml").requires_grad_()
    distributions.Beta(a, torch.tensor(3.0, device="dml")).rsample((COUNT,)).mean().backward()
    assert_close(a.grad, torch.tensor(3.0 / 25), 0.02)


# ---- CTC -------------------------------------------------------------------------------------------------------------

CTC: dict[str, tuple[tuple[int, int, int], Any, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "plain": ((10, 3, 5), (3, 4), (10, 8, 9), (4, 2, 3), {}),
    "joined, without labels": ((10, 3, 5), (5,), (10, 8, 9), (4, 0, 1), {"reduction": "none"}),
    "too short": ((10, 3, 5), (3, 4), (10, 2, 9), (4, 4, 1), {"reduction": "none"}),
    "too short, zero_infinity": ((10, 3, 5), (3, 4), (10, 2, 9), (4, 4, 1), {"zero_infinity": True}),
    "two classes, other blank": ((12, 2, 3), (2, 6), (12, 12), (6, 5), {"reduction": "sum", "blank": 2}),
    "one label": ((6, 2, 3), (2, 1), (6, 6), (1, 1), {}),
    "no labels": ((6, 2, 3), (2, 2), (6, 6), (0, 0), {"reduction": "sum"}),
    "one step": ((1, 2, 3), (2, 1), (1, 1), (1, 0), {"reduction": "sum"}),
    "no steps": ((6, 2, 3), (2, 1), (6, 0), (1, 0), {"reduction": "none"}),
}


@pytest.mark.parametrize("lengths", [torch.tensor, tuple])
@pytest.mark.parametrize("name", CTC)
def test_ctc_loss(name: str, lengths: Callable[..., Any]) -> None:
    sizes, target_sizes, steps, labels, options = CTC[name]
    torch.manual_seed(len(name))
    scores = torch.randn(sizes).log_softmax(2).requires_grad_()
    targets = torch.randint(1, sizes[2], target_sizes) - int("blank" in options)

    def loss(values: Any) -> Any:
        return F.ctc_loss(values, targets.to(values.device), lengths(steps), lengths(labels), **options)

    expected, moved = loss(scores), scores.detach().to("dml").requires_grad_()
    actual = loss(moved)
    assert_close(actual, expected)
    cotangent = torch.randn_like(expected)
    (reference,) = torch.autograd.grad(expected, scores, cotangent)
    (gradient,) = torch.autograd.grad(actual, moved, cotangent.to("dml"))
    torch.testing.assert_close(gradient.cpu(), reference, rtol=1e-3, atol=1e-5, equal_nan=True)
