"""Pages, docstrings, help and messages use the words of the field; docstrings have all sections, and titles differ."""

from __future__ import annotations

import ast
import inspect
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dmlgpu
from dmlgpu import Device, Graph, Tensor, onnx, ops

ROOT = Path(__file__).parents[2]

PHRASES = {
    # the glossary
    r"processors?": "CPU, CPU adapter, software rasterizer",
    r"truth values?": "boolean, bool tensor, mask",
    r"halves": "float16, half precision; ties, of rounding",
    r"numbers of (?:\d+|sixteen|thirty-two|sixty-four) bits": "float16, uint32 ...",
    r"(?:of|in|for|with) doubles|doubles (?:are|as|and|or|of)": "float64, double precision",
    r"(?<!data\s)type of the (?:numbers|elements)": "dtype",
    r"neighbours": "adjacent elements, other invocations of the workgroup",
    r"(?:those|whoever) (?:who|that) come at once": "workgroup, subgroup",
    r"dear (?:and|or|ones?|values?|steps?)": "expensive",
    r"lies? flat": "is contiguous, is packed",
    r"(?:as|how) (?:it|they|\w+s) lies? in memory": "layout",
    r"(?:is|are|was|were) found again": "cache hit",
    r"kept (?:pipelines?|programs?|graphs?|kernels?)": "cached",
    r"least used|used least(?: recently)?": "least recently used (LRU cache)",
    r"steps in time": "time steps",
    r"from step to step": "hidden state",
    r"in silence": "silently",
    r"(?:is|are|was|were|be|been|being) told": "raises, warns, is printed",
    r"(?:is|are) said": "is printed, is documented",
    r"with a sentence|in a sentence": "raises an exception",
    r"left out": "omitted, excluded",
    r"usual values?": "default",
    r"where nothing is given": "by default",
    r"compiled stretch(?:es)?|stretches of": "subgraph",
    r"what nothing reads": "dead code",
    r"how sure": "confidence interval",
    r"measured in turn|taken in turn": "interleaved",
    r"what (?:the|a) device can do": "roofline, ceiling of the device",
    r"is judged|are judged": "is compared with a tolerance",
    r"wrong by": "error, mismatch",
    r"(?:do|does) not bear|bears? fork": "is not fork-safe",
    r"mend(?:s|ed|ing)?": "fix",
    r"(?:is|are) had": "is supported",
    r"texts": "sources, strings, messages",
    # clauses that stand in for a noun
    r"what of|(?:of|for) what": "name the thing",
    r"what (?:is|are|was|were) (?:left|like|told|said|had|given|found|kept)": "name the thing",
    r"what (?:is|are|was|were) (?:wanted|asked|there|made|missing)": "name the thing",
    r"what (?:came|comes)": "result, name the thing",
    r"what (?:matches|holds for|stands (?:in|for|at)|stays|nobody|somebody|everybody)": "name the thing",
    r"whatever": "any, regardless of",
    r"(?:what )?(?:be)?comes? of": "result, effect",
    r"where (?:it|there) (?:is|are) (?:none|no|any|one)": "if there is none",
    r"where (?:one|nothing|nobody|somebody)": "if",
    r"where (?:it is|they are) (?:not|absent|present|given|too|empty|larger|smaller)": "if",
    # words of translated English
    r"nothing but": "only",
    r"ask(?:s|ed)? for|wanted": "requested, required",
    r"again and again": "repeatedly",
    r"anew|once more": "again; repacked, of layouts",
    r"beside": "next to, in addition to, with",
    r"behind": "after",
    r"in the making": "under construction, builder",
    r"(?:hand|hands|handed|goes) on": "pass on, continue",
    r"takes? care": "name the action",
    r"puts? together|looked at|in pieces": "composed, checked, split",
    r"any more": "no longer",
    r"add(?:s|ed|ing) up": "sum, total",
    r"giv(?:e|es|en|ing) back": "release, free, return",
    r"so many(?!(?: \w+){1,3} that)": "the number, the parameter's name",
    # persons
    r"(?:some|no|every)body|whoever": "name the subject: the caller, the user, the kernel",
    r"one's": "your, its",
    r"(?:as|if|that|what|which|when) one (?:wants|meets|has|gets|sees|calls|asks|edits|needs)": "you",
    # others of the pages' "before" column
    r"at hand": "available, installed",
    r"looks so": "looks like this",
    r"good for nothing": "name what it is unsuitable for",
    r"the house": "the architecture",
    r"kinder|kindly": "name the property",
    r"seen (?:as|otherwise)": "viewed as, reshaped",
    r"as they come": "in order",
    r"without end": "forever, unbounded",
    r"finds? (?:its|their) place": "is allocated",
}
"""Paraphrases, as regular expressions of whole words, and what to write instead. The list grows."""

ALLOWED = {
    r"truth values?": ("the truth value of a tensor", "has no truth value before"),  # Python's and NumPy's own words
    r"processors?": ("processor cores", "multiprocessor", "- processor: "),
    r"halves": ("`halves`", "-halves-", "--suite halves", "### halves"),  # a suite of `dmlgpu test`
    r"beside": ("(2 * beside)",),  # a shader's source
}
"""Contexts in which a phrase is meant as it is written."""

FOLDERS = (
    "dmlgpu",
    "scripts",
    "benchmarks",
    "tests/reference",
    "tests/unit/catalog",
    "tests/unit/common",
    "tests/unit/compiler",
    "tests/unit/reference",
)
"""Folders of modules; those of tests join when they obey."""

NUMBERED = list(PHRASES)
NAMED = "|".join(f"(?P<p{index}>{phrase})" for index, phrase in enumerate(PHRASES))
PATTERN = re.compile(rf"\b(?:{NAMED})\b".replace(" ", r"\s+"), re.IGNORECASE)
"""All phrases; the name of the matching group is the index of the phrase."""


def strings_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of each part for readers: a whole page, or a module's strings except keys."""
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        yield 1, source
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and not node.value.isidentifier():
            yield node.lineno, node.value


def paraphrases(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield line, phrase and replacement of each paraphrase."""
    for match in PATTERN.finditer(text):
        phrase = NUMBERED[int((match.lastgroup or "")[1:])]
        around = text[max(0, match.start() - 30) : match.end() + 30]
        if not any(context in " ".join(around.split()).lower() for context in ALLOWED.get(phrase, ())):
            yield text.count("\n", 0, match.start()), " ".join(match[0].split()), PHRASES[phrase]


def findings(path: Path) -> list[str]:
    name = path.relative_to(ROOT).as_posix()
    return [
        f"{name}:{line + offset}: {phrase!r}; write: {replacement}"
        for line, text in strings_of(path)
        for offset, phrase, replacement in paraphrases(text)
    ]


def files() -> list[Path]:
    pages = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md")]
    pages += sorted((ROOT / "docs").rglob("*.md"))
    modules = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    assert len(pages) > 30 and len(modules) > 300
    return pages + modules


def test_files_use_the_words_of_the_field() -> None:
    assert [line for path in files() for line in findings(path)] == []


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("What holds for every device", "What holds for"),
        ("with nothing on the processor in silence", "in silence"),
        ("drivers do not\n    bear `fork`", "do not bear"),
        ("a patch mends", "mends"),
        ("What matches nothing is told what is like it", "What matches"),
        ("Return a tensor in units of so many elements", "so many"),
        ("None where they are absent", "where they are absent"),
    ],
)
def test_paraphrases_are_recognized(text: str, phrase: str) -> None:
    assert phrase in [match for _, match, _ in paraphrases(text)]


def test_other_words_pass() -> None:
    assert (
        list(paraphrases("The truth value of a tensor of 2 elements is ambiguous; recommended, leftover, contexts"))
        == []
    )
    assert (
        list(paraphrases("so many samples that they are split; errors add up; besides; the folder where it is")) == []
    )


def test_keys_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "keys.py").write_text('"""Texts."""\nkey = "texts"\n', encoding="utf-8")
    assert list(strings_of(tmp_path / "keys.py")) == [(1, "Texts.")]


# ---- docstrings ------------------------------------------------------------------------------------------------------

PUBLIC = {
    **{
        f"{module.__name__}.{name}": getattr(module, name)
        for module in (ops, ops.linalg, ops.fft)
        for name in module.__all__
        if inspect.isfunction(getattr(module, name))
    },
    **{
        name: getattr(dmlgpu, name)
        for name in ("compile", "grad", "value_and_grad", "vmap", "cond", "scan", "set_float64", "evaluate")
    },
    "onnx.load": onnx.load,
}

CLASSES = {"Tensor": Tensor, "Device": Device, "Graph": Graph, "Session": onnx.Session}


def functions() -> dict[str, Any]:
    """Public functions and methods by name; a classmethod as its function."""
    methods = {
        f"{owner}.{name}": getattr(member, "__func__", member)
        for owner, cls in CLASSES.items()
        for name, member in inspect.getmembers_static(cls)
        if name[0] != "_" and inspect.isfunction(getattr(member, "__func__", member))
    }
    return PUBLIC | methods


def missing_sections(function: Any) -> list[str]:
    """Return the sections that a docstring lacks, and the parameters that Args does not name."""
    docstring = inspect.getdoc(function) or ""
    signature = inspect.signature(function)
    arguments = docstring.partition("Args:\n")[2].partition("\n\n")[0]
    names = [name for name in signature.parameters if name not in ("self", "cls")]
    missing = [
        f"Args: {name}" for name in names if not re.search(rf"(?m)^ +(?:[\w*]+, )*\**{name}(?:,.*)?:", arguments)
    ]
    is_action = signature.return_annotation in (None, "None") or docstring.partition("\n")[0].startswith("Return")
    if not is_action and "Returns:" not in docstring:
        missing.append("Returns")
    if re.search(r"\braise \w", inspect.getsource(inspect.unwrap(function))) and "Raises:" not in docstring:
        missing.append("Raises")
    return missing


def test_docstrings_of_public_functions_have_their_sections() -> None:
    missing = {name: missing_sections(function) for name, function in functions().items()}
    assert {name: sections for name, sections in missing.items() if sections} == {}


def test_missing_sections_are_recognized() -> None:
    def lacking(x: int, *rest: int) -> int:
        """Count things.

        Args:
            x: A number.
        """
        if x < 0:
            raise ValueError
        return x

    assert missing_sections(lacking) == ["Args: rest", "Returns", "Raises"]


# ---- titles ----------------------------------------------------------------------------------------------------------


def test_titles_of_pages_differ() -> None:
    headings = (
        re.search(r"(?m)^# (.+)$", path.read_text(encoding="utf-8")) for path in sorted((ROOT / "docs").rglob("*.md"))
    )
    titles = Counter(heading[1] for heading in headings if heading is not None)
    assert len(titles) > 25
    assert [title for title, count in titles.items() if count > 1] == []
