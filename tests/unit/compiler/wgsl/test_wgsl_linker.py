"""The linker: library functions are added once, and names of inlined bodies are distinct."""

from __future__ import annotations

import re

from dmlgpu.compiler.wgsl.linker import declared, expand_arrays, library, link, prefix

BODY = """\
alias output_s = f32;
const LIMIT = 3u;
var<workgroup> parts: array<f32, 4>;
// apply is named here, too
fn apply(a: a_s) -> output_s {
    let apply_twice = at.apply + LIMIT;
    return helper(parts[0], apply_twice);
}
fn helper(x: f32, y: f32) -> f32 { return x; }
"""


def functions(text):
    return [line.split("(")[0] for line in text.splitlines() if line.startswith("fn ")]


def test_declared_names():
    assert declared(BODY) == {"output_s", "LIMIT", "parts", "apply", "helper"}
    assert declared("    let local = 1;\nstruct S { x: u32 }\nvar<storage, read_write> b: u32;") == {"S"}


def test_every_declared_name_gets_the_prefix_and_no_other():
    text = prefix(BODY, "n1_")
    assert declared(text) == {"n1_output_s", "n1_LIMIT", "n1_parts", "n1_apply", "n1_helper"}
    assert "fn n1_apply(a: a_s) -> n1_output_s {" in text
    assert "let apply_twice = at.apply + n1_LIMIT;" in text
    assert "return n1_helper(n1_parts[0], apply_twice);" in text


def test_an_empty_prefix_changes_nothing():
    assert prefix(BODY, "") == BODY


def test_names_that_only_look_alike_are_left_alone():
    text = prefix("fn item(x: u32) -> u32 { return items[x] + my_item + item2 + v.item; }", "n_")
    assert text == "fn n_item(x: u32) -> u32 { return items[x] + my_item + item2 + v.item; }"


def test_called_library_functions_and_their_callees_are_added_once():
    text = link("fn main() { let a = multiply_words(x, y) + multiply_words(y, x); let b = negate_words(a); }")
    assert functions(text) == [
        "fn multiply_words",
        "fn negate_words",
        "fn subtract_words",
        "fn wide_product",
        "fn main",
    ]


def test_constants_of_the_library_are_added():
    assert "const OUTSIDE = 0xffffffffu;" in link("fn main() { let i = index_of_u32(x, 3u); }")
    assert link("fn main() { if (i == OUTSIDE) { return; } }").startswith("// ---- shaders/lib\nconst OUTSIDE")


def test_nothing_is_added_to_a_source_without_calls():
    text = "// negate_words is only mentioned\nfn main() { x.negate_words = 1; }"
    assert link(text) == text


def test_own_declarations_take_precedence_over_the_librarys():
    text = "fn negate_words(a: u32) -> u32 { return a; }\nfn main() { let b = negate_words(1u); }"
    assert link(text) == text


def test_library_chunks_end_where_they_end():
    for name, text in library().items():
        code = re.sub(r" *//[^\n]*", "", text)
        assert code.rstrip().endswith(("}", ";")), name
        assert declared(text) == {name}


ALIASES = """\
alias output_at = array<u32, 2>;
alias output_t = vec4<f32>;
alias virtual0_output_at = array<u32, 2>;
alias starts_t = array<virtual0_output_at, 4>;
fn element(at: virtual0_output_at, starts: starts_t) -> output_t {
    return output_load(output_at(at[0], my_output_at + starts[0][0]));
}
"""


def test_arrays_have_one_type_under_all_names():
    assert (
        expand_arrays(ALIASES)
        == """\
alias output_t = vec4<f32>;
fn element(at: array<u32, 2>, starts: array<array<u32, 2>, 4>) -> output_t {
    return output_load(array<u32, 2>(at[0], my_output_at + starts[0][0]));
}
"""
    )


def test_texts_without_arrays_are_unchanged():
    text = "alias output_t = vec4<f32>;\nfn element(at: output_at) -> output_t { return x; }\n"
    assert expand_arrays(text) == text
