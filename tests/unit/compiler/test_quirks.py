"""Known faults of drivers as data, and the targets that avoid them."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.common.errors import InvalidArgument, ModelError
from dmlgpu.compiler import quirks
from dmlgpu.compiler.quirks import in_versions, quirks_in_force, quirks_of, read_quirks, with_quirks
from dmlgpu.compiler.schedule.registry import SCHEDULES
from dmlgpu.compiler.stages import compile_operator
from dmlgpu.compiler.target import COOPERATIVE, AdapterInfo, Policies, Target
from dmlgpu.runtime.wgpu.adapter import FEATURES

LLVMPIPE = "llvmpipe (LLVM 15.0.6, 256 bits)"
OLD = AdapterInfo(LLVMPIPE, "Vulkan", "cpu", "llvmpipe", "Mesa 22.3.6 (LLVM 15.0.6)")
ROW = """
[[quirk]]
name = "a-fault"
why = "it fails"
link = "a page"
wgsl = "fn main() {}"
before = [1]
after = [2]
features = ["subgroup"]
"""


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    monkeypatch.delenv("DMLGPU_QUIRKS", raising=False)


# ---- the file


@pytest.mark.parametrize(
    ("name", "driver", "expected"),
    [
        (LLVMPIPE, "Mesa 22.3.6 (LLVM 15.0.6)", 65535),
        (LLVMPIPE, "4.5 (Core Profile) Mesa 22.3.6", 65535),
        (LLVMPIPE, "Mesa 24.2.1 (LLVM 18)", 65535),
        (LLVMPIPE, "Mesa 25.0.7-2~bpo12+1 (LLVM 15.0.6)", None),
        (LLVMPIPE, "4.5 (Core Profile) Mesa 26.1.6", None),
        ("AMD Radeon RX (RADV)", "Mesa 22.3.6", None),
        ("SwiftShader Device (Subzero)", "", None),
    ],
)
def test_loops_of_mesas_before_25_are_limited(name: str, driver: str, expected: int | None) -> None:
    assert with_quirks(Target(name, driver=driver)).loop_limit == expected


def test_quirks_have_names_of_their_own_and_fit_their_shaders() -> None:
    names = [quirk.name for quirk in quirks.quirks()]
    assert len(set(names)) == len(names)
    for quirk in quirks.quirks():
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", quirk.name) and quirk.before != quirk.after
        assert set(quirk.features) <= {*FEATURES, COOPERATIVE}
        assert re.findall(r"@binding\((\d)\) var<storage, read_write> \w+: array<u32>;", quirk.wgsl) == ["0"]


# ---- adapters


@pytest.mark.parametrize(
    ("fields", "has"),
    [
        ({}, True),
        ({"backend": "vulkan", "vendor": "LLVM*", "device": "llvmpipe*"}, True),
        ({"backend": "OpenGL"}, False),
        ({"vendor": "Mesa"}, False),
        ({"device": "llvmpipe"}, False),
        ({"driver": "Mesa <25"}, True),
        ({"driver": "Mesa >=22.3.6, <=22.3.6"}, True),
        ({"driver": "Mesa >22.4"}, False),
        ({"library": "wgpu <100"}, True),
        ({"library": "wgpu >100"}, False),
        ({"library": "Chrome <100"}, False),
    ],
)
def test_adapters_that_a_quirk_describes(fields: dict[str, str], has: bool) -> None:
    (quirk,) = read_quirks(ROW, "a file")
    assert replace(quirk, **fields).has(OLD) is has  # type: ignore[arg-type]
    target = Target(OLD.name, backend=OLD.backend, vendor=OLD.vendor, driver=OLD.driver)
    assert replace(quirk, **fields).has(target) is has  # type: ignore[arg-type]


def test_the_library_of_a_page_is_its_browser() -> None:
    (quirk,) = read_quirks(f'{ROW}library = "Chrome <150"\n', "a file")
    page = AdapterInfo("a GPU", "Browser", "unknown", "", "Chrome 149, page 2")
    assert quirk.has(page) and not quirk.has(replace(page, driver="Chrome 150"))


@pytest.mark.parametrize(
    ("versions", "text", "expected"),
    [
        ("<25", "Mesa 22.3.6", True),
        ("<4.6", "4.5 (Core Profile) Mesa 22.3.6", True),
        ("Mesa >22, <23", "4.5 (Core Profile) Mesa 22.3.6", True),
        ("mesa ==22.3.6", "Mesa 22.3.6-1+deb12u1", True),
        ("Mesa !=22.3.6", "Mesa 22.3.6", False),
        ("Mesa <=25", "Mesa 25.0.0", True),
        ("Mesa <=25", "Mesa 25.0.1", False),
        ("Mesa <9.10", "Mesa 9.9", True),
        ("Mesa <25", "NVIDIA 22.1", False),
        ("<25", "no version", False),
    ],
)
def test_versions(versions: str, text: str, expected: bool) -> None:
    assert in_versions(versions, text) is expected


# ---- what they exclude


def test_a_target_lacks_what_its_quirks_exclude(monkeypatch: pytest.MonkeyPatch) -> None:
    row = f'{ROW}schedules = "map/transpose"\nsets = {{ checked = true, max_binding_size = 1024 }}\n'
    monkeypatch.setattr(quirks, "quirks", lambda: read_quirks(row, "a file"))
    target = with_quirks(Target("x", features=frozenset({"subgroup", "shader-f16"}), policies=Policies(checked=False)))
    assert target.features == {"shader-f16"}
    assert target.overrides.excluded == {"map/transpose"}
    assert target.policies.checked and target.max_binding_size == 1024


def test_kernels_do_without_excluded_schedules(monkeypatch: pytest.MonkeyPatch) -> None:
    assert bodies_of_a_transpose(Target("x")) == ("schedules/transpose",)
    row = f'{ROW}schedules = ["map/transpose"]\n'
    monkeypatch.setattr(quirks, "quirks", lambda: read_quirks(row, "a file"))
    (without,) = bodies_of_a_transpose(with_quirks(Target("x")))
    assert without != "schedules/transpose"


def bodies_of_a_transpose(target: Target) -> tuple[str, ...]:
    """Return the schedules of a copy of 32 x 32 elements between rows and columns."""
    rows, columns = (TensorDesc(DataType.FLOAT32, (32, 32), strides) for strides in ((32, 1), (1, 32)))
    program = compile_operator(descs.ElementWiseIdentity(input_tensor=columns, output_tensor=rows), target)
    return tuple(file for kernel in program.kernels for file in kernel.shaders if file.startswith("schedules/"))


def test_schedules_of_quirks_exist() -> None:
    names = {schedule.full_name for schedules in SCHEDULES.values() for schedule in schedules}
    assert "map/transpose" in names
    assert {name for quirk in quirks.quirks() for name in quirk.schedules} <= names


def test_quirks_are_ignored_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quirks, "quirks", lambda: read_quirks(ROW, "a file"))
    assert quirks_of(OLD) == quirks_in_force(OLD) != ()
    monkeypatch.setenv("DMLGPU_QUIRKS", "off")
    assert quirks_of(OLD) != quirks_in_force(OLD) == ()
    monkeypatch.setenv("DMLGPU_QUIRKS", "of")
    with pytest.raises(InvalidArgument, match="DMLGPU_QUIRKS must be off, or not set, got 'of'"):
        quirks_in_force(OLD)


# ---- malformed files


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[quirk]", "x.toml: is not TOML: "),
        ("[[quirks]]", "x.toml: quirks: is unknown; the only key is [[quirk]]"),
        ("quirk = 1", "x.toml: quirk: must be tables, as [[quirk]] writes them"),
        (f"{ROW}{ROW}drivers = 'Mesa <25'", "x.toml, line 11: quirk[1].drivers: is unknown; there are name, backend, "),
        ("[[quirk]]\nname = 'a'", "x.toml, line 1: quirk[0].why: is missing"),
        (f"{ROW}device = 1", "x.toml, line 2: quirk[0].device: must be a string, got 1"),
        (ROW.replace("[1]", "['1']"), "x.toml, line 2: quirk[0].before: must be an integer, got '1'"),
        (f"{ROW}sets = 'checked'", "x.toml, line 2: quirk[0].sets: must be a table, got 'checked'"),
        (f"{ROW}driver = 'old'", "quirk[0].driver: must be versions such as '>=25.0, <25.1' or 'Mesa <25', got 'old'"),
        (f"{ROW}library = 'wgpu <'", "quirk[0].library: must be versions such as "),
        (f"{ROW}sets = {{ profile = 1 }}", "quirk[0].sets.profile: is unknown; there are least_copy, loop_limit, "),
        (f"{ROW}sets = {{ checked = 1 }}", "quirk[0].sets.checked: must be true or false, got 1"),
        (f"{ROW}sets = {{ loop_limit = true }}", "quirk[0].sets.loop_limit: must be an integer, got True"),
        (ROW.replace('features = ["subgroup"]', ""), "quirk[0]: has no effect: it needs schedules, features or sets"),
    ],
)
def test_malformed_files_are_rejected(text: str, message: str) -> None:
    with pytest.raises(ModelError, match=re.escape(message)):
        read_quirks(text, "x.toml")
