"""Types and values of arithmetic are NumPy's, with float32 instead of float64, for every pair of dtypes."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import dmlgpu
import dmlgpu.array as xp
from dmlgpu import InvalidArgument, Tensor, ops
from dmlgpu.runtime.device import as_device
from dmlgpu.tensors.graphs.graph import Graph

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
DTYPES = ("bool", *INTEGERS, "float16", "float32")
BESIDE_NUMBERS = ("bool", "int8", "uint8", "int64", "uint64", "float16", "float32")

NUMBERS: tuple[Any, ...] = (True, 0, 1, -1, 2, 300, 0.75, 0.1, -0.0, np.inf, np.nan)
"""Numbers as operands of tensors: Python's, and NumPy's, which have a dtype."""
NUMBERS += (np.True_, np.int8(-3), np.int64(5), np.uint64(3), np.float16(0.25), np.float64(0.1))

ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "floor_divide": operator.floordiv,
    "remainder": operator.mod,
    "power": operator.pow,
    "equal": operator.eq,
    "not_equal": operator.ne,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
}
BITS: dict[str, Callable[[Any, Any], Any]] = {
    "bitwise_and": operator.and_,
    "bitwise_or": operator.or_,
    "bitwise_xor": operator.xor,
    "left_shift": operator.lshift,
    "right_shift": operator.rshift,
}
FUNCTIONS = ("maximum", "minimum", "fmod", "logical_and", "logical_or", "logical_xor")


@pytest.fixture(autouse=True)
def on_numpy() -> Iterator[None]:
    """Tensors are computed on the adapter ``numpy``."""
    with dmlgpu.device("numpy"), np.errstate(all="ignore"):
        yield


def elements(dtype: str, count: int = 8) -> Any:
    """Elements of a dtype that float32 holds, the special values and the limits of small integers among them."""
    kind = np.dtype(dtype)
    if kind == np.bool_:
        return np.resize([True, False, False, True, True], count)
    if kind.kind == "f":
        return np.resize([1, -7.5, 0.0, -0.0, np.inf, -np.inf, np.nan, 2.25, -1, 6], count).astype(kind)
    info = np.iinfo(kind)
    limits = [info.min, info.max] if kind.itemsize < 4 else [-(2**20) if info.min else 5, 2**20]
    return np.resize([1, 7, 0, *limits, 3, 2, 6], count).astype(kind)


def as_float32(x: Any) -> Any:
    if x is None:
        return x
    return x.astype(np.float32) if isinstance(x, np.ndarray) else np.float32(x)


def expected_of(function: Callable[..., Any], *operands: Any) -> Any:
    """NumPy's result, computed in float32 if NumPy computes it in float64; the exception if it raises one."""
    try:
        result = function(*operands)
        if np.asarray(result).dtype == np.float64:
            result = np.asarray(function(*map(as_float32, operands)))
        return np.asarray(result)
    except (TypeError, ValueError, OverflowError) as error:
        return error


def check(name: str, compute: Callable[[], Any], expected: Any) -> None:
    """Compare with NumPy: dtype, elements (powers and divisions to one unit in the last place) and signs of zeros."""
    try:
        result = compute().numpy()
    except (InvalidArgument, TypeError) as error:
        assert isinstance(expected, Exception), f"{name}: {error}; NumPy: {expected}"
        return
    assert not isinstance(expected, Exception), f"{name}: {result}; NumPy raises {expected}"
    assert result.dtype == expected.dtype and result.shape == expected.shape, f"{name}: {result}, {expected!r}"
    if "power" in name and result.dtype.kind == "f":
        np.testing.assert_allclose(result, expected, rtol=1e-3 if result.dtype == np.float16 else 1e-6, err_msg=name)
    else:
        np.testing.assert_array_equal(result, expected, name)
    if result.dtype.kind == "f" and not any(tie in name for tie in ("imum", "clip")):
        is_number = ~np.isnan(expected)
        signs = np.signbit(result)[is_number], np.signbit(expected)[is_number]
        assert np.array_equal(*signs), f"{name}: signs of {result}, {expected}"


def pairs() -> Iterator[tuple[str, Any, Any]]:
    for first, second in itertools.product(DTYPES, DTYPES):
        if {first, second} in [{"uint64", signed} for signed in ("int8", "int16", "int32", "int64")]:
            continue  # NumPy's type is float64, which would lose integers here: raises
        yield f"{first}, {second}", elements(first, 9), elements(second, 10)[1:]
    for dtype, number in itertools.product(BESIDE_NUMBERS, NUMBERS):
        if (
            isinstance(number, np.integer)
            and np.dtype(dtype).kind in "iu"
            and np.result_type(dtype, number).kind == "f"
        ):
            continue
        yield f"{dtype}, {number!r}", elements(dtype), number
        yield f"{number!r}, {dtype}", number, elements(dtype)


def tensor(operand: Any) -> Any:
    return Tensor(operand) if isinstance(operand, np.ndarray) else operand


def exponents(a: Any, b: Any) -> Any:
    """Exponents of integers that are neither negative nor overflow 64 bits, if they are in an array."""
    is_whole = isinstance(b, np.ndarray) and np.result_type(a, b).kind in "iu"
    return b % 19 if is_whole and b.dtype != bool else b


@pytest.mark.slow
def test_operators() -> None:
    for index, (label, a, b) in enumerate(pairs()):
        for name, function in ARITHMETIC.items():
            other = exponents(a, b) if name == "power" else b
            x, y, expected = tensor(a), tensor(other), expected_of(getattr(np, name), a, other)
            check(f"{name}({label})", lambda: function(x, y), expected)  # noqa: B023
            if index % 3 == 0:
                check(f"ops.{name}({label})", lambda: getattr(ops, name)(x, y), expected)  # noqa: B023


def test_functions() -> None:
    for label, a, b in itertools.islice(pairs(), 0, None, 3):
        for name in FUNCTIONS:
            expected = expected_of(getattr(np, name), a, b)
            check(f"ops.{name}({label})", lambda: getattr(ops, name)(tensor(a), tensor(b)), expected)  # noqa: B023


@pytest.mark.slow
def test_bits() -> None:
    for first, second in itertools.product(("bool", *INTEGERS), repeat=2):
        if np.result_type(first, second).kind == "f":
            continue
        a, counts = elements(first), np.array([0, 1, 2, 3, 1, 0, 2, 1]).astype(second)
        for name, function in BITS.items():
            b = counts if "shift" in name else elements(second)
            expected = expected_of(getattr(np, name), a, b)
            label, x, y = f"{name}({first}, {second})", Tensor(a), Tensor(b)
            check(label, lambda: function(x, y), expected)  # noqa: B023
            check(f"ops.{label}", lambda: getattr(ops, name)(x, y), expected)  # noqa: B023
    for dtype, number in itertools.product(("bool", *INTEGERS), (True, 1, 3, np.int64(1))):
        if dtype == "uint64" and isinstance(number, np.int64):
            continue
        for name, function in BITS.items():
            x, expected = Tensor(elements(dtype)), expected_of(getattr(np, name), elements(dtype), number)
            check(f"{name}({dtype}, {number!r})", lambda: function(x, number), expected)  # noqa: B023
    for name, function in BITS.items():
        for operand in (Tensor([1.5]), 1.5):
            with pytest.raises(InvalidArgument, match="must be of integers, got FLOAT"):
                function(Tensor([1, 2]), operand)
            with pytest.raises(InvalidArgument, match="must be of integers, got FLOAT"):
                getattr(ops, name)(Tensor([1, 2]), operand)


def test_one_operand() -> None:
    signs: dict[str, Callable[[Any], Any]] = {
        "negative": operator.neg, "positive": operator.pos, "absolute": operator.abs, "invert": operator.invert,
    }  # fmt: skip
    functions = ("negative", "abs", "sign", "square", "bitwise_not", "logical_not", "isnan", "floor")
    for dtype in DTYPES:
        array = elements(dtype)
        x = Tensor(array)
        for name, function in signs.items():
            check(f"{name}({dtype})", lambda: function(x), expected_of(getattr(np, name), array))  # noqa: B023
        for name in functions:
            expected = expected_of(getattr(np, name), array)
            if name == "floor" and array.dtype.kind in "bui":
                expected = array
            check(f"ops.{name}({dtype})", lambda: getattr(ops, name)(x), expected)  # noqa: B023
        if array.dtype.kind in "bui":
            array = np.abs(array)
            result = ops.sqrt(Tensor(array)).numpy()
            assert result.dtype == np.float32
            np.testing.assert_allclose(result, np.sqrt(array.astype(np.float32)), rtol=1e-6)
            assert ops.exp(Tensor(array) * 0).dtype == ops.atan2(Tensor(array), 2).dtype == np.float32


def quotients(dtype: str) -> tuple[Any, Any]:
    """Dividends and divisors: special values in all pairs; quotients next to integers, far apart and large."""
    random = np.random.default_rng(3)
    special = np.array([0, -0.0, 1, -1, 0.1, 0.7, -7, 6, 6e4, 1e-3, np.inf, -np.inf, np.nan])
    a, b = (part.reshape(-1) for part in np.meshgrid(special, special))
    divisors = random.uniform(-2, 2, 300).astype(dtype)
    multiples = divisors * random.integers(-900, 900, 300)
    near = np.nextafter(multiples.astype(dtype), random.choice([-np.inf, np.inf], 300).astype(dtype))
    wide = random.standard_normal((2, 300)) * 10.0 ** random.integers(-4, 5, (2, 300))
    dividends = np.concatenate([a, multiples, near, wide[0]]).astype(dtype)
    return dividends, np.concatenate([b, divisors, divisors, wide[1]]).astype(dtype)


def test_floor_division() -> None:
    for dtype in ("float32", "float16"):
        a, b = quotients(dtype)
        expected = np.divmod(a, b)
        compiled = dmlgpu.compile(lambda x, y: (x // y, x % y))
        computed: dict[str, Any] = {
            "operators": (Tensor(a) // Tensor(b), Tensor(a) % Tensor(b)),
            "divmod": divmod(Tensor(a), Tensor(b)),
            "divmod of an array": divmod(a, Tensor(b)),
            "ops": (ops.floor_divide(Tensor(a), b), ops.remainder(Tensor(a), b)),
            "array": (xp.floor_divide(Tensor(a), Tensor(b)), xp.remainder(Tensor(a), Tensor(b))),
            "compiled": compiled(Tensor(a), Tensor(b)),
        }
        graph = Graph(as_device("test", "numpy"), "division", rules="numpy")
        x, y = (graph.input(a.shape, dtype, name=name) for name in ("x", "y"))
        computed["graph"] = [Tensor(result) for result in graph.evaluate([x // y, x % y], [a, b])]
        for name, results in computed.items():
            for part, result, right in zip(("//", "%"), results, expected, strict=True):
                check(f"{part} of {name}, {dtype}", lambda: result, right)  # noqa: B023
        is_finite = np.isfinite(a) & np.isfinite(b) & (b != 0) & (np.abs(a / b) < 1000)
        restored = ((Tensor(a) // Tensor(b)) * Tensor(b) + Tensor(a) % Tensor(b)).numpy()
        error, rounding = np.abs(restored - a), 2 * np.finfo(dtype).eps * (np.abs(a) + np.abs(b))
        assert (error <= rounding)[is_finite].all(), f"(a // b) * b + a % b of {dtype}"
        for number in (0.1, -0.7, 0.0, -0.0, 2, np.inf, -np.inf, np.nan):
            check(f"{dtype} // {number}", lambda: Tensor(a) // number, np.floor_divide(a, number))  # noqa: B023
            check(f"{number} // {dtype}", lambda: number // Tensor(b), np.floor_divide(number, b))  # noqa: B023
            check(f"{number} % {dtype}", lambda: number % Tensor(b), np.remainder(number, b))  # noqa: B023
    for dtype in INTEGERS:
        info = np.iinfo(dtype)
        values = np.array([info.min, info.max, 0, 1, 7, info.max // 2], dtype)
        a, b = (part.reshape(-1) for part in np.meshgrid(values, values))
        for result, right in zip(divmod(Tensor(a), Tensor(b)), np.divmod(a, b), strict=True):
            check(f"divmod of {dtype}", lambda: result, right)  # noqa: B023
        check(f"fmod of {dtype}", lambda: ops.fmod(Tensor(a), Tensor(b)), np.fmod(a, b))  # noqa: B023
        check(f"{dtype} // 0", lambda: Tensor(a) // 0, a // 0)  # noqa: B023


def test_powers_of_integers() -> None:
    bases, exponents = (part.reshape(-1) for part in np.meshgrid([0, 1, -1, 2, -3, 5], [-3, -2, -1, 0, 1, 2, 3]))
    real = [
        0 if not base and exponent < 0 else int(float(base) ** exponent)
        for base, exponent in zip(bases, exponents, strict=True)
    ]
    for dtype in ("int8", "int16", "int32", "int64"):
        a, b = bases.astype(dtype), exponents.astype(dtype)
        compiled = dmlgpu.compile(lambda x, y: x**y)
        for name, result in {
            "**": Tensor(a) ** Tensor(b),
            "ops": ops.power(Tensor(a), Tensor(b)),
            "compiled": compiled(Tensor(a), Tensor(b)),
        }.items():
            assert result.dtype == dtype and result.tolist() == real, f"{name} of {dtype}: {result.tolist()}, {real}"
        for exponent in (-1, np.int8(-2), np.array([-1] * len(a), dtype), b):
            with pytest.raises(InvalidArgument, match=r"exponents of integers must not be negative, got -[123];"):
                Tensor(a) ** exponent
            with pytest.raises(InvalidArgument, match=r"exponents of integers must not be negative, got -[123];"):
                ops.power(Tensor(a), exponent)
        for exponent in (0, 1, 2, 5, 63, 64, 70):
            check(f"{dtype} ** {exponent}", lambda: Tensor(a) ** exponent, np.power(a, exponent))  # noqa: B023
    for dtype in ("int64", "uint64"):  # the lower 64 bits
        a, b = np.meshgrid(np.array([0, 1, 2, 6, 10], dtype), np.array([0, 1, 5, 63, 64, 65, 128, 2**40], dtype))
        check(f"large {dtype}", lambda: Tensor(a) ** Tensor(b), np.power(a, b))  # noqa: B023
    check("float exponent", lambda: Tensor([2, 4]) ** -1.0, np.array([0.5, 0.25], np.float32))
    check("int8 to a wider exponent", lambda: Tensor([2], "int8") ** Tensor([10]), np.array([1024]))


@pytest.mark.slow
def test_where() -> None:
    mask = np.array([True, False, True])
    condition = Tensor(mask)
    numbers = (True, 0, -1, 2**40, 0.5, -np.inf, np.int8(3), np.float16(0.5), np.float64(0.1))
    functions = {"ops": ops.where, "numpy": np.where, "array": xp.where, "compiled": dmlgpu.compile(ops.where)}
    for a, b in itertools.product(numbers, repeat=2):
        if {a, b} & {300, 2**40} and {type(a), type(b)} & {np.int8, np.float16}:
            continue  # NumPy's integers wrap, its floats overflow
        expected = np.where(mask, a, b)
        if expected.dtype == np.float64:
            expected = expected.astype(np.float32)
        for name, function in functions.items():
            check(f"where of {name}, {a!r}, {b!r}", lambda: function(condition, a, b), expected)  # noqa: B023
    for dtype, number in itertools.product(DTYPES, (True, 0, -1, 0.5, np.inf, np.float16(0.5))):
        x = elements(dtype, 3)
        for name, function in functions.items():
            expected = expected_of(np.where, mask, x, number)
            if np.dtype(dtype).kind == "u" and number is not True and number == -1:
                expected = OverflowError()
            if not isinstance(expected, Exception):
                expected = (
                    np.where(mask, as_float32(x), np.float32(number)) if expected.dtype == np.float32 else expected
                )
            check(f"where of {name}, {dtype}, {number!r}", lambda: function(condition, Tensor(x), number), expected)  # noqa: B023
    for first, second in itertools.product(("bool", "int8", "int64", "float16", "float32"), repeat=2):
        a, b = elements(first, 3), elements(second, 3)
        expected = expected_of(lambda x, y: np.where(mask, x, y), a, b)
        check(f"where of {first}, {second}", lambda: ops.where(condition, Tensor(a), Tensor(b)), expected)  # noqa: B023
    assert ops.where(Tensor(True), 1, 0).shape == () and ops.where(condition[:0], 1, 0.5).dtype == np.float32
    assert ops.where(mask, 1, -1).tolist() == [1, -1, 1]
    graph = Graph(as_device("test", "numpy"), "choice", rules="numpy")
    x = graph.input((3,), "float32")
    (result,) = graph.evaluate([ops.where(x > 0, 1, -1) * 2 - 1], [np.array([1, -2, 3], np.float32)])
    assert result.dtype == np.int64 and result.tolist() == [1, -3, 1]


def test_clip() -> None:
    bounds = ((0, 1), (0.5, None), (None, 2.5), (0, 1.5), (np.int8(1), np.float32(2)), (None, True), (300, None))
    for dtype, (low, high) in itertools.product(BESIDE_NUMBERS, bounds):
        array = elements(dtype)
        expected = expected_of(np.clip, array, low, high)
        for function in (ops.clip, Tensor.clip, np.clip):
            check(f"clip({dtype}, {low!r}, {high!r})", lambda: function(Tensor(array), low, high), expected)  # noqa: B023
    for dtype, kind in itertools.product(BESIDE_NUMBERS, ("bool", "int8", "int32", "float16", "float32")):
        if dtype == "uint64" and kind.startswith("int"):  # which have no common type
            continue
        array = elements(dtype)
        low, high = np.resize(elements(kind), (2, len(array))), np.resize(elements(kind)[::-1], len(array))
        for least, greatest in ((low, high), (low, None), (None, low), (low, 2), (0, high)):
            expected = expected_of(np.clip, array, least, greatest)
            for function in (ops.clip, Tensor.clip, np.clip):
                check(f"clip({dtype}, {kind})", lambda: function(Tensor(array), least, greatest), expected)  # noqa: B023
    assert ops.clip([1, 5, 9], [4, 6, 8]).tolist() == [4, 6, 9] and ops.clip([1, 5], max=np.array([0, 9])).tolist() == [
        0,
        5,
    ]
    special = np.array([np.nan, 1, 1, np.inf], np.float32), np.array([0, np.nan, 2, 0], np.float32)
    np.testing.assert_array_equal(ops.clip(Tensor(special[0]), special[1]).numpy(), np.clip(*special, None))


def test_means() -> None:
    for dtype in ("bool", *INTEGERS):
        array = np.resize(elements(dtype), (3, 8))
        x, numbers = Tensor(array), array.astype(np.float64)
        for name in ("mean", "var", "std"):
            for axis in (None, 0, 1):
                expected = getattr(np, name)(numbers, axis=axis)
                for namespace in (ops, xp):
                    result = getattr(namespace, name)(x, axis=axis)
                    assert result.dtype == np.float32, f"{name} of {dtype}"
                    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-5, err_msg=f"{name} of {dtype}")
    scores, labels = Tensor(np.eye(4, 3, dtype=np.float32)), Tensor([0, 1, 1, 0])
    is_right = ops.argmax(scores, 1) == labels
    assert is_right.mean().item() == is_right.sum().item() / 4 == (is_right.sum() / 4).item() == 0.75
    assert Tensor(np.ones(100_000, bool)).mean().item() == 1


def test_masks() -> None:
    array = np.array([[-1, 2, -3], [4, 0, 6]], np.float32)

    def formulas(x: Any, functions: Any) -> tuple[Any, ...]:
        where, matmul, einsum = functions.where, functions.matmul, functions.einsum
        m, n = x > 0, x > 2
        return (
            2 * m - 1, m - 1, where(m, 1, 0) - 1, m + n, m * n, m @ n.T, matmul(m, n.T), m + True, x * m, m * 0.5,
            m / 2, (m & n) + 1, m == 1, -(m * 1), m.T @ x, m.astype("int8") @ m.T, (~m) * 3, m | (x < -2), m ^ n,
            m[0] @ n[0], m + np.array([True, False, True]), m + np.array([1, 2, 3], np.int8), [True, False, True] * m,
            einsum("ij,kj->ik", m, n), einsum("ij,ij->i", m, x), einsum("ij->j", m), einsum("ij->ji", m),
        )  # fmt: skip

    computed = {
        "eager": formulas(Tensor(array), ops),
        "compiled": dmlgpu.compile(lambda x: formulas(x, ops))(Tensor(array)),
        "strided": formulas(Tensor(array.T.copy()).T, ops),
    }
    expected = formulas(array, np)
    for name, results in computed.items():
        for index, (result, numpys) in enumerate(zip(results, expected, strict=True)):
            right = numpys.astype(np.float32) if numpys.dtype == np.float64 else numpys
            check(f"formula {index}, {name}", lambda: result, right)  # noqa: B023
    x = Tensor(array)
    m = x > 0
    assert x[m * (x > 2)].tolist() == [4, 6] and x[m + (x < 0)].tolist() == [-1, 2, -3, 4, 6]
    for function in (operator.sub, ops.subtract, xp.subtract, operator.isub):
        with pytest.raises(InvalidArgument, match="a and b must not both be masks"):
            function(x > 0, x > 1)
    with pytest.raises(InvalidArgument, match="must have the type and sizes of a, BOOL"):
        m += 1
    m *= x > 2
    assert m.dtype == bool and (m * m).tolist() == [[False] * 3, [True, False, True]]
    gradient = dmlgpu.grad(lambda x: (x * (x > 0) + ops.where(x > 2, 1.0, 0.0) * x // 0.5).sum())(x)
    assert gradient.tolist() == (array > 0).astype(np.float32).tolist()


def test_functions_of_the_standard() -> None:
    """``array`` computes like ``ops``, also what the standard leaves undefined."""
    whole, mask = xp.arange(3), xp.arange(3) == 1
    assert ((xp.arange(3) == 1) * 1.0).tolist() == [0, 1, 0]
    assert xp.add(mask, mask).dtype == xp.bool and xp.add(whole, 1.5).tolist() == [1.5, 2.5, 3.5]
    assert xp.add(mask, 1).dtype == xp.int64 and xp.divide(whole, 2).tolist() == [0, 0.5, 1]
    assert xp.matmul(mask, mask).item() is True and xp.sqrt(whole).dtype == xp.float32
    assert xp.clip(whole, 0.5, 1.5).tolist() == [0.5, 1, 1.5] and xp.clip(whole, 1).dtype == xp.int64
    assert xp.logical_and(whole, True).tolist() == [False, True, True]
    assert xp.hypot(whole, 1).dtype == xp.expm1(whole).dtype == xp.float32
    assert xp.result_type(xp.int8, xp.float16) == xp.float16 and xp.result_type(xp.bool, 1, 0.5) == xp.float32
    assert xp.concat([whole, xp.asarray([0.5])]).dtype == xp.float32


def test_empty_and_single_elements() -> None:
    for dtype in BESIDE_NUMBERS:
        for shape in ((0,), (2, 0), ()):
            array = np.ones(shape, dtype)
            for name, function in ARITHMETIC.items():
                for number in (2, 0.5):
                    expected = expected_of(getattr(np, name), array, number)
                    check(f"{name}({dtype} {shape}, {number})", lambda: function(Tensor(array), number), expected)  # noqa: B023
