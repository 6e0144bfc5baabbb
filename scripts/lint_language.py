"""Report paraphrases of the field's words in pages, docstrings, help and messages.

python scripts/lint_language.py [FILE]...    the given files, or all that people read
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

IZE = (
    r"(?:author|character|custom|emphas|final|general|initial|linear|local|maxim|minim|normal|optim|organ|parallel|quant"
    r"|random|real|recogn|regular|serial|special|standard|summar|symbol|synchron|token|util|vector|visual)"
    r"is(?:e[sdr]?|ing|ations?)"
)
"""Verbs that Americans spell with a z."""

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
    # British spelling
    r"(?:behavi|col|fav|hon|lab|neighb)our(?:s|ed|ing|able|al|ite)?": "-or",
    r"(?:cent|fib|lit|met)res?": "-er",
    IZE: "-ize",
    r"(?:label|model)l(?:ed|ing)": "-led, -ling with one l",
    r"judgements?|grey|analyse[sd]?|catalogues?|licences?|artefacts?|whilst|amongst": "American spelling",
}
"""Paraphrases, as regular expressions of whole words, and what to write instead. The list grows."""

ALLOWED = {
    r"truth values?": ("the truth value of a tensor", "has no truth value before"),  # Python's and NumPy's own words
    r"processors?": ("processor cores", "multiprocessor", "- processor: ", "prompt-processor"),
    r"halves": ("`halves`", "-halves-", "--suite halves", "### halves"),  # a suite of `dmlgpu test`
    r"beside": ("(2 * beside)",),  # a shader's source
    IZE: ("| layer normalisation 1024x1024 |",),  # the name of a stored result
}
"""Contexts in which a phrase is meant as it is written."""

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
    """Return a message for each paraphrase in a file."""
    name = path.relative_to(ROOT).as_posix()
    return [
        f"{name}:{line + offset}: {phrase!r}; write: {replacement}"
        for line, text in strings_of(path)
        for offset, phrase, replacement in paraphrases(text)
    ]


PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md")
"""Pages outside of docs/."""

FOLDERS = ("dmlgpu", "scripts", "benchmarks", "tests")
"""Folders of modules."""

SAMPLES = ("scripts/lint_language.py", "tests/house/test_language.py", "tests/house/test_names.py")
"""Modules that contain phrases and names as samples."""


def files() -> list[Path]:
    """Return the pages and modules that people read."""
    pages = [*(ROOT / page for page in PAGES), *sorted((ROOT / "docs").rglob("*.md"))]
    modules = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    return [*pages, *(path for path in modules if path.relative_to(ROOT).as_posix() not in SAMPLES)]


def main() -> int:
    """Print the paraphrases in the files that the command line names and that are read; all if it names none."""
    read = files()
    named = [Path(name).resolve() for name in sys.argv[1:]]
    lines = [line for path in (named or read) if not named or path in read for line in findings(path)]
    print("\n".join(lines), end="\n" if lines else "")
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main())
