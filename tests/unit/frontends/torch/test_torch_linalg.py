"""Factorizations, solutions, determinants and exponentials of matrices on the PyTorch device, against the CPU."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch, which the device is for, is not installed")
pytest.importorskip("dmlgpu.torch", reason="the installed PyTorch is older than 2.13")

from dmlgpu.frontends.torch import versions  # noqa: E402 - after the check
from tests.unit.frontends.torch.torch_comparison import check_on_device, leaf  # noqa: E402

linalg = torch.linalg


def positive(*sizes: int) -> Any:
    """Positive definite matrices."""
    factor = torch.randn(*sizes, sizes[-1])
    return (factor @ factor.mT / sizes[-1] + torch.eye(sizes[-1])).requires_grad_()


def regular(*sizes: int) -> Any:
    """Matrices far from singular ones, whose pivots are not on the diagonal."""
    rows = torch.randperm(sizes[-1])
    matrices = 3 * torch.eye(sizes[-1])[rows] + torch.randn(*sizes, sizes[-1]) / sizes[-1]
    return matrices.requires_grad_()


def symmetric(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of the symmetric part, whose gradient does not depend on the triangle that is read."""
    return lambda a, *rest: function((a + a.mT) / 2, *rest)


CASES: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]] = {
    "cholesky": (symmetric(linalg.cholesky), lambda: (positive(2, 5),)),
    "cholesky, upper": (symmetric(lambda a: linalg.cholesky(a, upper=True)), lambda: (positive(4),)),
    "cholesky in blocks": (symmetric(linalg.cholesky), lambda: (positive(70),)),
    "cholesky of the lower triangle": (linalg.cholesky, lambda: (positive(4).detach().tril(),)),
    "cholesky of a NaN": (
        lambda a: linalg.cholesky_ex(a)[1],
        lambda: (torch.tensor([[[1.0, 0], [0, float("nan")]], [[1, 2], [2, 1]], [[1, 0], [0, 1]]]),),
    ),
    "cholesky_solve": (
        lambda b, a: torch.cholesky_solve(b, linalg.cholesky((a + a.mT) / 2)),
        lambda: (leaf(4, 2), positive(4)),
    ),
    "cholesky_inverse": (
        symmetric(lambda a: torch.cholesky_inverse(linalg.cholesky(a, upper=True), upper=True)),
        lambda: (positive(4),),
    ),
    "lu": (linalg.lu, lambda: (leaf(2, 4, 3),)),
    "lu of wide matrices": (linalg.lu, lambda: (leaf(2, 3, 5),)),
    "pivots": (lambda a: linalg.lu_factor_ex(a)[1:], lambda: (torch.randn(7, 4),)),
    "equal pivots": (lambda a: linalg.lu_factor_ex(a)[1], lambda: (torch.ones(4, 4) - 2 * torch.eye(4),)),
    "lu_solve": (lambda a, b: linalg.lu_solve(*linalg.lu_factor(a), b), lambda: (regular(4), leaf(4, 2))),
    "lu_solve, adjoint, right": (
        lambda a, b: linalg.lu_solve(*linalg.lu_factor(a), b, left=False, adjoint=True),
        lambda: (regular(4), leaf(2, 4)),
    ),
    "solve": (linalg.solve, lambda: (regular(3, 5), leaf(3, 5, 2))),
    "solve, vectors": (linalg.solve, lambda: (regular(3, 5), leaf(3, 5))),
    "solve, broadcast": (linalg.solve, lambda: (regular(3, 5), leaf(5, 2))),
    "solve, right": (lambda a, b: linalg.solve(a, b, left=False), lambda: (regular(4), leaf(2, 4))),
    "solve, transposed": (lambda a, b: linalg.solve(a.mT, b), lambda: (regular(4), leaf(4))),
    "inv": (linalg.inv, lambda: (regular(2, 5),)),
    "inv, no matrices": (linalg.inv, lambda: (torch.randn(0, 3, 3),)),
    "inv_ex of singular ones": (lambda a: linalg.inv_ex(a)[1], lambda: (torch.tensor([[1.0, 2], [2, 4]]),)),
    "matrix_power": (lambda a: linalg.matrix_power(a, -2), lambda: (regular(3),)),
    "det": (linalg.det, lambda: (leaf(3, 4, 4),)),
    "det, transposed": (lambda a: linalg.det(a.mT), lambda: (leaf(4, 4),)),
    "det, singular": (linalg.det, lambda: (torch.tensor([[1.0, 2], [2, 4]]),)),
    "slogdet": (linalg.slogdet, lambda: (regular(3, 4),)),
    "logdet": (torch.logdet, lambda: (positive(4),)),
    "qr": (linalg.qr, lambda: (leaf(2, 5, 3),)),
    "qr of wide matrices": (linalg.qr, lambda: (leaf(3, 5),)),
    "qr, complete": (lambda a: linalg.qr(a, mode="complete"), lambda: (torch.randn(5, 3),)),
    "qr, without Q": (lambda a: linalg.qr(a, mode="r")[1], lambda: (torch.randn(5, 3),)),
    "qr of triangular matrices": (linalg.qr, lambda: (torch.randn(4, 4).triu(),)),
    "lstsq": (lambda a, b: tuple(linalg.lstsq(a, b, driver="gels")), lambda: (leaf(2, 6, 3), leaf(2, 6, 2))),
    "lstsq, underdetermined": (lambda a, b: linalg.lstsq(a, b, driver="gels")[0], lambda: (leaf(3, 6), leaf(3, 1))),
    "triangular_solve": (
        lambda b, a: torch.triangular_solve(b, a, transpose=True)[0],
        lambda: (leaf(4, 2), (torch.randn(4, 4).triu() / 4 + torch.eye(4)).requires_grad_()),
    ),
    "svd": (lambda a: [x**2 for x in linalg.svd(a, full_matrices=False)], lambda: (leaf(2, 5, 3),)),
    "svd of wide matrices": (lambda a: [x.abs() for x in linalg.svd(a, full_matrices=False)], lambda: (leaf(2, 4),)),
    "svd, complete": (lambda a: [x.abs() for x in linalg.svd(a)[1:]], lambda: (torch.randn(5, 3),)),
    "svdvals": (linalg.svdvals, lambda: (leaf(2, 3, 4),)),
    "eigh": (symmetric(lambda a: [x**2 for x in linalg.eigh(a)]), lambda: (leaf(2, 4, 4),)),
    "eigvalsh, upper": (lambda a: linalg.eigvalsh(a, UPLO="U"), lambda: (torch.randn(4, 4),)),
    "norms of matrices": (
        lambda a: [linalg.matrix_norm(a, order) for order in ("nuc", 2, -2, 1, "fro")],
        lambda: (leaf(2, 4, 3),),
    ),
    "cond": (linalg.cond, lambda: (leaf(2, 3, 3),)),
    "matrix_exp": (torch.matrix_exp, lambda: (leaf(2, 5, 5),)),
    "matrix_exp of large norms": (torch.matrix_exp, lambda: (torch.tensor([[0.0, 50.0], [-50.0, 0.0]]),)),
}


@pytest.mark.filterwarnings("ignore:torch.triangular_solve is deprecated")
@pytest.mark.parametrize("name", CASES)
def test_matrices(name: str) -> None:
    function, make = CASES[name]
    torch.manual_seed(len(name))
    check_on_device(function, make())


@pytest.mark.slow
def test_compiled() -> None:
    torch.manual_seed(0)

    def function(a: Any, b: Any) -> Any:
        return linalg.solve(a, b), linalg.slogdet(a)[1], linalg.cholesky_ex(a @ a.mT)[0]

    check_on_device(torch.compile(function, backend="dmlgpu", dynamic=False), (regular(3), leaf(3, 2)))


@pytest.mark.parametrize("device", ["cpu", "dml"])
def test_errors(device: str) -> None:
    zeros = torch.zeros(2, 2, device=device)
    for function in (linalg.inv, linalg.cholesky, torch.cholesky_inverse, lambda a: linalg.solve(a, a)):
        with pytest.raises(linalg.LinAlgError, match=r"singular|not positive-definite"):
            function(zeros)
    for function in (linalg.cholesky_ex, linalg.inv_ex):
        for _ in range(2):  # a call that is repeated checks as well
            with pytest.raises(linalg.LinAlgError, match=r"singular|not positive-definite"):
                function(zeros, check_errors=True)
    with pytest.raises(RuntimeError, match="must be batches of square matrices"):
        linalg.inv(torch.zeros(2, 3, device=device))


SINGULAR: dict[str, Callable[[Any], Any]] = {
    "solve_triangular": lambda a: linalg.solve_triangular(a.tril(), a, upper=False),
    "solve_triangular from the right": lambda a: linalg.solve_triangular(a.triu(), a, upper=True, left=False),
    "inv_ex": lambda a: linalg.inv_ex(a)[0],
    "solve_ex": lambda a: linalg.solve_ex(a, a.mT)[0],
    "cholesky_ex": lambda a: linalg.cholesky_ex(a @ a.mT)[0],
    "lu_factor_ex": lambda a: linalg.lu_factor_ex(a)[0],
}


@pytest.mark.parametrize("value", [0.0, math.nan])
@pytest.mark.parametrize("name", SINGULAR)
def test_singular_matrices_of_a_batch(name: str, value: float) -> None:
    """They do not change the results of the others; what fails on the CPU has no finite result here."""
    torch.manual_seed(1)
    batch = positive(4, 5).detach()
    batch[1], batch[3, 0] = value, value
    expected, actual = SINGULAR[name](batch), SINGULAR[name](batch.to("dml")).cpu()
    torch.testing.assert_close(actual[::2], expected[::2], rtol=1e-4, atol=1e-4)
    for index in (1, 3):
        assert expected[index].isfinite().all() or not actual[index].isfinite().all()


def test_rejections() -> None:
    a = torch.eye(3, device="dml")
    with pytest.raises(RuntimeError, match="parameter `driver` should be one of"):
        linalg.lstsq(a, a, driver="gelsd")
    with pytest.raises(NotImplementedError, match=r"aten::linalg_eig is not implemented for the dml device"):
        linalg.eig(a)


def test_check_of_traces() -> None:
    """`torch.jit.trace` compares results in float64."""
    module = torch.nn.Linear(3, 2).to("dml")
    x = torch.rand(4, 3, device="dml")
    assert torch.equal(torch.jit.trace(module, x)(x), module(x))
    noise = torch.nn.Dropout(0.5)
    with pytest.warns(torch.jit.TracerWarning, match="Output nr 1. of the traced function does not match"):
        torch.jit.trace(noise, torch.ones(4, 300, device="dml"))
    with pytest.raises(AssertionError, match="Mismatched elements: 1 / 2"):
        torch.testing.assert_close(torch.ones(2, device="dml"), torch.tensor([1.0, 2.0], device="dml"))


@pytest.mark.skipif(versions.INSTALLED < (2, 14), reason="PyTorch 2.14 added them")
def test_square_roots_and_polar_decompositions() -> None:
    check_on_device(symmetric(linalg.matrix_sqrth), [positive(2, 4)])
    check_on_device(linalg.polar, [leaf(2, 4, 3)])
    with pytest.raises(RuntimeError, match=r"linalg\.polar"):
        linalg.polar(leaf(2, 3).to("dml"))
