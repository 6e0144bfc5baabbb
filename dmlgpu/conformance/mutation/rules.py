"""Mutation rules: typical faults of authors and compilers, each of which changes one place of a shader file.

A rule is a pattern and what takes its place. Every match outside of comments and template lines is a mutant; its name,
``indexing/gather_nd1:12:15:false_for_true``, says file, line, column and rule, and is enough to make it again.
"""

from __future__ import annotations

import functools
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dmlgpu.common.errors import InvalidArgument
from dmlgpu.compiler.wgsl import templates
from dmlgpu.conformance.mutation.formulas import FORMULAS


@dataclass(frozen=True)
class MutationRule:
    """A kind of fault.

    Attributes:
        name: as in the names of mutants.
        pattern: what it changes.
        replacement: what takes its place, with ``\\1`` for groups of the pattern and ``RESULT`` for the type that the
            function returns.
    """

    name: str
    pattern: re.Pattern[str]
    replacement: str


def _rule(name: str, pattern: str, replacement: str) -> MutationRule:
    return MutationRule(name, re.compile(pattern), replacement)


_VALUE = r"\w+(?:\.\w+)*(?:\[\w+\])?"

SLIPS = (
    _rule("plus_for_minus", r" - ", " + "),
    _rule("minus_for_plus", r" \+ ", " - "),
    _rule("plus_for_times", r" \* ", " + "),
    _rule("times_for_divide", r" / ", " * "),
    _rule("divide_for_remainder", r" % ", " / "),
    _rule("remainder_for_divide_by_size", r"\{\{ div\(", "{{ mod("),
    _rule("divide_for_remainder_by_size", r"\{\{ mod\(", "{{ div("),
    _rule("less_equal_for_less", r" < ", " <= "),
    _rule("less_for_less_equal", r" <= ", " < "),
    _rule("greater_equal_for_greater", r" > ", " >= "),
    _rule("greater_for_greater_equal", r" >= ", " > "),
    _rule("unequal_for_equal", r" == ", " != "),
    _rule("equal_for_unequal", r" != ", " == "),
    _rule("or_for_and", r" && ", " || "),
    _rule("and_for_or", r" \|\| ", " && "),
    _rule("bits_or_for_and", r" & ", " | "),
    _rule("bits_and_for_or", r" \| ", " & "),
    _rule("right_for_left_shift", r" << ", " >> "),
    _rule("left_for_right_shift", r" >> ", " << "),
    _rule("swapped_difference", rf"(?<![\w.)\]]) ?\b({_VALUE}) - ({_VALUE})\b(?![\w(.\[])", r" \2 - \1"),
    _rule("swapped_quotient", rf"(?<![\w.)\]]) ?\b({_VALUE}) / ({_VALUE})\b(?![\w(.\[])", r" \2 / \1"),
    _rule("swapped_choice", rf"\bselect\(({_VALUE}), ({_VALUE}), ", r"select(\2, \1, "),
    _rule("max_for_min", r"\bmin\(", "max("),
    _rule("min_for_max", r"\bmax\(", "min("),
    _rule("negated_condition", r"\bif \((.+)\) \{", r"if (!(\1)) {"),
    _rule("dropped_tail", r"; (\w+) < ([^;]+);", r"; \1 + 1u < \2;"),
    _rule("late_start", r"\bvar (\w+) = 0u; \1 <", r"var \1 = 1u; \1 <"),
    _rule("missing_barrier", r"\bworkgroupBarrier\(\);", ""),
    _rule("unseen_nan", r"(?<!fn )\b(?:is_nan_f32|f64_is_nan)\([^()]*\)", "false"),
    _rule("wrong_stride_or_padding", r"\{\{ ([\w.]+(?:\[\w+\])?) \}\}u", r"({{ \1 }}u + 1u)"),
    _rule("wrong_divisor", r"\{\{ (div|mod)\((.+), ([\w.]+(?:\[\w+\])?)\) \}\}", r"{{ \1(\2, \3 + 1) }}"),
    _rule("one_for_zero", r"\b0u\b", "1u"),
    _rule("two_for_one", r"\b1u\b", "2u"),
    _rule("one_for_zero_float", r"(?<![\w.])0\.0\b", "1.0"),
    _rule("two_for_one_float", r"(?<![\w.])1\.0\b", "2.0"),
    _rule("quarter_for_half", r"(?<![\w.])0\.5\b", "0.25"),
    _rule("wrong_coefficient", r"(?<![\w.])(\d+\.\d+(?:e[+-]?\d+)?f)\b", r"(\1 * 1.001f)"),
    _rule("true_for_false", r"\breturn false;", "return true;"),
    _rule("false_for_true", r"\breturn true;", "return false;"),
    _rule("minimum_for_maximum", r"\.maximum\(", ".minimum("),
    _rule("maximum_for_minimum", r"\.minimum\(", ".maximum("),
    _rule("or_for_and_of_values", r"\.bits_and\(", ".bits_or("),
    _rule("xor_for_or_of_values", r"\.bits_or\(", ".bits_xor("),
    _rule("and_for_xor_of_values", r"\.bits_xor\(", ".bits_and("),
    _rule("swapped_operands", r"\b([a-z]\w*)\.(\w+)\(([a-z]\w*)\)", r"\3.\2(\1)"),
    _rule("swapped_choice_of_values", r"\.select\((\w+), (\w+)\)", r".select(\2, \1)"),
    _rule("missing_negation", r"\.negated\(\)", ""),
    _rule("missing_absolute", r"\.absolute\(\)", ""),
    _rule("zero_result", r"\breturn (?!true|false)[^;]+;", "return RESULT();"),
    _rule("missing_update", r"^(\s*)[\w.\[\]]+ [+*|&^-]= .*;$", r"\1"),
)
"""Rules that replace one sign, word or number by another, anywhere. A match that makes invalid WGSL is no mutant."""

NEARLY_RIGHT = tuple(_rule(*formula) for formula in FORMULAS)
"""One formula for another, where it stands (see ``formulas.py``)."""

RULES = (*SLIPS, *NEARLY_RIGHT)

_BY_NAME = {rule.name: rule for rule in RULES}


@dataclass(frozen=True)
class Mutant:
    """One changed place of a shader file.

    Attributes:
        file: Path below ``shaders/``, without suffix.
        line, column: Position of the match, from 1.
        rule: What was done there.
    """

    file: str
    line: int
    column: int
    rule: MutationRule

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}:{self.rule.name}"

    @property
    def _match(self) -> re.Match[str]:
        match = self.rule.pattern.match(_lines(self.file)[self.line - 1], self.column - 1)
        if match is None:
            raise InvalidArgument(f"{self}: nothing there to change")
        return match

    @property
    def before(self) -> str:
        """The original line."""
        return self._match.string.strip()

    @property
    def after(self) -> str:
        """The changed line."""
        return self._changed.strip()

    @property
    def text(self) -> str:
        """The changed file."""
        lines = _lines(self.file)
        return "\n".join([*lines[: self.line - 1], self._changed, *lines[self.line :]])

    @property
    def _changed(self) -> str:
        match = self._match
        replacement = match.expand(self.rule.replacement).replace("RESULT", _returned(_lines(self.file)[: self.line]))
        return match.string[: match.start()] + replacement + match.string[match.end() :]


@functools.cache  # bounded by the files
def _lines(file: str) -> Sequence[str]:
    return templates.original(file).split("\n")


def _returned(lines: Sequence[str]) -> str:
    """Return the result type of the last function that begins in the lines."""
    types = (re.search(r"-> (.+) \{", line) for line in reversed(lines))
    return next((data_type[1] for data_type in types if data_type), "")


def mutant_by_name(name: str) -> Mutant:
    """Return the mutant of a name.

    Raises:
        InvalidArgument: If the name is none, or the file no longer has such a place.
    """
    try:
        file, line, column, rule = name.split(":")
        mutant = Mutant(file, int(line), int(column), _BY_NAME[rule])
        mutant.text  # noqa: B018 - raises where there is nothing to change
    except (ValueError, KeyError, IndexError, FileNotFoundError) as error:
        raise InvalidArgument(f"{name!r} names no mutant") from error
    return mutant


def mutants_of(file: str, rules: Sequence[MutationRule] = RULES) -> Iterator[Mutant]:
    """Yield all mutants of a shader file by these rules, in the order of the text."""
    for line_number, line in enumerate(_lines(file), start=1):
        code = line.split("//")[0]
        if code.lstrip().startswith(("# ", "{%")):
            continue
        for rule in rules:
            for match in rule.pattern.finditer(line, 0, len(code)):
                mutant = Mutant(file, line_number, match.start() + 1, rule)
                if mutant.before != mutant.after:
                    yield mutant


def sample(file: str, count: int) -> Sequence[Mutant]:
    """Return at most ``count`` slips of a file: the same on every call, and of as many rules as possible."""
    mutants = list(mutants_of(file, SLIPS))
    rng = np.random.default_rng(zlib.crc32(file.encode()))
    rng.shuffle(mutants)
    turn: dict[str, int] = {}
    ranked: list[tuple[int, int, Mutant]] = []
    for mutant in mutants:
        turn[mutant.rule.name] = turn.get(mutant.rule.name, -1) + 1
        ranked.append((turn[mutant.rule.name], len(ranked), mutant))
    return [mutant for *_, mutant in sorted(ranked, key=lambda entry: entry[:2])[:count]]


def shader_files() -> tuple[str, ...]:
    """Return all shader files."""
    return tuple(file for folder in templates.folders() for file in templates.files(folder))
