"""dmlgpu.random: the stream against known vectors of Philox, distributions against their definitions, and tracing."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dmlgpu
from dmlgpu import InvalidArgument, InvalidState, NotSupported, Tensor, ops
from dmlgpu.random import Generator, default_rng
from tests.unit.device_objects import raises


@pytest.fixture(autouse=True)
def on_numpy() -> Any:
    """Numbers are created on the adapter ``numpy``."""
    with dmlgpu.device("numpy"):
        yield


# ---- the stream ------------------------------------------------------------------------------------------------------

KNOWN = [
    # Counter and key as integers, and the block: from the file kat_vectors of Random123, philox4x32 with 10 rounds.
    (0, 0, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    (2**128 - 1, 2**64 - 1, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        0x0370734413198A2E85A308D3243F6A88,
        0x299F31D0A4093822,
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "block"), KNOWN)
def test_words_are_those_of_philox(counter: int, key: int, block: tuple[int, ...]) -> None:
    rng = default_rng(0)
    rng.state = counter, key
    assert tuple(rng.random_raw(4).tolist()) == block
    assert rng.state == ((counter + 1) % 2**128, key)


def test_the_seed_is_the_key() -> None:
    assert default_rng(2**64 - 1).state == (0, 2**64 - 1)
    assert tuple(default_rng(0).random_raw((2, 2)).numpy().reshape(-1)) == KNOWN[0][2]
    first, second = default_rng(), default_rng()
    assert first.state[0] == 0 and first.state != second.state


def test_draws_take_whole_blocks() -> None:
    rng = default_rng(3)
    words = np.concatenate([rng.random_raw(5).numpy(), rng.random_raw(3).numpy()])
    stream = default_rng(3).random_raw(12).numpy()
    assert rng.state == (3, 3)
    np.testing.assert_array_equal(words, np.concatenate([stream[:5], stream[8:11]]))


DRAWS: dict[str, Callable[[Generator], Any]] = {
    "random": lambda rng: rng.random((3, 5)),
    "uniform": lambda rng: rng.uniform(-1, 2, 7),
    "normal": lambda rng: rng.normal(1, 2, (2, 3)),
    "standard_normal": lambda rng: rng.standard_normal(5, "float16"),
    "integers": lambda rng: rng.integers(-5, 5, 9),
    "bernoulli": lambda rng: rng.bernoulli(0.3, 11),
    "permutation": lambda rng: rng.permutation(13),
    "choice": lambda rng: rng.choice(6, 8, p=[1, 2, 3, 0, 1, 1]),
    "random_raw": lambda rng: rng.random_raw(6),
}


@pytest.mark.parametrize("name", DRAWS)
def test_a_seed_gives_the_same_numbers_and_later_draws_others(name: str) -> None:
    first, second = default_rng(17), default_rng(17)
    draws = [DRAWS[name](rng).numpy() for rng in (first, second)]
    np.testing.assert_array_equal(*draws)
    assert first.state == second.state and first.state[0] > 0
    assert not np.array_equal(draws[0], DRAWS[name](first).numpy())
    assert not np.array_equal(draws[0], DRAWS[name](default_rng(18)).numpy())


def test_generators_are_pickled_with_their_place_in_the_stream() -> None:
    rng = default_rng(4)
    rng.random(9)
    copied = pickle.loads(pickle.dumps(rng))
    assert repr(copied) == repr(rng) == "Generator(Philox 4x32-10: key 4, counter 3)"
    np.testing.assert_array_equal(copied.random(5).numpy(), rng.random(5).numpy())


def test_threads_share_a_generator() -> None:
    rng, blocks = default_rng(8), []
    threads = [
        threading.Thread(target=lambda: blocks.extend(rng.random_raw(4, device="numpy").numpy()[None]))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stream = default_rng(8).random_raw(32).numpy().reshape(8, 4)
    assert sorted(map(tuple, blocks)) == sorted(map(tuple, stream))


# ---- distributions ---------------------------------------------------------------------------------------------------

COUNT = 40_000


def test_uniform_numbers() -> None:
    numbers = default_rng(1).random(COUNT).numpy()
    words = default_rng(1).random_raw(COUNT).numpy()
    np.testing.assert_array_equal(numbers, (words >> 8) * np.float32(2**-24))
    assert numbers.dtype == np.float32 and numbers.min() >= 0 and numbers.max() < 1
    counts = np.histogram(numbers, 20, (0, 1))[0]
    assert np.abs(counts - COUNT / 20).max() < 5 * np.sqrt(COUNT / 20)
    halves = default_rng(1).random(COUNT, "float16").numpy()
    np.testing.assert_array_equal(halves, ((words >> 21) * 2.0**-11).astype(np.float16))
    assert halves.dtype == np.float16 and halves.max() < 1


def test_uniform_numbers_between_bounds() -> None:
    numbers = default_rng(2).uniform(-3, 5, COUNT).numpy()
    np.testing.assert_allclose(numbers, default_rng(2).random(COUNT).numpy() * 8 - 3, rtol=1e-6, atol=1e-6)
    assert abs(numbers.mean() - 1) < 5 * 8 / np.sqrt(12 * COUNT)
    assert default_rng(2).uniform(np.zeros((3, 1)), [1, 2]).shape == (3, 2)


def test_normal_numbers() -> None:
    numbers = default_rng(3).standard_normal(COUNT).numpy().astype(np.float64)
    assert abs(numbers.mean()) < 5 / np.sqrt(COUNT)
    assert abs(numbers.var() - 1) < 5 * np.sqrt(2 / COUNT)
    assert abs((numbers**3).mean()) < 5 * np.sqrt(15 / COUNT)
    assert abs((numbers**4).mean() - 3) < 5 * np.sqrt(96 / COUNT)
    assert np.abs(numbers).max() < 6.77
    assert abs(np.corrcoef(numbers[: COUNT // 2], numbers[COUNT // 2 :])[0, 1]) < 5 / np.sqrt(COUNT / 2)
    words = default_rng(3).random_raw(8).numpy().astype(np.float64)
    radius, angle = np.sqrt(-2 * np.log((words[:2] + 0.5) / 2**32)), 2 * np.pi * np.floor(words[4:6] / 256) / 2**24
    expected = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])
    np.testing.assert_allclose(default_rng(3).standard_normal(4).numpy(), expected, rtol=1e-5, atol=1e-6)
    scaled = default_rng(3).normal([0, 10], 3, (2, 2)).numpy()
    np.testing.assert_allclose(scaled, expected.reshape(2, 2) * 3 + [0, 10], rtol=1e-5, atol=1e-5)
    assert default_rng(3).normal(size=3, dtype="float16").dtype == np.float16


def test_integers() -> None:
    numbers = default_rng(5).integers(-2, 4, COUNT)
    assert numbers.dtype == np.int64
    counts = np.unique(numbers.numpy(), return_counts=True)
    np.testing.assert_array_equal(counts[0], np.arange(-2, 4))
    assert np.abs(counts[1] - COUNT / 6).max() < 5 * np.sqrt(COUNT / 6)
    words = default_rng(5).random_raw(8).numpy().astype(object)
    expected = [int(low + (high << 32)) % 1000 + 7 for low, high in zip(words[:3], words[4:7], strict=True)]
    assert default_rng(5).integers(7, 1007, 3).tolist() == expected


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_integers_of_a_whole_dtype(dtype: str) -> None:
    info = np.iinfo(dtype)
    numbers = default_rng(6).integers(int(info.min), int(info.max), 2000, dtype, True).numpy()
    assert numbers.dtype == dtype
    middle = int(info.min) + 2 ** (info.bits - 1)
    assert 0.4 < (numbers >= middle).mean() < 0.6
    if info.bits == 8:
        assert numbers.min() == info.min and numbers.max() == info.max


def test_integers_of_edges() -> None:
    rng = default_rng(7)
    assert rng.integers(3, 4, 5).tolist() == [3] * 5
    assert set(rng.integers(1, size=20, endpoint=True).tolist()) == {0, 1}
    flags = rng.integers(2, size=100, dtype=bool)
    assert flags.dtype == bool and 20 < flags.numpy().sum() < 80
    assert rng.integers(-(2**63), -(2**63) + 2, 9).numpy().max() == -(2**63) + 1
    assert rng.integers(9).shape == () and rng.integers(9, size=(0, 3)).shape == (0, 3)
    assert rng.integers(9, size=(0, 3)).dtype == np.int64


def test_bernoulli() -> None:
    flags = default_rng(9).bernoulli(0.2, COUNT)
    assert flags.dtype == bool
    assert abs(flags.numpy().mean() - 0.2) < 5 * np.sqrt(0.16 / COUNT)
    by_element = default_rng(9).bernoulli(Tensor([[0.0], [1.0]]), (2, 50), "int32").numpy()
    assert by_element.tolist() == [[0] * 50, [1] * 50]


@pytest.mark.slow
def test_permutation_and_shuffle() -> None:
    order = default_rng(10).permutation(1000)
    assert order.dtype == np.int64 and sorted(order.tolist()) == list(range(1000))
    assert abs(np.corrcoef(order.numpy(), np.arange(1000))[0, 1]) < 0.15
    table = np.arange(24, dtype=np.float32).reshape(4, 6)
    rows = default_rng(11).permutation(Tensor(table))
    np.testing.assert_array_equal(np.sort(rows.numpy(), 0), table)
    columns = default_rng(11).permutation(table, 1)
    assert isinstance(columns, np.ndarray) and columns.shape == (4, 6)
    np.testing.assert_array_equal(columns, table[:, default_rng(11).permutation(6).numpy()])
    tensor, array = Tensor(table), table.copy()
    default_rng(12).shuffle(tensor)
    default_rng(12).shuffle(array)
    np.testing.assert_array_equal(tensor.numpy(), default_rng(12).permutation(table))
    np.testing.assert_array_equal(tensor.numpy(), array)
    firsts = [int(default_rng(seed).permutation(3)[0].item()) for seed in range(300)]
    assert np.bincount(firsts).min() > 60


def test_choice() -> None:
    rng = default_rng(13)
    assert set(rng.choice(4, 200).tolist()) == {0, 1, 2, 3}
    assert sorted(rng.choice(7, 7, replace=False).tolist()) == list(range(7))
    letters = np.array([10, 20, 30], np.int32)
    drawn = rng.choice(letters, COUNT, p=[0.5, 0.0, 1.5])
    assert isinstance(drawn, np.ndarray) and drawn.dtype == np.int32
    assert set(drawn.tolist()) == {10, 30}
    assert abs((drawn == 30).mean() - 0.75) < 5 * np.sqrt(0.1875 / COUNT)
    assert rng.choice(Tensor(np.ones((2, 5))), (3, 4), axis=1).shape == (2, 3, 4)
    assert isinstance(rng.choice(5), Tensor) and rng.choice(5).shape == ()
    assert rng.choice(5, (2, 3), p=np.ones(5)).shape == (2, 3)


@pytest.mark.parametrize("size", [None, 3, (), (0,), (2, 0), (1, 2, 3)])
def test_sizes(size: Any) -> None:
    rng, shape = default_rng(14), np.empty(() if size is None else size).shape
    draws = (rng.random(size), rng.uniform(size=size), rng.normal(size=size), rng.standard_normal(size))
    draws += (rng.integers(3, size=size), rng.bernoulli(size=size), rng.random_raw(size), rng.choice(3, size))
    assert [draw.shape for draw in draws] == [shape] * len(draws)


def test_devices() -> None:
    other = dmlgpu.Device("numpy")
    assert default_rng(0, device=other).random(2).device is other
    assert default_rng(0, device=other).permutation(2).device is other
    assert default_rng(0).random(2, device=other).device is other
    with dmlgpu.device(other):
        assert default_rng(0).normal(size=2).device is other


# ---- functions that are traced ---------------------------------------------------------------------------------------


def noisy(x: Any, rng: Generator) -> Any:
    """Draws of two generators and a tensor."""
    return (
        x
        + rng.normal(size=x.shape)
        + ops.dropout(x, 0.5, generator=rng) * rng.integers(1, 9, x.shape).astype("float32")
    )


def test_a_compiled_function_draws_as_the_function_does() -> None:
    x, eager_rng, traced_rng = Tensor(np.ones((3, 4), np.float32)), default_rng(15), default_rng(15)
    compiled = dmlgpu.compile(noisy)
    results = []
    for _ in range(3):
        results.append(compiled(x, traced_rng).numpy())
        np.testing.assert_allclose(results[-1], noisy(x, eager_rng).numpy(), rtol=1e-6, atol=1e-6)
        assert traced_rng.state == eager_rng.state
    assert not np.array_equal(results[0], results[1])


def test_a_generator_of_a_closure_may_be_replaced() -> None:
    rng = default_rng(1)

    @dmlgpu.compile
    def draw(x: Any) -> Any:
        return x * 0.0 + rng.random(3)

    x = Tensor(np.ones(3, np.float32))
    np.testing.assert_array_equal(draw(x).numpy(), default_rng(1).random(3).numpy())
    rng = default_rng(2)
    np.testing.assert_array_equal(draw(x).numpy(), default_rng(2).random(3).numpy())
    assert draw.cache_info().entries == 1


def test_a_generator_of_the_function_itself_starts_again() -> None:
    @dmlgpu.compile
    def draw(x: Any) -> Any:
        rng = default_rng(21)
        return x * 0.0 + rng.random(3) + 10 * rng.random(3)

    x, stream = Tensor(np.ones(3, np.float32)), default_rng(21)
    expected = stream.random(3).numpy() + 10 * stream.random(3).numpy()
    for _ in range(2):
        np.testing.assert_allclose(draw(x).numpy(), expected, rtol=1e-6)


def test_gradients_of_dropout() -> None:
    x = Tensor(np.ones((20, 30), np.float32))

    def total(x: Any, rng: Generator) -> Any:
        return ops.sum(ops.dropout(x, 0.25, generator=rng) * 3)

    mask = default_rng(5).bernoulli(0.75, x.shape).numpy()
    for gradient in (dmlgpu.grad(total), dmlgpu.compile(dmlgpu.grad(total))):
        np.testing.assert_allclose(gradient(x, default_rng(5)).numpy(), mask * 4.0, rtol=1e-6)


def test_values_that_would_be_frozen_are_rejected() -> None:
    x = Tensor(np.ones(3, np.float32))
    with raises(
        InvalidState,
        "default_rng: seed must be given while a function is traced, since a random one would be drawn once; "
        "or make the generator outside of the function",
    ):
        dmlgpu.compile(lambda x: x + default_rng().random(3))(x)
    array = np.ones(3, np.float32)
    with pytest.raises(InvalidState, match="dropout: random numbers must not be drawn for arrays while a function is"):
        dmlgpu.compile(lambda x: x + ops.dropout(array, generator=default_rng(0)))(x)
    with pytest.raises(InvalidState, match="must not read the elements of a Tensor"):
        dmlgpu.compile(lambda x: x + default_rng(0).choice(np.ones(9, np.float32), 3))(x)


# ---- refusals --------------------------------------------------------------------------------------------------------


def test_rejections() -> None:
    rng = default_rng(0)
    for text, call in {
        "default_rng: seed must be an integer between 0 and 18446744073709551615, got -1 of type int": lambda: (
            default_rng(-1)
        ),
        "default_rng: seed must be an integer between 0 and 18446744073709551615, got 1.5 of type float": (
            lambda: default_rng(1.5)  # type: ignore[arg-type]
        ),
        "random: size must be at least 0 each, got [-1]": lambda: rng.random(-1),
        "random: dtype must be a floating-point type, got 'int32'": lambda: rng.random(3, "int32"),
        "integers: low and high must enclose integers of INT64, got 3 and 3": lambda: rng.integers(3, 3),
        "integers: low and high must enclose integers of INT8, got 0 and 200": lambda: rng.integers(
            0, 200, dtype="int8"
        ),
        "integers: high must be an integer, got 2.5": lambda: rng.integers(0, 2.5),  # type: ignore[arg-type]
        "integers: dtype must be a type of integers, got FLOAT32": lambda: rng.integers(3, dtype="float32"),
        "uniform: size must be a shape to which the parameters broadcast, [2, 3], got 3": (
            lambda: rng.uniform(np.zeros((2, 1)), 1, 3)
        ),
        "normal: scale must be a number, a Tensor or an array, got 'x'": (
            lambda: rng.normal(0, "x")  # type: ignore[arg-type]
        ),
        "permutation: x must be at least 0, got -1": lambda: rng.permutation(-1),
        "permutation: axis must be absent for a scalar, got 0": lambda: rng.permutation(np.array(1.0)),
        "shuffle: x must be a Tensor or an array, got [1, 2] of type list": lambda: rng.shuffle([1, 2]),  # type: ignore[arg-type]
        "choice: a must have as many slices as are drawn without replacement, at least one, got 3 for 4": (
            lambda: rng.choice(3, 4, replace=False)
        ),
        "choice: replace must be True if p is given, got False": lambda: rng.choice(3, 2, False, [1, 1, 1]),
        "choice: p must have 3 elements, one per slice, got [1, 1]": lambda: rng.choice(3, 2, p=[1, 1]),
        "dropout: generator must be dmlgpu.random.default_rng(seed) or None, got 5": (
            lambda: ops.dropout(np.ones(3, np.float32), generator=5)  # type: ignore[arg-type]
        ),
        "dropout: p must be between 0 and 1, got 1.5": lambda: ops.dropout(np.ones(3, np.float32), 1.5),
    }.items():
        with raises(InvalidArgument, text):
            call()
    with pytest.raises(NotSupported, match="normal: dtype must not be float64, which adapters cannot compute"):
        rng.normal(size=2, dtype="float64")
    with raises(InvalidArgument, "Generator.state: state must be a counter and a key, got 5"):
        rng.state = 5  # type: ignore[assignment]
