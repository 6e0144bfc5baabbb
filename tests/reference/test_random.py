"""RANDOM_GENERATOR against Random123's known answers and a Philox of any word width that is NumPy's at 64 bits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlgpu import descs, reference
from dmlgpu.catalog.enums import DataType, RandomGeneratorType
from dmlgpu.catalog.tensor_desc import TensorDesc

# Counter, key, block: the lines "philox4x32 10" of tests/kat_vectors and, from the fourth on, some of
# tests/old_kat_vectors in Random123 (D. E. Shaw Research).
KNOWN_ANSWERS = """
00000000 00000000 00000000 00000000  00000000 00000000  6627e8d5 e169c58d bc57ac4c 9b00dbd8
ffffffff ffffffff ffffffff ffffffff  ffffffff ffffffff  408f276d 41c83b0e a20bc7c6 6d5451fd
243f6a88 85a308d3 13198a2e 03707344  a4093822 299f31d0  d16cfe09 94fdcceb 5001e420 24126ea1
00000001 00000000 00000000 00000000  00000001 00000000  ac08141b dfc5ccbe 79c07a47 a7f66093
00000000 00000001 00000000 00000000  00000001 00000000  833ff8dc 225c963c 232b88b3 0b334b07
00000000 00000000 00000001 00000000  00000001 00000000  07071c12 428264b6 3909104b 6da2bda2
00000000 00000000 00000000 00000001  00000001 00000000  127bee41 1e047488 48842b20 0a393496
00000000 00000000 80000000 00000000  00000000 00000001  d9da65af eced57ba c34d2661 91fe931f
452821e6 38d01377 be5466cf 34e90c6c  00000000 ffffffff  72ce44b3 b44f9b78 49af0267 726813ac
""".strip().splitlines()

STATES = st.lists(st.integers(0, 0xFFFFFFFF) | st.sampled_from([0, 0xFFFFFFFF]), min_size=6, max_size=6)
FACTORS = {32: (0xD2511F53, 0xCD9E8D57), 64: (0xD2E7470EE14C6C93, 0xCA5A826395121157)}
KEY_STEPS = {32: (0x9E3779B9, 0xBB67AE85), 64: (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)}


def generate(state: list[int], *sizes: int) -> tuple[list[int], list[int]]:
    """Output, flat, and next state."""
    given_state = TensorDesc(DataType.UINT32, (1, 1, 1, 6))
    desc = descs.RandomGenerator(
        input_state_tensor=given_state,
        output_tensor=TensorDesc(DataType.UINT32, sizes),
        output_state_tensor=given_state,
        type=RandomGeneratorType.PHILOX_4X32_10,
    )
    output, after = reference.evaluate(desc, [np.array(state, np.uint32).reshape(given_state.sizes)])
    assert output.shape == sizes and after.shape == given_state.sizes and output.dtype == after.dtype == np.uint32
    return output.ravel().tolist(), after.ravel().tolist()


def number(words: list[int]) -> int:
    """A counter from its words."""
    return sum(word << 32 * place for place, word in enumerate(words))


def philox(counter: int, key: tuple[int, int], width: int) -> list[int]:
    """Philox 4xW-10 on one number per counter: Feistel pairs (L, R) are (words 1 and 0), (words 3 and 2)."""
    size = 1 << width
    (left0, right0), (left1, right1) = (divmod(half, size) for half in reversed(divmod(counter, size * size)))
    for turn in range(10):
        keys = [(word + turn * step) % size for word, step in zip(key, KEY_STEPS[width], strict=True)]
        (high0, low0), (high1, low1) = (
            divmod(factor * right, size) for factor, right in zip(FACTORS[width], (right0, right1), strict=True)
        )
        right0, left0, right1, left1 = high1 ^ left0 ^ keys[0], low1, high0 ^ left1 ^ keys[1], low0
    return [right0, left0, right1, left1]


@given(st.integers(0, 2**256 - 2), st.tuples(*[st.integers(0, 2**64 - 1)] * 2))
def test_the_philox_of_this_test_is_numpy_s_at_64_bits(counter: int, key: tuple[int, int]) -> None:
    """NumPy counts before each block."""
    numpy = np.random.Philox(counter=counter, key=key[0] + (key[1] << 64))
    assert numpy.random_raw(4).tolist() == philox(counter + 1, key, 64)


@pytest.mark.parametrize("line", KNOWN_ANSWERS)
def test_known_answers(line: str) -> None:
    words = [int(word, 16) for word in line.split()]
    assert generate(words[:6], 4)[0] == words[6:]


@given(STATES, st.integers(1, 40))
def test_blocks_follow_each_other(state: list[int], count: int) -> None:
    start, key = number(state[:4]), (state[4], state[5])
    blocks = [philox((start + block) % 2**128, key, 32) for block in range(-(-count // 4))]
    output, after = generate(state, 1, count)
    assert output == [word for block in blocks for word in block][:count]
    assert (number(after[:4]), after[4:]) == ((start + len(blocks)) % 2**128, state[4:])


@pytest.mark.parametrize(("count", "blocks"), [(1, 1), (4, 1), (5, 2), (10, 3), (10**7, 2_500_000)])
def test_the_counter_advances_by_whole_blocks(count: int, blocks: int) -> None:
    assert generate([0, 0, 0, 0, 7, 8], count)[1] == [blocks, 0, 0, 0, 7, 8]
    assert generate([0xFFFFFFFF] * 4 + [7, 8], count)[1] == [blocks - 1, 0, 0, 0, 7, 8]


def test_the_counter_of_the_page_s_example() -> None:
    """The page prints the start less the number of blocks; its text, and the algorithm, say that it increases."""
    start = 0x48656C6C_6F46726F_6D536561_74746C65
    words = [start >> 32 * place & 0xFFFFFFFF for place in range(4)]
    after = generate([*words, 0, 0], 3, 3, 20, 7219)[1]
    assert number(after[:4]) == 0x48656C6C_6F46726F_6D536561_7479615C


@given(STATES, st.integers(1, 5), st.integers(1, 20))
def test_a_stream_continues_from_its_state(state: list[int], blocks: int, count: int) -> None:
    first, after = generate(state, 4 * blocks)
    second, _ = generate(after, count)
    assert first + second == generate(state, 4 * blocks + count)[0]
