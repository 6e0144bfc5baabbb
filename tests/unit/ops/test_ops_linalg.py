"""``ops.linalg`` against NumPy in float64: shapes, batches, dtypes, strides, empty and singular matrices, gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import scipy.linalg

import dmlgpu
from dmlgpu import InvalidArgument, Tensor, ops
from tests.unit.tensors.gradients.gradient_checks import check, draw

linalg = ops.linalg
RNG = np.random.default_rng(49)

SHAPES = [(3, 3), (2, 1, 4, 4), (2, 2), (1, 1), (4, 3), (2, 2, 5), (1, 3), (5, 1)]
"""Square ones and others; each is of the next kind of operand: float32, strided, sliced, float16."""
EMPTY = [(0, 0), (0, 3, 3), (2, 0, 0), (3, 0), (0, 3), (2, 0, 3), (0, 2, 3)]


@pytest.fixture(autouse=True)
def on_numpy() -> Iterator[None]:
    """Arrays are computed on the adapter ``numpy``."""
    with dmlgpu.device("numpy"):
        yield


def variants(array: Any) -> Iterator[tuple[str, Any, float]]:
    """Yield a matrix as each kind of operand, and the tolerance of results."""
    yield "float32", Tensor(array.astype(np.float32)), 2e-5
    transposed = Tensor(np.ascontiguousarray(array.swapaxes(-1, -2)).astype(np.float32)).mT
    yield "strided", transposed, 2e-5
    padded = Tensor(np.pad(array, [(0, 0)] * (array.ndim - 1) + [(1, 2)]).astype(np.float32))
    yield "sliced", padded[..., 1:-2], 2e-5
    yield "float16", Tensor(array.astype(np.float16)), 4e-3


def assert_close(actual: Any, expected: Any, tolerance: float, what: str) -> None:
    assert actual.shape == expected.shape, what
    scale = max(1.0, np.abs(expected).max(initial=0))
    np.testing.assert_allclose(
        np.asarray(actual, np.float64), expected, rtol=tolerance, atol=tolerance * scale, err_msg=what
    )


def regular(shape: tuple[int, ...]) -> Any:
    """Well-conditioned matrices of few bits, whose pivots are not on the diagonal; float16 holds them."""
    array = np.round(RNG.standard_normal(shape) * 8) / 16
    if shape[-1] == shape[-2]:
        array += 3 * np.eye(shape[-1])[RNG.permutation(shape[-1])]
    return array


SQUARE: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "inv": (linalg.inv, np.linalg.inv),
    "det": (linalg.det, np.linalg.det),
    "slogdet": (linalg.slogdet, np.linalg.slogdet),
    "matrix_power 3": (lambda x: linalg.matrix_power(x, 3), lambda x: np.linalg.matrix_power(x, 3)),
    "matrix_power -2": (lambda x: linalg.matrix_power(x, -2), lambda x: np.linalg.matrix_power(x, -2)),
    "matrix_power 0": (lambda x: linalg.matrix_power(x, 0), lambda x: np.linalg.matrix_power(x, 0)),
    "matrix_exp": (linalg.matrix_exp, scipy.linalg.expm),
    "eigvalsh": (linalg.eigvalsh, np.linalg.eigvalsh),
    "eigvalsh, upper": (lambda x: linalg.eigvalsh(x, "U"), lambda x: np.linalg.eigvalsh(x, "U")),
    "cond 1": (lambda x: linalg.cond(x, 1), lambda x: np.linalg.cond(x, 1)),
}

ANY: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "lu": (linalg.lu, scipy.linalg.lu),
    "svdvals": (linalg.svdvals, lambda x: np.linalg.svd(x, compute_uv=False)),
    "pinv": (linalg.pinv, np.linalg.pinv),
    "matrix_rank": (linalg.matrix_rank, np.linalg.matrix_rank),
    "diagonal": (lambda x: linalg.diagonal(x, offset=-1), lambda x: np.diagonal(x, -1, -2, -1)),
    "trace": (lambda x: linalg.trace(x, offset=1), lambda x: np.trace(x, 1, -2, -1)),
    "norm": (lambda x: linalg.norm(x, axis=(-1, -2), keepdims=True), lambda x: np.linalg.norm(x, None, (-1, -2), True)),
    **{
        f"matrix_norm {order}": (
            lambda x, order=order: linalg.matrix_norm(x, ord=order),
            lambda x, order=order: np.linalg.norm(x, order, axis=(-2, -1)),
        )
        for order in ("fro", "nuc", 2, -2, 1, -1, np.inf, -np.inf)
    },
    **{
        f"vector_norm {order}": (
            lambda x, order=order: linalg.vector_norm(x, ord=order, axis=-1),
            lambda x, order=order: np.linalg.norm(x, order, axis=-1),
        )
        for order in (0, 1, 2, 3, -1, 0.5, np.inf, -np.inf)
    },
}


def compare(name: str, function: Callable[..., Any], oracle: Callable[..., Any], array: Any, number: int = 0) -> None:
    expected = oracle(array)
    kind, operand, tolerance = list(variants(array))[number % 4]
    actual = function(operand)
    pairs = zip(actual, expected, strict=True) if isinstance(actual, tuple) else [(actual, expected)]
    for mine, theirs in pairs:
        assert_close(mine.numpy(), np.asarray(theirs), tolerance * 10, f"{name} of {array.shape} {kind}")
        assert mine.dtype in (np.int64, np.float16 if kind == "float16" else np.float32), name


@pytest.mark.parametrize("name", [*SQUARE, *ANY])
def test_against_numpy(name: str) -> None:
    function, oracle = SQUARE.get(name) or ANY[name]
    for index, shape in enumerate(SHAPES):
        if name not in SQUARE or shape[-1] == shape[-2]:
            compare(name, function, oracle, regular(shape), index)


@pytest.mark.parametrize("mode", ["reduced", "complete"])
def test_qr(mode: str) -> None:
    """Columns of Q are unique up to their signs, and not at all for columns of zeros: LAPACK's builds differ there."""
    for index, shape in enumerate(SHAPES):
        array = regular(shape)
        kind, operand, tolerance = list(variants(array))[index % 4]
        q, r = linalg.qr(operand, mode)
        expected = np.linalg.qr(array, mode)
        assert (q.shape, r.shape) == (expected[0].shape, expected[1].shape)
        assert q.dtype == r.dtype == (np.float16 if kind == "float16" else np.float32)
        q, r = np.asarray(q, np.float64), np.asarray(r, np.float64)
        assert_close(q @ r, array, tolerance * 10, f"Q R of {shape} {kind}")
        gram = q.swapaxes(-1, -2) @ q
        assert_close(gram, np.broadcast_to(np.eye(q.shape[-1]), gram.shape), tolerance * 10, f"Q of {shape} {kind}")
        assert_close(np.tril(r, -1), np.zeros_like(r), 1e-30, f"R of {shape} {kind}")
        assert_close(abs(r[..., 0, :]), abs(expected[1][..., 0, :]), tolerance * 10, f"R of {shape} {kind}")


def test_cholesky() -> None:
    for shape in [(1, 1), (3, 3), (2, 4, 4), (2, 35, 35)]:
        factor = regular(shape) / 2
        array = factor @ factor.swapaxes(-1, -2) + np.eye(shape[-1])
        compare("cholesky", linalg.cholesky, np.linalg.cholesky, array)
        lower = np.tril(array).astype(np.float32)
        assert_close(linalg.cholesky(lower), np.linalg.cholesky(array), 1e-4, "the lower triangle alone")
        upper = linalg.cholesky(lower.swapaxes(-1, -2), upper=True)
        assert_close(upper, np.linalg.cholesky(array).swapaxes(-1, -2), 1e-4, "the upper triangle alone")


@pytest.mark.slow
def test_vectors_of_decompositions() -> None:
    for sizes in [(1, 1), (4, 3), (3, 3), (3, 5)]:
        shape = (3, *sizes)
        array = np.stack([regular(sizes), np.ones(sizes), np.zeros(sizes)])
        x = array.astype(np.float32)
        for full in (True, False):
            u, s, vh = linalg.svd(x, full_matrices=full)
            assert (u.shape, s.shape, vh.shape) == tuple(part.shape for part in np.linalg.svd(x, full)), shape
            count = s.shape[-1]
            assert_close(u[..., :count] * s[..., None, :] @ vh[..., :count, :], array, 1e-5, f"svd {shape}")
            for basis in (u, vh.swapaxes(-1, -2)):
                products = basis.swapaxes(-1, -2) @ basis
                assert_close(products, np.eye(basis.shape[-1]) + 0 * products, 1e-5, f"svd {shape}")
            assert_close(s, np.linalg.svd(array, compute_uv=False), 1e-5, f"svd {shape}")
        if shape[-1] == shape[-2]:
            values, vectors = linalg.eigh(x)
            whole = np.tril(array) + np.tril(array, -1).swapaxes(-1, -2)
            assert_close(whole @ vectors, vectors * values[..., None, :], 1e-5, f"eigh {shape}")
            assert_close(vectors.swapaxes(-1, -2) @ vectors, np.eye(shape[-1]) + 0 * array, 1e-5, f"eigh {shape}")


@pytest.mark.slow
def test_spectra_that_are_hard() -> None:
    """Equal, graded and tiny singular values: errors stay below those of float32 for the largest."""
    order = 12
    q = np.linalg.qr(RNG.standard_normal((order, order)))[0]
    spectra = {
        "graded": 10.0 ** -np.linspace(0, 12, order),
        "two clusters": np.repeat([1.0, 1e-3], order // 2),
        "one": np.eye(1, order)[0],
        "large": np.linspace(1, 2, order) * 1e20,
        "small": np.linspace(1, 2, order) * 1e-20,
    }
    stacked = np.stack([(q * values) @ q.T for values in spectra.values()]).astype(np.float32)
    for (name, values), actual in zip(spectra.items(), linalg.svdvals(stacked), strict=True):
        np.testing.assert_allclose(actual / values.max(), np.sort(values)[::-1] / values.max(), atol=2e-6, err_msg=name)


@pytest.mark.slow
def test_solutions() -> None:
    cases = [((3, 3), (3,)), ((3, 3), (3, 2)), ((2, 3, 3), (3,)), ((2, 3, 3), (3, 2)), ((3, 3), (2, 3, 1)),
             ((2, 1, 3, 3), (4, 3, 2)), ((3, 3), (3, 0)), ((2, 3, 3), (2, 3, 3))]  # fmt: skip
    for left, right in cases:
        a, b = regular(left), RNG.standard_normal(right)
        expected = np.linalg.solve(a, b) if b.ndim > 1 else np.linalg.inv(a) @ b
        what = f"{left}, {right}"
        assert_close(linalg.solve(a, b), expected, 1e-4, what)
        for upper in (True, False):
            matrix = np.triu(a) + 4 * np.eye(3) if upper else np.tril(a) + 4 * np.eye(3)
            beside = np.full((3, 3), np.nan)
            read = matrix + (np.tril(beside, -1) if upper else np.triu(beside, 1))
            expected = np.linalg.inv(matrix) @ b
            read = np.where(np.isnan(read), np.nan, matrix)
            assert_close(linalg.solve_triangular(read, b, upper=upper), expected, 1e-4, what)
    unit = linalg.solve_triangular([[9.0, 0.0], [2.0, 9.0]], [1.0, 3.0], upper=False, unitriangular=True)
    assert unit.tolist() == [1.0, 1.0]


@pytest.mark.slow
def test_least_squares() -> None:
    for left, right in [((5, 3), (5,)), ((5, 3), (5, 2)), ((3, 5), (3, 2)), ((3, 3), (3,))]:
        for deficient in (False, True):
            a, b = regular(left), RNG.standard_normal(right)
            if deficient:
                a[:, 1] = a[:, 0]
            x, residuals, rank, values = linalg.lstsq(a.astype(np.float32), b.astype(np.float32))
            expected = np.linalg.lstsq(a, b, rcond=1e-6)
            assert_close(x, expected[0], 1e-4, f"{left}")
            assert_close(residuals, ((a @ expected[0] - b) ** 2).sum(0), 1e-4, f"{left}")
            assert int(rank) == expected[2]
            assert_close(values, expected[3], 1e-5, f"{left}")
    stacked = linalg.lstsq(regular((2, 1, 5, 3)), RNG.standard_normal((4, 5, 2)))
    assert [part.shape for part in stacked] == [(2, 4, 3, 2), (2, 4, 2), (2, 1), (2, 1, 3)]


@pytest.mark.slow
def test_singular_matrices_raise_nothing() -> None:
    singular = np.array([[1, 2], [2, 4]], np.float32)
    zeros = np.zeros((3, 3), np.float32)
    for x in (singular, zeros):
        assert not np.isfinite(linalg.inv(x)).all() and not np.isfinite(linalg.solve(x, x[0])).all()
        assert linalg.det(x) == 0
        assert tuple(map(float, linalg.slogdet(x))) == (0.0, -np.inf)
    for x in (zeros, -np.eye(2), np.ones((2, 2)), np.array([[1.0, 2.0], [2.0, 1.0]])):
        assert np.isnan(linalg.cholesky(x)).any()
    assert_close(linalg.pinv(singular), np.linalg.pinv(singular), 1e-5, "pinv")
    assert linalg.pinv(zeros).tolist() == zeros.tolist() and int(linalg.matrix_rank(zeros)) == 0
    mixed = linalg.inv(np.stack([singular, np.eye(2, dtype=np.float32)]))
    assert mixed[1].tolist() == [[1, 0], [0, 1]]


def test_matrices_without_elements() -> None:
    numpy_rejects = ("lu", "cond", "matrix_norm -2", "matrix_norm -1", "matrix_norm -inf")
    for name, (function, oracle) in {**SQUARE, **ANY}.items():
        for shape in EMPTY:
            if (name in SQUARE and shape[-1] != shape[-2]) or name.startswith((*numpy_rejects, "matrix_exp", "vector")):
                continue
            x = np.zeros(shape, np.float32)
            try:
                expected = oracle(x)
            except ValueError:  # NumPy has no largest element of nothing
                continue
            actual = function(x)
            pairs = zip(actual, expected, strict=True) if isinstance(expected, tuple) else [(actual, expected)]
            for mine, theirs in pairs:
                assert np.array_equal(mine, theirs), f"{name} {shape}: {mine} {theirs}"
    for shape in EMPTY:
        x = np.zeros(shape, np.float32)
        assert [part.shape for part in linalg.lu(x)] == [
            (*shape[:-1], shape[-2]), (*shape[:-1], min(shape[-2:])), (*shape[:-2], min(shape[-2:]), shape[-1])
        ]  # fmt: skip
    assert linalg.solve(np.zeros((0, 0)), np.zeros((0, 2))).shape == (0, 2)
    assert linalg.cholesky(np.zeros((2, 0, 0))).shape == linalg.matrix_exp(np.zeros((2, 0, 0))).shape == (2, 0, 0)
    assert [part.shape for part in linalg.lstsq(np.zeros((3, 0)), np.zeros((3, 2)))] == [(0, 2), (2,), (), (0,)]


def test_integers_and_products() -> None:
    whole = np.array([[2, 1], [5, 3]])
    assert linalg.inv(whole).dtype == np.float32 and np.allclose(linalg.inv(whole), [[3, -1], [-5, 2]], atol=1e-5)
    power = linalg.matrix_power(Tensor(whole), 40 % 7)
    assert power.dtype == np.int64 and power.tolist() == np.linalg.matrix_power(whole, 5).tolist()
    assert linalg.trace(whole > 1).dtype == np.int64
    for left, right, axis in [((3,), (3,), -1), ((2, 3), (3,), -1), ((3, 4), (3, 4), 0), ((2, 1, 3), (4, 3), -1)]:
        a, b = RNG.integers(-9, 9, left), RNG.integers(-9, 9, right)
        assert linalg.cross(a, b, axis=axis).tolist() == np.cross(a, b, axis=axis).tolist()
    assert linalg.outer([1, 2], [3, 4, 5]).tolist() == [[3, 4, 5], [6, 8, 10]]


@pytest.mark.slow
def test_norms_as_numpy_reads_the_axes() -> None:
    x = RNG.standard_normal((2, 3, 4))
    for order, axis in [(None, None), (None, 1), (3, 1), (1, (0, 2)), ("fro", (2, 0)), (np.inf, (1, 0)), (2, (0, 1))]:
        for keepdims in (False, True):
            expected = np.linalg.norm(x, order, axis, keepdims)
            assert_close(linalg.norm(x, order, axis, keepdims), expected, 1e-5, f"{order}, {axis}")
            assert_close(ops.norm(x, axis, keepdims, ord=order), expected, 1e-5, f"ops.norm {order}, {axis}")
    for vector in (x[0, 0], x[0]):
        assert_close(linalg.norm(vector, 1), np.linalg.norm(vector, 1), 1e-5, "all axes")
    for values in ([3, 4], np.array([3, 4], np.uint8), np.array([True, False, True])):
        for order in (None, 1, 3):
            assert_close(ops.norm(values, ord=order), np.linalg.norm(values, order), 1e-5, f"{values}, {order}")


def test_errors() -> None:
    square, tall, vector = np.eye(3), np.ones((3, 2)), np.ones(3)
    for call, message in {
        lambda: linalg.inv(tall): "inv: x must be square matrices, got sizes [3, 2]",
        lambda: linalg.det(vector): "det: x must have at least 2 dimensions, got sizes [3]",
        lambda: linalg.svd(vector): "svd: x must have at least 2 dimensions",
        lambda: linalg.solve(square, tall.T): "solve: b must be a vector of 3 elements or matrices of 3 rows",
        lambda: linalg.solve(square, 1.0): "solve: b must be a Tensor or an array, got float",
        lambda: linalg.solve(np.ones((2, 3, 3)), np.ones((4, 3, 1))): "solve: sizes must be equal or 1 to broadcast",
        lambda: linalg.qr(tall, mode="full"): "qr: mode must be 'reduced' or 'complete', got 'full'",
        lambda: linalg.eigh(square, "X"): "eigh: UPLO must be 'L' or 'U', got 'X'",
        lambda: linalg.matrix_power(square, 1.5): "matrix_power: n must be an integer, got 1.5",
        lambda: linalg.cross(vector, np.ones(2)): "cross: b must have size 3 along axis, got sizes [2]",
        lambda: linalg.outer(square, vector): "outer: a must be a vector",
        lambda: linalg.matrix_norm(square, ord=3): "matrix_norm: ord must be 'fro', 'nuc', 1, -1, 2, -2, inf or -inf",
        lambda: linalg.vector_norm(vector, ord="fro"): "vector_norm: ord must be a number",
        lambda: linalg.norm(np.ones((2, 2, 2)), 1): "norm: x must have 1 or 2 dimensions if there is an ord",
        lambda: linalg.norm(square, axis=2): "norm: axis must be an integer between -2 and 1",
        lambda: linalg.cond(tall, 1): "cond: x must be square matrices",
        lambda: linalg.pinv(tall, rtol="x"): "pinv: rtol must be a number, got 'x'",
        lambda: linalg.trace(vector): "trace: x must have at least 2 dimensions",
        lambda: linalg.inv(square * 1j): "inv: x must be an array of real numbers, got NumPy type complex128",
        lambda: linalg.inv(object()): "inv: x must be",
        lambda: linalg.svd(square, full_matrices=1): "svd: full_matrices must be a bool, got 1",
        lambda: linalg.solve_triangular(square, vector, upper="x"): "solve_triangular: upper must be a bool",
    }.items():  # fmt: skip
        with pytest.raises(InvalidArgument) as caught:
            call()
        assert str(caught.value).startswith(message)


def lower_symmetric(a: Any) -> Any:
    return np.tril(a) + np.tril(a, -1).swapaxes(-1, -2)


REGULAR = draw(2, 3, 3, seed=1) + 4 * np.eye(3)[[1, 0, 2]]
TALL = draw(4, 3, seed=4)
GRADIENTS: dict[str, tuple[Any, ...]] = {
    "inv": (linalg.inv, np.linalg.inv, REGULAR),
    "det": (linalg.det, np.linalg.det, REGULAR),
    "slogdet": (lambda a: linalg.slogdet(a)[1], lambda a: np.linalg.slogdet(a)[1], REGULAR),
    "solve": (linalg.solve, np.linalg.solve, REGULAR, draw(2, 3, 2)),
    "cholesky": (linalg.cholesky, lambda a: np.linalg.cholesky(lower_symmetric(a)), TALL.T @ TALL + np.eye(3)),
    "q": (lambda a: linalg.qr(a)[0], lambda a: np.linalg.qr(a)[0], TALL),
    "r": (lambda a: linalg.qr(a)[1], lambda a: np.linalg.qr(a)[1], TALL),
    "svdvals": (linalg.svdvals, lambda a: np.linalg.svd(a, compute_uv=False), TALL),
    "u": (lambda a: linalg.svd(a, False)[0] ** 2, lambda a: np.linalg.svd(a, False)[0] ** 2, TALL),
    "vh": (lambda a: linalg.svd(a, False)[2] ** 2, lambda a: np.linalg.svd(a, False)[2] ** 2, TALL.T.copy()),
    "eigvalsh": (linalg.eigvalsh, lambda a: np.linalg.eigvalsh(lower_symmetric(a)), REGULAR),
    "eigenvectors": (lambda a: linalg.eigh(a)[1] ** 2, lambda a: np.linalg.eigh(lower_symmetric(a))[1] ** 2, REGULAR),
    "pinv": (linalg.pinv, np.linalg.pinv, TALL),
    "pinv of equal singular values": (linalg.pinv, np.linalg.pinv, np.eye(4)[:, :3]),
    "lstsq": (lambda a, b: linalg.lstsq(a, b)[0], lambda a, b: np.linalg.pinv(a) @ b, TALL, draw(4, 2)),
    "nuclear norm": (lambda a: linalg.matrix_norm(a, ord="nuc"), lambda a: np.linalg.norm(a, "nuc"), TALL),
    "matrix_exp": (linalg.matrix_exp, scipy.linalg.expm, draw(3, 3) / 2),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name: str) -> None:
    check(*GRADIENTS[name], tolerance=3e-3)


def test_second_derivatives() -> None:
    """Of the nuclear norm along a direction, which follows only if singular vectors depend on the outer variable."""
    direction = RNG.standard_normal((3, 2)).astype(np.float32)
    base = RNG.standard_normal((3, 2)).astype(np.float32)

    def along(t: Any) -> Any:
        return linalg.matrix_norm(Tensor(base) + t * Tensor(direction), ord="nuc")

    second = float(dmlgpu.grad(dmlgpu.grad(along))(Tensor(np.float32(0.0))))
    step = 1e-3
    values = [np.linalg.norm(base.astype(float) + t * direction.astype(float), "nuc") for t in (-step, 0, step)]
    np.testing.assert_allclose(second, (values[0] - 2 * values[1] + values[2]) / step**2, rtol=1e-3)


def test_compiled() -> None:
    a = REGULAR.astype(np.float32)
    traced = dmlgpu.compile(lambda x: (linalg.solve(x, x[0]), linalg.svdvals(x), linalg.qr(x)[1]))
    for result, expected in zip(traced(a), (np.linalg.solve(a, a[0]), np.linalg.svd(a, compute_uv=False),
                                            np.linalg.qr(a)[1]), strict=True):  # fmt: skip
        assert_close(result, expected, 1e-4, "compiled")
