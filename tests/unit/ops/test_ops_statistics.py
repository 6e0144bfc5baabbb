"""Order statistics, histograms, functions without NaN, rounding and closeness, against NumPy on many operands."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import dmlgpu
from dmlgpu import DmlError, InvalidArgument, InvalidState, Tensor, ops

DTYPES = ("float32", "float16", "int8", "uint32", "int64", "bool")
SHAPES = ((7,), (3, 4), (2, 3, 1, 2), ())
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0, -0.0, 1, 3, 3, -7, 65504], np.float32)
LEVELS = (0.25, [0.0, 0.1, 0.5, 0.9, 1.0], [[1 / 3], [0.7]])
METHODS = (
    *("linear", "lower", "higher", "nearest", "midpoint", "inverted_cdf", "averaged_inverted_cdf"),
    *("closest_observation", "interpolated_inverted_cdf", "hazen", "weibull", "median_unbiased", "normal_unbiased"),
)


@pytest.fixture(autouse=True)
def on_numpy() -> Iterator[None]:
    """Tensors are computed on the adapter ``numpy``."""
    with dmlgpu.device("numpy"):
        yield


def arrays(dtypes: tuple[str, ...] = DTYPES) -> Iterator[np.ndarray[Any, Any]]:
    """Yield arrays of dtypes and shapes, those of floats with and without NaN and infinities, and transposed ones."""
    rng = np.random.default_rng(3)
    for dtype, shape in itertools.product(dtypes, SHAPES):
        low = 0 if dtype[0] in "ub" else -9
        array = rng.integers(low, 2 if dtype == "bool" else 10, shape)
        yield np.asarray(array / 4 if dtype[0] == "f" else array).astype(dtype)
        if dtype[0] == "f" and len(shape) < 3:
            yield rng.choice(SPECIAL, shape).astype(dtype)
            yield np.where(rng.random(shape) < 0.5, np.nan, array / 4).astype(dtype).T


def axes_of(array: np.ndarray[Any, Any]) -> Iterator[Any]:
    yield None
    if array.ndim:
        yield -1
    if array.ndim > 1:
        yield from (0, (-1, 0))


def check(result: Any, expected: Any, case: str, tolerance: float = 2e-6) -> None:
    """Compare a tensor with NumPy's float64, whose dtype does not count."""
    assert isinstance(result, Tensor), case
    assert result.shape == np.shape(expected), case
    if result.dtype == np.float16:
        tolerance, expected = 1e-3, np.asarray(expected).astype(np.float16)
    np.testing.assert_allclose(result.numpy().astype(np.float64), expected, tolerance, tolerance, err_msg=case)


def quiet(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return function(*args, **options)


def exact(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return array.astype(np.float64)


def order_statistic(array: np.ndarray[Any, Any], q: Any, axis: Any, method: str, keepdims: bool) -> Any:
    """NumPy's quantiles of float64, but that an element of weight 0 does not count even if it is infinite."""
    with np.errstate(all="ignore"):
        finite = np.where(np.isinf(array), np.sign(array) * 1e300, array)
        result = quiet(np.quantile, finite, q, axis=axis, method=method, keepdims=keepdims)
        return np.where(np.abs(result) > 1e200, np.sign(result) * np.inf, result)


@pytest.mark.slow
def test_quantiles() -> None:
    count = 0
    for array in arrays():
        has_both = array.dtype.kind == "f" and (array == np.inf).any() and (array == -np.inf).any()
        for axis, q in itertools.product(axes_of(array), LEVELS):
            for method in METHODS if array.shape == (7,) else ("linear", "higher"):
                if has_both and method not in ("lower", "higher", "nearest"):
                    continue
                case = f"{array!r} {q} {axis} {method}"
                expected = order_statistic(exact(array), q, axis, method, True)
                result = ops.quantile(Tensor(array), q, axis, method, keepdims=True)
                check(result, expected, case)
                count += 1
                if array.dtype.kind != "f" and method in ("lower", "higher", "nearest"):
                    assert result.dtype == (np.uint8 if array.dtype == bool else array.dtype), case
    assert count > 200
    x = Tensor([3.0, 1.0, 2.0])
    assert ops.percentile(x, [0, 50, 100]).tolist() == [1.0, 2.0, 3.0]


@pytest.mark.slow
def test_medians_and_nan() -> None:
    for array in arrays():
        for axis in axes_of(array):
            case, keepdims = f"{array!r} {axis}", axis == -1
            x = Tensor(array)
            check(ops.median(x, axis, keepdims), quiet(np.median, exact(array), axis=axis, keepdims=keepdims), case)
            expected = quiet(np.nanmedian, exact(array), axis=axis, keepdims=keepdims)
            check(ops.nanmedian(x, axis, keepdims), expected, case)


@pytest.mark.slow
def test_quantiles_without_nan() -> None:
    for array in arrays(("float32", "int32")):
        finite = np.where(np.isinf(array), 2, array)
        for axis, q in itertools.product(axes_of(array), LEVELS[:-1]):  # of matrices NumPy returns other shapes
            for method in METHODS if array.shape == (7,) else ("linear", "lower"):
                expected = quiet(np.nanquantile, exact(finite), q, axis=axis, method=method)
                check(ops.nanquantile(Tensor(finite), q, axis, method), expected, f"{finite!r} {q} {axis} {method}")


REDUCTIONS = ("nansum", "nanprod", "nanmean", "nanvar", "nanstd", "nanmax", "nanmin")


@pytest.mark.slow
def test_reductions_without_nan() -> None:
    for array, name in itertools.product(arrays(), REDUCTIONS):
        for axis in axes_of(array):
            if name in ("nanmax", "nanmin") and array.dtype == bool:
                continue
            case, keepdims = f"{name} {array!r} {axis}", axis == -1
            expected = quiet(getattr(np, name), exact(array), axis=axis, keepdims=keepdims)
            if name == "nanprod" and array.dtype == np.float16:
                expected = np.where(np.abs(expected) > 65519, np.copysign(np.inf, expected), expected)
            check(getattr(ops, name)(Tensor(array), axis, keepdims), expected, case, 2e-5)
    large = np.array([1e4 + 0.25, 1e4 + 0.5, np.nan, 1e4 + 0.75], np.float32)
    assert ops.nanvar(Tensor(large), ddof=1).tolist() == pytest.approx(np.nanvar(exact(large), ddof=1))
    half = np.full(70_000, 300, np.float16)
    half[::7] = np.nan
    half[1::2] = 100
    check(ops.nanstd(Tensor(half)), np.nanstd(exact(half)), "more elements than float16 counts")


@pytest.mark.slow
def test_places_and_running_sums_without_nan() -> None:
    for array in arrays():
        for axis in (None, *range(array.ndim)):
            case = f"{array!r} {axis}"
            x = Tensor(array)
            for name in ("nancumsum", "nancumprod"):
                expected = quiet(getattr(np, name), exact(array), axis=axis)
                if array.dtype == np.float16:
                    expected = np.where(np.abs(expected) > 65519, np.copysign(np.inf, expected), expected)
                check(getattr(ops, name)(x, axis), expected, f"{name} {case}", 2e-5)
            if array.dtype == bool:
                continue
            for name in ("nanargmax", "nanargmin"):
                numbers = np.isnan(exact(array)).all(axis, keepdims=True)
                filled = np.where(numbers, 0, exact(array))
                expected = np.where(numbers, -1, getattr(np, name)(filled, axis=axis, keepdims=True))
                check(getattr(ops, name)(x, axis, keepdims=True), expected, f"{name} {case}")
    special = Tensor(SPECIAL)
    np.testing.assert_array_equal(ops.nan_to_num(special).numpy(), np.nan_to_num(SPECIAL))
    np.testing.assert_array_equal(ops.nan_to_num(special, 1, 2, 3).numpy(), np.nan_to_num(SPECIAL, True, 1, 2, 3))


def test_no_elements() -> None:
    for shape, axis in (((0,), None), ((0,), 0), ((0, 3), 0), ((0, 3), 1), ((3, 0), (0, 1))):
        x = Tensor(np.empty(shape, np.float32))
        for name in ("median", "nanmedian", "nanmean", "nansum", "nanprod", "nanvar"):
            expected = quiet(getattr(np, name), np.empty(shape), axis=axis)
            check(getattr(ops, name)(x, axis), expected, f"{name} {shape} {axis}")
    assert np.isnan(ops.quantile(Tensor(np.empty(0, np.float32)), [0.1, 0.2]).numpy()).all()
    counts, edges = ops.histogram(Tensor(np.empty(0, np.float32)), 3)
    assert (counts.tolist(), edges.tolist()) == ([0, 0, 0], np.linspace(0, 1, 4, dtype=np.float32).tolist())
    assert ops.bincount(Tensor(np.empty(0, np.int32)), minlength=2).tolist() == [0, 0]


def histogram_operands() -> Iterator[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(5)
    yield from (array for array in arrays(("int8", "uint8", "int64")) if 0 < array.ndim < 3)
    for dtype in ("float32", "float16"):
        yield (rng.integers(0, 11, 50) / 10).astype(dtype)
        yield rng.standard_normal((5, 4)).astype(dtype)
    yield np.full(3, 0.3, np.float32)


BINS = (3, 10, [0, 1, 5], [0.1, 0.2, 0.2, 0.7], [-3.5, 2.5, 2.5], np.array([-1, 0, 4]), [-np.inf, 0, np.inf])


@pytest.mark.slow
def test_histograms() -> None:
    for array, bins in itertools.product(histogram_operands(), BINS):
        case = f"{array!r} {bins}"
        ranges = (None, (-2.5, 3.0)) if isinstance(bins, int) else (None,)
        for limits in ranges:
            counts, edges = ops.histogram(Tensor(array), bins, limits)
            expected, expected_edges = np.histogram(array, bins, limits)
            assert counts.tolist() == expected.tolist(), case
            np.testing.assert_allclose(edges.numpy(), expected_edges, 1e-6, err_msg=case)
        if isinstance(bins, int) and bins == 10:
            continue
        weights = np.arange(array.size).reshape(array.shape).astype(np.float32)
        counts, _ = ops.histogram(Tensor(array), bins, weights=Tensor(weights))
        np.testing.assert_allclose(counts.numpy(), np.histogram(array, bins, weights=weights)[0], 1e-6, err_msg=case)
        expected = quiet(np.histogram, array, bins, density=True)[0]
        if np.isfinite(expected).all():
            density = ops.histogram(Tensor(array), bins, density=True)[0]
            np.testing.assert_allclose(density.numpy(), expected, 1e-4, 1e-6, err_msg=case)
    with_nan = np.array([0.5, np.nan, 2, np.inf, -np.inf, 1], np.float32)
    assert ops.histogram(Tensor(with_nan), [0, 1, 2])[0].tolist() == [1, 2]


@pytest.mark.slow
def test_counts_of_integers() -> None:
    rng = np.random.default_rng(7)
    for dtype, minlength in itertools.product(("int8", "uint8", "int32", "int64", "uint64"), (0, 3, 30)):
        array = rng.integers(0, 9, 40).astype(dtype)
        assert ops.bincount(Tensor(array), minlength=minlength).tolist() == np.bincount(array, None, minlength).tolist()
        weights = rng.standard_normal(40).astype(np.float32)
        expected = np.bincount(array, weights, minlength)
        check(ops.bincount(Tensor(array), Tensor(weights), minlength), expected, dtype, 1e-5)
    with_nan = np.array([np.nan, 1, np.inf, -np.inf], np.float32)
    for bins in ([0, 1, 5], [5, 1, 0]):
        assert ops.digitize(Tensor(with_nan), bins).tolist() == np.digitize(with_nan, bins).tolist(), bins
    for array, right in itertools.product(histogram_operands(), (False, True)):
        for bins in ([0, 1, 5], [0.1, 0.2, 0.2, 0.7], [2.5, 0, -3.5], [1], np.array([-1, 0, 4], np.int8)):
            expected = np.digitize(exact(array), bins, right)
            assert ops.digitize(Tensor(array), bins, right).tolist() == expected.tolist(), f"{array!r} {bins} {right}"


@pytest.mark.slow
def test_rounding_at_digits() -> None:
    for array in arrays():
        for decimals in (-3, -1, 0, 1, 2, 4, 50, -50):
            expected = quiet(np.round, exact(array), decimals if abs(decimals) < 20 or array.dtype.kind != "f" else 0)
            if decimals == -50 and array.dtype != bool:
                expected = np.where(np.isfinite(array), 0, array)
            elif decimals == 50 or array.dtype == bool:
                expected = exact(array)
            if array.dtype == np.int8:
                expected = np.clip(expected, -128, 127)
            result = ops.round(Tensor(array), decimals)
            assert result.dtype == array.dtype
            check(result, expected, f"{array!r} {decimals}")
    ties = np.array([15, 25, -15, -25, 5, -5, 250, 2**62 + 50], np.int64)
    assert ops.round(Tensor(ties), -1).tolist() == [20, 20, -20, -20, 0, 0, 250, 2**62 + 46]
    assert round(Tensor([1.26, 2.0]), 1).tolist() == pytest.approx([1.3, 2.0])
    assert round(Tensor([1.5, 2.5])).tolist() == [2.0, 2.0]


@pytest.mark.slow
def test_closeness() -> None:
    pairs = itertools.product(tuple(arrays(("float32", "float16", "int32")))[::2], (0, 1e-6, 0.3, np.inf))
    for array, offset in pairs:
        if array.dtype.kind != "f" and not offset < 0.1:
            continue
        other = quiet(np.add, exact(array), offset).astype(array.dtype)
        for equal_nan, tolerances in itertools.product((False, True), ((1e-5, 1e-8), (0.1, 0.2))):
            expected = quiet(np.isclose, exact(array), exact(other), *tolerances, equal_nan=equal_nan)
            case = f"{array!r} {other!r} {tolerances} {equal_nan}"
            x, y = Tensor(array), Tensor(other)
            assert ops.isclose(x, y, *tolerances, equal_nan=equal_nan).tolist() == expected.tolist(), case
            assert bool(ops.allclose(x, y, *tolerances, equal_nan=equal_nan)) == expected.all(), case
        same = quiet(np.array_equal, array, other), quiet(np.array_equal, array, other, equal_nan=True)
        assert (bool(ops.array_equal(x, y)), bool(ops.array_equal(x, y, equal_nan=True))) == same, case
    assert not bool(ops.array_equal(Tensor([1, 2]), Tensor([[1, 2]])))
    assert bool(ops.allclose(Tensor([1.0, 1.0]), 1.0))
    assert not bool(ops.allclose(Tensor([2**40, 1]), Tensor([2**40 + 9, 1]), 0))


@dmlgpu.compile
def compiled_statistics(x: Any) -> Any:
    counts, _ = ops.histogram(x, 4, (-2, 2))
    return (
        ops.quantile(x, [0.2, 0.5], axis=1),
        ops.nanmedian(x, 0),
        ops.nanvar(x),
        counts,
        ops.bincount(x[0] > 0, minlength=2),
    )


def test_traced() -> None:
    array = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)
    quantiles, medians, variance, counts, signs = compiled_statistics(Tensor(array))
    check(quantiles, np.quantile(exact(array), [0.2, 0.5], axis=1), "quantile")
    check(medians, np.median(exact(array), 0), "nanmedian")
    check(variance, np.var(exact(array)), "nanvar")
    assert counts.tolist() == np.histogram(array, 4, (-2, 2))[0].tolist()
    assert signs.tolist() == np.bincount(array[0] > 0, minlength=2).tolist()
    for function, named in (
        (lambda x: ops.histogram(x, 4)[0], "range"),
        (lambda x: ops.bincount(x.astype("int32").reshape(-1)), "minlength"),
    ):
        with pytest.raises(InvalidState, match=named):
            dmlgpu.compile(function)(Tensor(array))


def test_gradients() -> None:
    array = np.array([[3.0, 1.0, 2.0], [5.0, 9.0, 4.0]], np.float32)
    gradient = dmlgpu.grad(lambda x: ops.median(x, 1).sum())(Tensor(array))
    assert gradient.tolist() == [[0, 0, 1], [1, 0, 0]]
    gradient = dmlgpu.grad(lambda x: ops.quantile(x, 0.25))(Tensor(array))
    assert gradient.tolist() == [[0.25, 0, 0.75], [0, 0, 0]]
    holes = array.copy()
    holes[0, 0] = np.nan
    fifth = pytest.approx(0.2)
    assert dmlgpu.grad(ops.nanmean)(Tensor(holes)).tolist() == [[0, fifth, fifth], [fifth, fifth, fifth]]
    assert dmlgpu.grad(ops.nanmax)(Tensor(holes)).tolist() == [[0, 0, 0], [0, 1, 0]]


def test_wrong_arguments() -> None:
    x = Tensor([1.0, 2.0])
    for call, words in (
        (lambda: ops.quantile(x, 1.5), "quantile: q must be numbers between 0 and 1, got 1.5"),
        (lambda: ops.quantile(x, "a"), "quantile: q must be numbers between 0 and 1"),
        (lambda: ops.quantile(x, float("nan")), "quantile: q must be"),
        (lambda: ops.percentile(x, -1), "percentile: q must be numbers between 0 and 100, got -1"),
        (lambda: ops.quantile(x, 0.5, method="cubic"), "quantile: method must be 'linear' or"),
        (lambda: ops.median(x, 3), "median: axis must"),
        (lambda: ops.histogram(x, 0), "histogram: bins must"),
        (lambda: ops.histogram(x, [2, 1]), "histogram: bins must be a number of bins or edges that ascend"),
        (lambda: ops.histogram(x, 2, (1, 0)), "histogram: range must be two finite numbers in order"),
        (lambda: ops.histogram(Tensor([np.nan]), 2), "histogram: range must be given if x is not finite"),
        (lambda: ops.histogram(x, 2, weights=Tensor([1.0])), "histogram: weights must have the sizes of x"),
        (lambda: ops.bincount(Tensor([-1, 2])), "bincount: x must hold integers between 0 and"),
        (lambda: ops.bincount(x), "bincount: x must be of a type of kind boolean or integer"),
        (lambda: ops.bincount(Tensor([[1]])), "bincount: x must have one dimension"),
        (lambda: ops.digitize(x, [1, 3, 2]), "digitize: bins must be in order"),
        (lambda: ops.round(x, 1.5), "round: decimals must"),
        (lambda: ops.isclose(x, x, rtol="a"), "isclose: rtol must"),
        (lambda: ops.nan_to_num(x, nan="a"), "nan_to_num: nan: a number must be given"),
        (
            lambda: ops.quantile(Tensor(np.empty(0, np.int32)), 0.5, method="lower"),
            "quantile: x must have at least one",
        ),
    ):
        with pytest.raises(InvalidArgument, match="^" + words.replace("(", r"\(")):
            call()
    assert issubclass(InvalidArgument, DmlError)
