"""The property of TextStream: the pieces of any tokens, cut from any prompt, are the tokenizer's own text."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from dmlgpu.frontends.generation.text import TextStream


def check_text(tokenizer: Any, tokens: Sequence[int], cut: int, stops: Sequence[str] = ()) -> list[str]:
    """Check the pieces of the tokens after a cut, of which those before are the prompt; return them.

    The pieces begin where the text of the prompt ends, or before a character that the prompt lacks bytes of. With stop
    strings, they are the text before the first one, and no token is taken after it.
    """
    prompt, answer = list(tokens[:cut]), tokens[cut:]
    stream, pieces, taken = TextStream(tokenizer, stops, prompt), [], list(prompt)
    for token in answer:
        pieces.append(stream.add(token))
        taken.append(token)
        if stream.stopped:
            break
    pieces.append(stream.finish())
    before, whole = tokenizer.decode(prompt), tokenizer.decode(taken)
    text = whole[len(os.path.commonprefix((before, whole))) :]  # noqa: RUF071 - of characters is meant
    places = [place for stop in stops if (place := text.find(stop)) >= 0]
    names = [tokenizer.id_to_token(token) for token in taken]
    assert stream.stopped == bool(places), (names, cut, stops, text, pieces)
    expected = text[: min(places)] if places else text
    assert "".join(pieces) == expected, (names, cut, stops, text, pieces)
    if not stops and whole.startswith(before):
        assert before + "".join(pieces) == whole
    return pieces


def check_random_texts(tokenizer: Any, rounds: int, seed: int = 0) -> None:
    """Check random tokens, among them invalid UTF-8, control tokens and ids that are no tokens, and random stops."""
    random = np.random.default_rng(seed)
    count = tokenizer.get_vocab_size(with_added_tokens=True) + 2
    names = [tokenizer.id_to_token(token) or "" for token in range(count)]
    # Bytes are most of a small vocabulary: draw other tokens as often, and bytes of one character in their order.
    groups = [[token for token, name in enumerate(names) if name.startswith("<0x") == is_byte] for is_byte in (0, 1)]
    llama = tokenizer.encode("\N{LLAMA}", add_special_tokens=False).ids
    for round_ in range(rounds):
        tokens: list[int] = []
        while len(tokens) < random.integers(1, 14):
            group = groups[int(random.integers(2))] or groups[0]
            tokens += llama if random.random() < 0.2 else [int(random.choice(group))]
        cut = 0 if round_ % 3 == 0 else int(random.integers(0, len(tokens) + 1))
        check_text(tokenizer, tokens, cut)
        text = tokenizer.decode(tokens[cut:])
        place = int(random.integers(0, len(text))) if text else 0
        check_text(tokenizer, tokens, cut, [text[place : place + int(random.integers(1, 4))] or "a"])
