"""The library: each function that a kernel uses, directly or not, is in its text once."""

from __future__ import annotations

import re

import pytest

from dmlgpu.compiler.wgsl import library, templates
from dmlgpu.compiler.wgsl.library import declarations, mentioned, text_of, uses, with_needs


def declared(text: str) -> list[str]:
    return re.findall(r"^(?:fn|const|struct|alias) (\w+)", text, re.MULTILINE)


def test_a_declaration_is_one_whole_declaration():
    assert len(declarations()) > 100
    for name, text in declarations().items():
        code = re.sub(r" *//[^\n]*", "", text)
        assert code.rstrip().endswith(("}", ";")), name
        assert declared(text) == [name]


def test_every_declaration_of_the_files_is_known():
    """Templates note uses by the names that files declare; sources have the declarations."""
    assert templates.library() == declarations().keys()


def test_uses_are_direct_and_without_comments():
    assert {"wide_product"} <= uses("multiply_words")
    for name in declarations():
        assert name not in uses(name)
        assert all(re.search(rf"\b{other}\b", declarations()[name]) for other in uses(name))
    assert any("for" in uses(name) for name in declarations())


def test_callees_of_callees_are_needed():
    needed = with_needs({"multiply_words", "negate_words", "workgroup"})
    assert {"multiply_words", "negate_words", "wide_product", "workgroup"} <= needed
    assert needed == {"workgroup"}.union(*(with_needs({name}) for name in ("multiply_words", "negate_words")))
    assert declared(text_of(needed)) == sorted(needed & declarations().keys())


def test_nothing_is_written_without_uses():
    assert with_needs(()) == set()
    assert text_of({"for", "workgroup"}) == ""


@pytest.mark.parametrize(
    ("name", "instead", "needs"),
    [("divide_f32", "divide_f32_native", {"opaque"}), ("half_of_f32", "half_of_f32_by_f16", {"f16"})],
)
def test_replaced_functions_need_what_replaces_them(name: str, instead: str, needs: set[str]):
    assert with_needs({name}, {name: instead}) == {name} | with_needs(needs)
    text = text_of({name}, {name: instead})
    assert declared(text) == [name] and instead not in text
    assert text.partition("(")[2].rstrip() == declarations()[instead].partition("(")[2]


def test_hand_written_texts_mention_functions_outside_comments():
    text = "// negate_words is only mentioned\nfn main() { x.negate_words = multiply_words(a, b); }"
    assert mentioned(text) == {"multiply_words"}


def test_a_name_that_stands_twice_is_found(monkeypatch):
    monkeypatch.setattr(templates, "source", lambda file: "fn twice() -> u32 {\n    return 2u;\n}\n")
    library.declarations.cache_clear()
    try:
        with pytest.raises(AssertionError, match=r"^twice stands twice in shaders/lib$"):
            library.declarations()
    finally:
        library.declarations.cache_clear()
