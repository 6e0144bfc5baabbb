"""Names in kernels: namespaces, array types, and identifiers of the library and of WGSL that a text uses."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

import pytest

from dmlgpu.compiler.wgsl import names, templates


def rendered(template: str, own: names.Names, **values: Any) -> str:
    with names.active(own):
        return templates.environment().from_string(template).render(values)


def within(file: str, namespace: str, outer: Collection[str] = (), **values: Any) -> str:
    """Return the text of a shader file in a namespace, without the line with its name."""
    own = names.Names()
    with names.active(own), own.within(namespace, outer):
        return templates.render(file, **values).partition("\n")[2]


def test_names_outside_of_namespaces_stay():
    own = names.Names()
    assert (own.scoped("element"), own.resolved("element")) == ("element", "element")


def test_namespaces_replace_each_other_and_end():
    own = names.Names()
    with own.within("a_"):
        assert own.resolved("element") == "a_element"
        with own.within("b_"):
            assert own.resolved("element") == "b_element"
        assert own.resolved("element") == "a_element"
    assert own.resolved("element") == "element"


def test_a_namespace_ends_after_an_exception():
    own = names.Names()
    with pytest.raises(KeyError), own.within("a_", ("output_t",)):
        raise KeyError
    assert own.resolved("output_t") == "output_t"
    with own.within("b_"):
        assert own.resolved("output_t") == "b_output_t"


def test_outer_names_are_in_no_namespace():
    own = names.Names()
    with own.within("a_", ("output_at",)):
        assert (own.resolved("output_at"), own.resolved("output_t")) == ("output_at", "a_output_t")


def test_renamed_names_are_in_the_namespace():
    own = names.Names()
    with own.within("a_"), own.renamed({"input_load": "image_load"}):
        assert (own.resolved("input_load"), own.resolved("input_t")) == ("a_image_load", "a_input_t")
    assert own.resolved("input_load") == "input_load"


def test_a_name_of_a_type_stands_for_it():
    """No alias of an array is declared (see ``Names.resolved``)."""
    own = names.Names()
    assert own.name_type("a_output_at", "array<u32, 2>") == ""
    assert own.resolved("output_at") == "output_at"
    with own.within("a_"):
        assert own.resolved("output_at") == "array<u32, 2>"
    assert own.type_of("a_output_at") == "array<u32, 2>" and own.type_of("output_at") == "output_at"


def test_kernels_have_their_own_names():
    own, other = names.Names(), names.Names()
    with names.active(own):
        names.use("erf_f32")
        with names.active(other):
            names.use("exp_f32")
        names.use("for")
    assert (own.used, other.used) == ({"erf_f32", "for"}, {"exp_f32"})
    names.use("tanh_f32")  # outside of a kernel
    assert own.used == {"erf_f32", "for"}


# ---- identifiers of templates


def test_declarations_of_a_file_are_put_into_the_namespace():
    text = within("access/types", "a_", name="a_input", rank=2, scalar="f32", unit="vec4<f32>")
    assert text == "alias a_input_s = f32;\nalias a_input_t = vec4<f32>;\n"


def test_accessors_and_aliases_are_put_into_the_namespace():
    own = names.Names()
    with own.within("v_"):
        own.name_type("v_output_at", "array<u32, 3>")
        text = rendered("fn element(at: output_at) -> output_t { return input_load(at) + at.input_load; }", own)
    assert text == "fn element(at: array<u32, 3>) -> v_output_t { return v_input_load(at) + at.input_load; }"


@pytest.mark.parametrize(
    "text",
    [
        "let x = value.output_load;",  # a member
        "let reload = loads + t_unit2;",
        "// the comment names output_load and erf_f32",
        "let x = 1u; let y = 0x10u;",
    ],
)
def test_other_text_is_unchanged(text: str):
    own = names.Names()
    with own.within("a_"):
        assert rendered(text, own) == text
    assert own.used == set()


def test_functions_of_the_library_are_noted_and_never_renamed():
    own = names.Names()
    with own.within("a_"):
        assert rendered("let x = erf_f32(1.0); // exp_f32", own) == "let x = erf_f32(1.0); // exp_f32"
    assert own.used == {"erf_f32"}


def test_strings_of_expressions_note_functions():
    own = names.Names()
    template = '{{ "erf_f32(%s)" % name }}'
    assert rendered(template, own, name="x") == "erf_f32(x)"
    assert own.used == {"erf_f32"}


@pytest.mark.parametrize(
    ("text", "noted"),
    [
        ("for (var i = 0u; i < 4u; i++) {}", {"for"}),
        ("loop { while (true) {} }", {"loop", "while"}),
        ("var<workgroup> parts: u32; workgroupBarrier();", {"workgroup", "workgroupBarrier"}),
        ("storageBarrier();", {"storageBarrier"}),
        ("let x = f16(1.0);", {"f16"}),
        ("let x = vec4<f16>();", {"f16"}),
        ("@compute @workgroup_size(64) fn main() { if (x) { return; } }", set()),
    ],
)
def test_loops_barriers_and_extensions_are_noted(text: str, noted: set[str]):
    own = names.Names()
    assert rendered(text, own) == text
    assert own.used == noted


def test_text_of_a_branch_that_is_not_rendered_is_not_noted():
    own = names.Names()
    rendered("{% if loops %}for (;;) {}{% else %}workgroupBarrier();{% endif %}", own, loops=False)
    assert own.used == {"workgroupBarrier"}


def test_no_file_that_may_be_in_a_namespace_composes_names_of_accessors_around_an_expression() -> None:
    """Identifiers of a template are looked up as wholes: ``state{{ word }}_load`` would keep its plain name, and name
    nothing in a namespace."""
    composed = re.compile(r"\b[a-z]\w*\{\{[^{}]*\}\}_(?:load|at|s|t|unit|base|index|bits|words|doubles|of)\b")
    assert composed.search("    let counter = state{{ word }}_load(at);")
    folders = [folder for folder in templates.folders() if folder not in ("lib", "schedules")]
    files = [file for folder in folders for file in templates.files(folder)]
    assert len(files) > 200
    assert [file for file in files if composed.search(templates.original(file))] == []
