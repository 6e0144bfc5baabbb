"""Grammars of answers: JSON, JSON schemas, regular expressions and Lark, by the package ``llguidance``.

Needs the package ``llguidance``: ``pip install dmlgpu[grammar]``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import llguidance
import numpy as np
from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask
from numpy.typing import NDArray

from dmlgpu.common.errors import InvalidArgument, abridged

if TYPE_CHECKING:
    from tokenizers import Tokenizer

FORBIDDEN = np.float32(-1e30)
"""Added to logits of tokens that a grammar forbids. The device's numbers are finite."""

_MAX_SCHEMA = 1 << 20
_WHITE_SPACE = r"( |\n {0,8})?"


@dataclass(frozen=True)
class Grammar:
    """What the text of an answer must be. Create one by a function of this class.

        grammar = Grammar.json_schema({"type": "object", "properties": {"name": {"type": "string"}}})
        text = "".join(generator.chat("Name a river.", grammar=grammar))

    Attributes:
        source: The grammar, in llguidance's form.
    """

    source: str

    @classmethod
    def json(cls) -> Grammar:
        """Return the grammar of a JSON object."""
        return cls.json_schema({"type": "object"})

    @classmethod
    def json_schema(cls, schema: Mapping[str, Any] | str) -> Grammar:
        """Return the grammar of JSON of a schema.

        Args:
            schema: JSON Schema, as an object or as text.

        Returns:
            The grammar.

        Raises:
            InvalidArgument: If it is not a schema, or has an unsupported keyword.
        """
        text = schema if isinstance(schema, str) else json.dumps(schema)
        if len(text) > _MAX_SCHEMA:
            raise InvalidArgument(f"grammar: a JSON schema must have at most {_MAX_SCHEMA} characters, got {len(text)}")
        return cls._of(_from_schema, text, "JSON schema")

    @classmethod
    def regex(cls, pattern: str) -> Grammar:
        """Return the grammar of strings that a regular expression matches as a whole.

        Args:
            pattern: Regular expression, in the syntax of Rust's ``regex``.

        Returns:
            The grammar.

        Raises:
            InvalidArgument: If it is malformed.
        """
        return cls._of(llguidance.LLMatcher.grammar_from_regex, pattern, "regular expression")

    @classmethod
    def lark(cls, text: str) -> Grammar:
        """Return a context-free grammar.

        Args:
            text: Grammar in Lark's syntax, as llguidance documents it.

        Returns:
            The grammar.

        Raises:
            InvalidArgument: If it is malformed.
        """
        return cls._of(llguidance.LLMatcher.grammar_from_lark, text, "Lark grammar")

    @classmethod
    def _of(cls, convert: Any, text: str, kind: str) -> Grammar:
        try:
            source: str = convert(text)
            problem = llguidance.LLMatcher.validate_grammar(source)
        except ValueError as error:
            problem = str(error)
        if problem:
            reason = abridged(" ".join(problem.split()))
            raise InvalidArgument(f"grammar: the {kind} is malformed or not supported: {reason}")
        return cls(source)


def _from_schema(text: str) -> str:
    """Return a grammar with little white space, as printers of JSON write it: small models go on with it forever."""
    return llguidance.LLMatcher.grammar_from_json_schema(text, overrides={"whitespace_pattern": _WHITE_SPACE})


class Matcher:
    """The tokens that a grammar allows after those of an answer.

    Args:
        tokenizer: Result of ``matched_tokenizer``.
        grammar: The grammar.
        vocabulary: Number of logits.

    Raises:
        InvalidArgument: If the grammar is malformed.
    """

    def __init__(self, tokenizer: llguidance.LLTokenizer, grammar: Grammar, vocabulary: int):
        self._matcher = llguidance.LLMatcher(tokenizer, grammar.source, log_level=0)
        self._check()
        self._vocabulary = vocabulary
        self._bits = allocate_token_bitmask(1, max(vocabulary, tokenizer.vocab_size))

    def bias(self) -> NDArray[np.float32]:
        """Return what is added to logits {vocabulary}: 0 for tokens that may follow."""
        if self._matcher.is_stopped():
            return np.zeros(self._vocabulary, np.float32)  # the text has ended: tokens do not count
        fill_next_token_bitmask(self._matcher, self._bits)
        self._check()
        allowed = np.unpackbits(self._bits.view(np.uint8), bitorder="little")[: self._vocabulary]
        bias: NDArray[np.float32] = np.where(allowed, np.float32(0), FORBIDDEN)
        return bias

    def add(self, token: int) -> bool:
        """Add a token; return whether the text ends with it, because nothing may follow."""
        if not self._matcher.is_stopped():
            self._matcher.consume_token(token)
            self._check()
        return bool(self._matcher.is_stopped())

    def _check(self) -> None:
        if self._matcher.is_error():
            raise InvalidArgument(f"grammar: {abridged(self._matcher.get_error())}")


def matched_tokenizer(tokenizer: Tokenizer, vocabulary: int, ends: Sequence[int]) -> llguidance.LLTokenizer:
    """Return a tokenizer for matchers, which takes about a second for a large vocabulary.

    Args:
        tokenizer: Tokenizer of the model.
        vocabulary: Number of logits.
        ends: Tokens that end an answer.
    """
    size = max(vocabulary, tokenizer.get_vocab_size(with_added_tokens=True))
    return llguidance.LLTokenizer(tokenizer.to_str(), n_vocab=size, eos_token=list(ends) or None)
