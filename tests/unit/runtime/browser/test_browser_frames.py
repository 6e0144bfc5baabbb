"""Frames between executor and page, and what a page says about itself."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from dmlgpu.common.errors import InvalidArgument
from dmlgpu.compiler.program import KernelSource, RenderedKernel
from dmlgpu.compiler.target import Matrices, MatrixDialect, Profile
from dmlgpu.runtime.browser import frames
from dmlgpu.runtime.browser.backend import _stamps
from dmlgpu.runtime.browser.executable import compile_error
from dmlgpu.runtime.browser.facts import adapter_info, plain, target_of, units_of
from dmlgpu.runtime.executor import Timing

LIMITS = {
    "maxStorageBuffersPerShaderStage": 10,
    "maxStorageBufferBindingSize": 1 << 27,
    "maxBufferSize": 1 << 28,
    "minStorageBufferOffsetAlignment": 256,
    "maxComputeInvocationsPerWorkgroup": 256,
    "maxComputeWorkgroupStorageSize": 16384,
    "maxComputeWorkgroupsPerDimension": 65535,
}
SAFARI = "Mozilla/5.0 (Macintosh) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/26.0 Safari/605.1.15"
FACTS = {
    "vendor": "apple",
    "architecture": "metal-3",
    "device": "",
    "description": "Apple M2",
    "browser": SAFARI,
    "fallback": False,
    "features": ["shader-f16", "texture-compression-bc"],
    "limits": LIMITS,
}


def test_a_frame_comes_back():
    header, data = frames.decode(frames.encode({"id": 7, "text": "ä"}, [b"abc", memoryview(b"d")]))
    assert header == {"id": 7, "text": "ä"}
    assert bytes(data) == b"abcd"


def test_the_layout_of_a_frame():
    assert frames.encode({"id": 1}, [b"\xff"]) == b'\x08\x00\x00\x00{"id":1}\xff'


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        ("text", "expected bytes, got str"),
        (b"", "got 0"),
        (b"\x01\0", "got 2"),
        (b"\x09\0\0\0{}", "a header of 9 bytes does not fit into 6 bytes"),
        (b"\xff\xff\xff\xff{}", "does not fit"),
        (b"\x02\0\0\0[]", "must be an object, got list"),
        (b"\x02\0\0\0{x", "no JSON"),
        (b"\x02\0\0\0\xff\xfe", "no JSON"),
        (struct.pack("<I", 200_000) + b"[" * 200_000, "no JSON"),
    ],
)
def test_malformed_frames(frame, why):
    with pytest.raises(InvalidArgument, match=why):
        frames.decode(frame)


def test_an_adapter_has_the_name_that_the_page_reports():
    info = adapter_info(FACTS, 1)
    assert str(info) == "Browser: Apple M2 (Safari 26.0)"
    assert (info.kind, info.features) == ("integrated", ("shader-f16",))
    assert info.limits["max-storage-buffers-per-shader-stage"] == 10
    assert str(adapter_info(FACTS, 2)) == "Browser: Apple M2 (Safari 26.0, page 2)"


@pytest.mark.parametrize(
    ("changed", "kind", "profile"),
    [
        ({"fallback": True}, "cpu", Profile.CPU),
        ({"vendor": "google", "architecture": "swiftshader"}, "cpu", Profile.CPU),
        ({"vendor": "qualcomm"}, "integrated", Profile.INTEGRATED),
        ({"vendor": "nvidia"}, "unknown", Profile.DISCRETE),
    ],
)
def test_the_kind_decides_the_schedules(changed, kind, profile):
    info = adapter_info({**FACTS, **changed}, 1)
    assert (info.kind, target_of(info).profile) == (kind, profile)


def test_limits_and_features_become_the_targets():
    target = target_of(adapter_info(FACTS, 1), precise=True, disabled_features=["shader-f16"])
    assert target.max_binding_size == 1 << 27
    assert target.max_workgroup_storage == 16384
    assert target.policies.precise
    assert not target.has("shader-f16")
    assert not target.has("immediates")
    assert not target.multiplies_words


NVIDIA = {
    **FACTS,
    "vendor": "nvidia",
    "features": ["shader-f16", "chromium-experimental-subgroup-matrix"],
    "matrices": [
        {"componentType": "f16", "resultComponentType": "f16", "M": 16, "N": 16, "K": 16, "lanes": 32},
        {"componentType": "f16", "resultComponentType": "f32", "M": 16, "N": 8, "K": 8, "lanes": 32},
        {"componentType": "f16", "resultComponentType": "f32", "M": 16, "N": 16, "K": 16, "lanes": 32},
        {"componentType": "i8", "resultComponentType": "i32", "M": 16, "N": 16, "K": 32, "lanes": 32},
    ],
}


def test_matrix_units_are_those_that_the_browser_lists():
    integers = Matrices(16, 16, 32, lanes=32, dialect=MatrixDialect.TINT, turns=False, component="i8")
    assert units_of(adapter_info(NVIDIA, 1)) == replace(integers, steps=16, component="f16", integers=integers)
    assert units_of(adapter_info({**NVIDIA, "matrices": NVIDIA["matrices"][:3]}, 1)).integers is None


def test_matrix_units_of_float32_multiply_float16_if_there_are_no_others():
    listed = [
        {"componentType": kind, "resultComponentType": kind, "M": 8, "N": 8, "K": 8, "lanes": 32}
        for kind in ("f32", "f16")
    ]
    floats = Matrices(8, 8, 8, lanes=32, dialect=MatrixDialect.TINT, component="f32")
    page = {**NVIDIA, "vendor": "apple", "matrices": listed}
    assert units_of(adapter_info(page, 1)) == replace(floats, floats=floats)


@pytest.mark.parametrize(
    "changed",
    [
        {"features": ["shader-f16"]},
        {"features": ["chromium-experimental-subgroup-matrix"]},
        {"matrices": NVIDIA["matrices"][:1]},
        {"matrices": "f16"},
        {"matrices": [None, {**NVIDIA["matrices"][2], "M": 1 << 20}, {**NVIDIA["matrices"][2], "N": "16"}]},
    ],
)
def test_other_pages_have_no_matrix_units(changed):
    assert units_of(adapter_info({**NVIDIA, **changed}, 1)) is None


def test_products_of_words_need_the_language_feature():
    name = "packed_4x8_integer_dot_product"
    info = adapter_info({**FACTS, "features": [name]}, 1)
    assert target_of(info).multiplies_words
    assert not target_of(info, disabled_features=[name]).multiplies_words


def test_names_hold_no_signs_that_mean_something_elsewhere():
    info = adapter_info({**FACTS, "description": "<script>\x1b[2Ja`|b\n" + "x" * 500, "browser": "<b>"}, 1)
    assert info.name == ("script 2Ja b " + "x" * 500)[:80]
    assert info.driver == "unknown browser"
    assert plain(5) == ""


@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.parametrize("value", [None, "256", True, 1.5, -1, 0, 10**30])
def test_limits_beyond_reason_are_rejected(name, value):
    with pytest.raises(InvalidArgument, match=name):
        adapter_info({**FACTS, "limits": {**LIMITS, name: value}}, 1)


@pytest.mark.parametrize("facts", [None, [], "x", {}, {"limits": []}])
def test_facts_of_another_shape_are_rejected(facts):
    with pytest.raises(InvalidArgument, match="page: "):
        adapter_info(facts, 1)


def test_an_alignment_is_a_power_of_two():
    with pytest.raises(InvalidArgument, match="power of two"):
        adapter_info({**FACTS, "limits": {**LIMITS, "minStorageBufferOffsetAlignment": 48}}, 1)


TEXT = "// head\n// ---- shaders/maps/add.wgsl\nfn f() {\n    let x = y;\n}\n"


def test_errors_of_compilers_show_the_lines_around():
    kernel = RenderedKernel("add x4", KernelSource(TEXT), (), (1, 1, 1))
    message = compile_error("ADD", kernel, "Browser: M2", [4, "unresolved value 'y'\x1b[31m"])
    head, *lines = message.splitlines()
    assert head.startswith("ADD: kernel 'add x4' does not compile on Browser: M2: unresolved value 'y'?[31m")
    assert head.endswith("(in shaders/maps/add.wgsl)")
    assert "> 4 |     let x = y;" in lines


@pytest.mark.parametrize("refusal", [None, [], "x", [0, "bad"], [99, "bad"], ["1", "bad"], [1, {}]])
def test_errors_of_compilers_may_have_any_shape(refusal):
    assert "ADD: kernel 'k' does not compile on P:" in compile_error(
        "ADD", RenderedKernel("k", KernelSource(TEXT), (), (1, 1, 1)), "P", refusal
    )


@pytest.mark.parametrize("sent", [None, 5, [], [0, 1], [0, 1, 2, "3"], [0, 1, 2, 1e300], [0, 1, 2, None], {"0": 1}])
def test_times_of_another_shape_are_none(sent):
    assert _stamps(sent, 2) is None


def test_times_become_seconds():
    assert _stamps([0, 1000, 2000, 5000], 2) == [(0.0, pytest.approx(1e-6)), (pytest.approx(2e-6), pytest.approx(5e-6))]


def test_timestamps_that_can_be_right_are_taken():
    timing = Timing.of_timestamps([(1.0, 1.5), (1.5, 3.0)], 2.5, parts=True)
    assert (timing.seconds, timing.source, timing.parts, timing.host_seconds) == (2.0, "gpu", (0.5, 1.5), 2.5)
    assert Timing.of_timestamps([(1.0, 1.5)], 2.5, parts=False).parts == ()


@pytest.mark.parametrize("stamps", [[(0.0, 0.0)], [(2.0, 1.0)], [(0.0, 6.0)], [(0.0, 2.0), (3.0, 2.5)]])
def test_the_hosts_clock_stands_in_for_timestamps_that_cannot_be_right(stamps):
    timing = Timing.of_timestamps(stamps, 2.5, parts=True)
    assert (timing.seconds, timing.source, timing.parts) == (2.5, "wall clock", ())
