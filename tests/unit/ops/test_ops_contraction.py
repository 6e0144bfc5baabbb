"""einsum against NumPy's, over many expressions."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import dmlgpu
from dmlgpu import InvalidArgument, Tensor, ops
from tests.unit.device_objects import raises

SIZES = dict(zip("abcdijklmnxyABC", (2, 3, 4, 5, 3, 4, 5, 2, 3, 4, 5, 2, 2, 3, 4), strict=True))


@pytest.fixture(autouse=True)
def on_numpy() -> Any:
    """Arrays are computed on the adapter ``numpy``."""
    with dmlgpu.device("numpy"):
        yield


def operand(term: str, elided: tuple[int, ...], dtype: Any, seed: int) -> Any:
    """An array with the axes of a term; ``...`` stands for some sizes."""
    before, dots, after = term.replace(" ", "").partition("...")
    shape = [*(SIZES[x] for x in before), *(elided if dots else ()), *(SIZES[x] for x in after)]
    generator = np.random.default_rng([seed, *map(ord, term)])
    if np.dtype(dtype).kind == "f":
        return generator.standard_normal(shape).astype(dtype)
    return generator.integers(-9, 9, shape).astype(dtype)


ONE = [
    "i",
    "i->",
    "ij",
    "ji",
    "ij->ji",
    "ij->i",
    "ij->j",
    "ij->",
    "aa",
    "aa->a",
    "aab->b",
    "aba->ab",
    "aaa->a",
    "abab->ab",
]
ONE += ["abcd->dbca", "abcd->bd", "ba", "bA", "abAB->BA", "->", "aabb", "abba->"]
TWO = [
    "i,i",
    "i,i->",
    "i,i->i",
    "i,j->ij",
    "i,j->ji",
    "i,j",
    "ij,j",
    "ij,jk",
    "ij,jk->ki",
    "ij,kj->ik",
    "ij,ij",
    "ij,ij->",
]
TWO += ["ij,ij->i", "ij,ji", "bij,bjk->bik", "bij,bjk->ki", "bij,bkj->bik", "abij,abjk->abik", "abij,bajk->abik"]
TWO += [
    "ijk,jk->i",
    "ijk,ikl->jl",
    "ijk,lkj->il",
    "ij,k->k",
    "ij,k->ijk",
    "ij,kl->ijkl",
    "ij,kl->",
    "ii,ij->j",
    "ii,jj->ij",
]
TWO += ["iij,jk->ik", ",ij->ij", "ij,->j", ",", "abcd,bx->axcd", "ab,ab->ba", "aab,bc->c", " i j , j k -> i k "]
MORE = ["ij,jk,kl", "ij,jk,kl->li", "i,i,i->", "i,ij,j", "i,j,k->kji", "ab,bc,cd,dx->ax", "ij,ij,ij->ij", "a,ab,abc->c"]
MORE += ["ij,kj,lj->ikl", "abc,ad,bx->dxc"]
DOTS = [
    "...",
    "...->...",
    "...i->...",
    "i...->i...",
    "i...->...i",
    "...ij->...ji",
    "...ii->...i",
    "...,...",
    "...,...->...",
]
DOTS += [
    "...ij,...jk->...ik",
    "...ij,jk->...ik",
    "ij,...jk->...ik",
    "...i,...i->...",
    "i...,j...->ij...",
    "...i,i",
    "a...,b...->",
]
DOTS = [text for text in DOTS if text != "a...,b...->"]


def check(subscripts: str, *operands: Any, tolerance: float = 1e-5) -> None:
    """The result has value, shape and dtype of NumPy's."""
    expected = np.einsum(subscripts, *operands)
    result = ops.einsum(subscripts, *map(Tensor, operands))
    assert result.dtype == expected.dtype and result.shape == expected.shape
    np.testing.assert_allclose(result.numpy(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("subscripts", ONE + TWO + MORE)
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_expressions(subscripts: str, dtype: Any) -> None:
    terms = subscripts.partition("->")[0].split(",")
    check(subscripts, *(operand(term, (), dtype, index) for index, term in enumerate(terms)))


@pytest.mark.parametrize("subscripts", DOTS)
@pytest.mark.parametrize("elided", [(), (2,), (2, 3)])
def test_ellipsis(subscripts: str, elided: tuple[int, ...]) -> None:
    terms = subscripts.partition("->")[0].split(",")
    check(subscripts, *(operand(term, elided, np.float32, index) for index, term in enumerate(terms)))


@pytest.mark.parametrize("elided", list(itertools.product([(3,), (1,), (2, 3), (2, 1)], [(3,), (1,), (1, 3), ()])))
def test_axes_of_an_ellipsis_broadcast(elided: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    a, b = (operand(term, sizes, np.float32, 1) for term, sizes in zip(("...ij", "...jk"), elided, strict=True))
    check("...ij,...jk->...ik", a, b)
    check("...ij,...jk->i...", a, b)


def test_axes_of_a_letter_broadcast() -> None:
    a, b = operand("ij", (), np.float32, 1), operand("jk", (), np.float32, 2)
    check("ij,jk->ik", a[:, :1], b)
    check("ij,jk->ijk", a, b[:1])
    check("ij,ij->ij", a, a[:1])


@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
def test_operands_without_elements(shape: tuple[int, int]) -> None:
    empty, other = np.zeros(shape, np.float32), np.ones((shape[1], 4), np.float32)
    check("ij,jk->ik", empty, other)
    check("ij->i", empty)
    check("ij,jk->", empty, other)


def test_dtypes_promote() -> None:
    a = np.arange(6, dtype=np.int8).reshape(2, 3)
    check("ij,jk", a, np.arange(12, dtype=np.int32).reshape(3, 4))
    check("ij->i", a * 20)  # int8 wraps around, as NumPy's
    check("ij,kj->ik", *(np.linspace(-1, 1, 6).reshape(2, 3).astype(np.float16) for _ in range(2)), tolerance=1e-3)


def test_views_stay_views() -> None:
    x = Tensor(np.arange(9, dtype=np.float32).reshape(3, 3))
    assert ops.einsum("ij->ji", x).is_view and ops.einsum("ii->i", x).buffer is x.buffer
    result = ops.einsum("ij->ij", x)
    result[0] = 5.0
    assert x.numpy()[0, 0] == 0


def test_strided_operands() -> None:
    x = np.random.default_rng(3).standard_normal((4, 6, 5)).astype(np.float32)
    for view in (x.T, x[::2, 1:4], np.broadcast_to(x[:, :1], x.shape)):
        tensor = Tensor(x)
        seen = (tensor.T, tensor[::2, 1:4], tensor[:, :1].broadcast_to(x.shape))
        (same,) = (other for other in seen if other.shape == view.shape and np.array_equal(other.numpy(), view))
        result = ops.einsum("abc,abd->cd", same, same).numpy()
        np.testing.assert_allclose(result, np.einsum("abc,abd->cd", view, view), rtol=1e-5, atol=1e-5)


def test_rejections() -> None:
    x, y = np.ones((2, 3), np.float32), np.ones((4, 5), np.float32)
    for text, call in {
        "einsum: subscripts must be a string as in einsum('ij,jk->ik', a, b), got 5": lambda: ops.einsum(5, x),  # type: ignore[arg-type]
        "einsum: subscripts must have a term for each of 1 operands, got 'ij,jk'": lambda: ops.einsum("ij,jk", x),
        "einsum: subscripts must have a term for each of 0 operands, got 'ij'": lambda: ops.einsum("ij"),
        "einsum: subscripts must name each axis of an operand, got 'i' for 2 axes in 'i->i'": lambda: ops.einsum(
            "i->i", x
        ),
        "einsum: subscripts must name each axis of an operand, got 'ijk' for 2 axes in 'ijk'": lambda: ops.einsum(
            "ijk", x
        ),
        "einsum: subscripts must be letters, ',', '...' and '->', got 'i1' in 'i1'": lambda: ops.einsum("i1", x),
        "einsum: subscripts must have each letter after '->' once, and before it, got 'ij->ii'": (
            lambda: ops.einsum("ij->ii", x)
        ),
        "einsum: subscripts must have each letter after '->' once, and before it, got 'ij->k'": (
            lambda: ops.einsum("ij->k", x)
        ),
        "einsum: subscripts must have '...' after '->', too, got '...j->j'": lambda: ops.einsum("...j->j", x),
        "einsum: subscripts must name axes of one size by 'i', got [2, 3]": lambda: ops.einsum("ii", x),
        "einsum: operands must have axes of one size, or 1, for 'j' of 'ij,jk', got 3 and 4": (
            lambda: ops.einsum("ij,jk", x, y)
        ),
        "einsum: operands must have axes of one size, or 1, for '...' of '...,...', got 2 and 4": (
            lambda: ops.einsum("...,...", x, y)
        ),
        "einsum: subscripts must lead to at most 8 axes at a time, got 10": (
            lambda: ops.einsum("abcde,fghij->abcdefghij", *(np.ones((1,) * 5, np.float32) for _ in range(2)))
        ),
    }.items():
        with raises(InvalidArgument, text):
            call()
