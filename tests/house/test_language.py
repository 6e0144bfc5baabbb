"""Pages, docstrings, help and messages use the words of the field; docstrings have all sections, and titles differ."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from lint_language import files, findings, paraphrases, strings_of

import dmlgpu
from dmlgpu import Device, Graph, Tensor, onnx, ops

ROOT = Path(__file__).parents[2]


def test_files_use_the_words_of_the_field() -> None:
    assert len(files()) > 400
    assert [line for path in files() for line in findings(path)] == []


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("What holds for every device", "What holds for"),
        ("with nothing on the processor in silence", "in silence"),
        ("drivers do not\n    bear `fork`", "do not bear"),
        ("a patch mends", "mends"),
        ("Normalised rows", "Normalised"),
        ("colours of neighbouring pixels", "colours"),
        ("in the centre", "centre"),
        ("labelled axes", "labelled"),
        ("a licence", "licence"),
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
