"""Programs are loaded from files unchanged, or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dmlgpu import DataType, TensorDesc, descs
from dmlgpu.common.cache import CacheLimits
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.compiler import program_cache as kept_programs
from dmlgpu.compiler import programs
from dmlgpu.compiler import stages as compiler
from dmlgpu.compiler.graph.compiler import compile_network
from dmlgpu.compiler.graph.resolve import resolve
from dmlgpu.compiler.linker import BufferInterface, Interface
from dmlgpu.compiler.plan import Role
from dmlgpu.compiler.program import Checks, Copy, KernelSource, Program, RenderedKernel, Slot
from dmlgpu.compiler.program_cache import ProgramFiles, default_folder, version_of, without_files
from dmlgpu.compiler.target import Profile, Target
from dmlgpu.compiler.wgsl import templates
from tests.unit.graph_examples import chain, relu

TARGET = Target("CPU", Profile.CPU, frozenset({"immediates", "shader-int64", "shader-f16"}))
ROW = TensorDesc(DataType.FLOAT32, (4, 5))
ADD = descs.ElementWiseAdd(a_tensor=ROW, b_tensor=ROW, output_tensor=ROW)
TEXT = KernelSource(
    "text",
    Interface(
        (BufferInterface("vec2<u32>", "u64", False, True, 7, 3), BufferInterface("atomic<u32>", "atomic<u32>")),
        sizes=3,
        divisors=(2, 0),
        immediates=False,
        has_barriers=True,
        has_u64=True,
        extensions=("f16",),
    ),
    workgroup=96,
    checks=Checks.LOOPS,
    files=("lib", "a/b"),
)
SHARED = RenderedKernel(
    "shared",
    TEXT,
    (Slot(Role.INPUT, 0, 0, 16, is_continued=True), Slot(Role.INPUT, 0, 0, 32)),
    (1, 2, 3),
    (0, 0),
    (5, 6, 7, 2**32 - 1),
    Copy(0, 4, 1, 8, 12, False),
    is_special=True,
)
ODD = Program(
    'ODD "\n\\é',
    (SHARED, RenderedKernel("other", TEXT, (Slot(Role.CONSTANT, 1, 16, 4),), (4, 5, 6)), SHARED),
    (
        RenderedKernel(
            "first",
            KernelSource("another\n", Interface(())),
            (Slot(Role.PERSISTENT, 0, 0, 4), Slot(Role.TEMPORARY, 0, 0, 4)),
            (1, 1, 1),
        ),
    ),
    48,
    64,
    False,
    (b"", bytes(range(256))),
    32,
)
"""A program with a combination of fields that no operator has."""


@pytest.fixture
def files(tmp_path: Path) -> ProgramFiles:
    """An empty folder of programs."""
    return ProgramFiles(tmp_path / "programs", "1")


@pytest.fixture
def in_files(files: ProgramFiles, monkeypatch: pytest.MonkeyPatch) -> Iterator[ProgramFiles]:
    """Folder of executors' programs, with an empty cache in memory."""
    monkeypatch.setattr(programs, "files", files)
    kept_programs.programs.clear()
    yield files
    kept_programs.programs.clear()


def one_file(files: ProgramFiles) -> Path:
    (path,) = files.folder.iterdir()
    return path


def network_program() -> Program:
    return compile_network(resolve(chain(relu(), relu())), TARGET).program


@pytest.mark.parametrize("make", [lambda: compiler.compile_operator(ADD, TARGET), network_program, lambda: ODD])
def test_loaded_programs_are_equal(files: ProgramFiles, make: Callable[[], Program]) -> None:
    program = make()
    files.save("key", program)
    loaded = files.load("key")
    assert loaded == program
    assert loaded is not program


def test_equal_sources_are_one_object(files: ProgramFiles) -> None:
    files.save("key", ODD)
    loaded = files.load("key")
    assert loaded is not None
    assert loaded.kernels[0].source is loaded.kernels[1].source is loaded.kernels[2].source


def test_unsaved_programs_are_not_found(files: ProgramFiles) -> None:
    assert files.load("key") is None
    files.save("key", ODD)
    assert files.load("another") is None
    assert ProgramFiles(files.folder, "2").load("key") is None
    assert ProgramFiles(files.folder, "1").load("key") == ODD


def resealed(data: bytes, change: Callable[[dict[str, Any]], object]) -> bytes:
    """Return a file with changed content and a correct hash."""
    record = json.loads(data.partition(b"\n")[2])
    body = json.dumps(change(record)).encode()
    return hashlib.sha256(body).hexdigest().encode() + b"\n" + body


def with_source(data: bytes, index: int, value: object) -> bytes:
    """Return a file with another value of a field of its first source."""

    def change(record: dict[str, Any]) -> object:
        record["sources"][0][index] = value
        return record

    return resealed(data, change)


def with_interface(data: bytes, index: int, value: object) -> bytes:
    """Return a file with another value of a field of its first interface."""

    def change(record: dict[str, Any]) -> object:
        record["sources"][0][1][index] = value
        return record

    return resealed(data, change)


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "cut off": lambda data: data[:-1],
    "another byte": lambda data: data[:-2] + bytes([data[-2] ^ 1]) + data[-1:],
    "no hash": lambda data: data.partition(b"\n")[2],
    "no JSON": lambda data: hashlib.sha256(b"[").hexdigest().encode() + b"\n[",
    "nested too deeply": lambda data: hashlib.sha256(b"[" * 99999).hexdigest().encode() + b"\n" + b"[" * 99999,
    "a list": lambda data: resealed(data, lambda record: [record]),
    "of another key": lambda data: resealed(data, lambda record: record | {"key": "0" * 64}),
    "no kernels": lambda data: resealed(data, lambda record: {key: record[key] for key in record if key != "kernels"}),
    "no source": lambda data: resealed(data, lambda record: record | {"sources": []}),
    "a number for a text": lambda data: with_source(data, 0, 1),
    "no interface": lambda data: with_source(data, 1, None),
    "a number for a flag": lambda data: with_interface(data, 3, 0),
    "a text for a number of sizes": lambda data: with_interface(data, 1, "3"),
    "a text for divisors": lambda data: with_interface(data, 2, "20"),
    "a number for an extension": lambda data: with_interface(data, 6, [1]),
    "half a buffer": lambda data: with_interface(data, 0, [["u32", "u32"]]),
    "unknown checks": lambda data: with_source(data, 3, "some"),
    "a number for a file": lambda data: with_source(data, 4, [1]),
    "a size that is none": lambda data: resealed(data, lambda record: record | {"sizes": [1.5, 0, 0]}),
    "two sizes": lambda data: resealed(data, lambda record: record | {"sizes": [0, 0]}),
    "no base 64": lambda data: resealed(data, lambda record: record | {"constants": ["%"]}),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damaged_files_are_ignored(files: ProgramFiles, damage: Callable[[bytes], bytes]) -> None:
    files.save("key", ODD)
    path = one_file(files)
    path.write_bytes(damage(path.read_bytes()))
    assert files.load("key") is None
    assert not path.exists()
    files.save("key", ODD)
    assert files.load("key") == ODD


@pytest.mark.skipif(os.name != "posix", reason="Windows has no numbers of users")
def test_files_of_other_users_are_ignored(files: ProgramFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    files.save("key", ODD)
    files.save_plans("key", [1])
    own = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: own + 1)
    assert (files.load("key"), files.load_plans("key")) == (None, None)
    monkeypatch.undo()
    assert (files.load("key"), files.load_plans("key")) == (ODD, [1])


def test_files_are_evicted_in_order_of_last_use(tmp_path: Path) -> None:
    files = ProgramFiles(tmp_path, "1", CacheLimits(entries=8, size=1 << 20))
    for index in range(8):
        files.save(f"{index}", ODD)
        os.utime(max(tmp_path.iterdir(), key=lambda path: path.stat().st_mtime_ns), ns=(index, index))
    assert files.load("1") == ODD
    for index in range(8, 20):
        files.save(f"{index}", ODD)
        assert len(list(tmp_path.iterdir())) <= 8
    left = {index for index in range(20) if files.load(f"{index}") is not None}
    assert 19 in left
    assert not left & {0, 2, 3}


def test_files_of_other_processes_and_partial_files_count(tmp_path: Path) -> None:
    (tmp_path / ".killed.part").write_bytes(bytes(1000))
    os.utime(tmp_path / ".killed.part", ns=(0, 0))
    ProgramFiles(tmp_path, "0").save("key", ODD)
    ProgramFiles(tmp_path, "1", CacheLimits(entries=2, size=1 << 20)).save("key", ODD)
    assert not (tmp_path / ".killed.part").exists()
    assert len(list(tmp_path.iterdir())) <= 2


def test_bytes_are_bounded(tmp_path: Path) -> None:
    ProgramFiles(tmp_path, "1", CacheLimits(entries=8, size=100)).save("key", ODD)
    assert list(tmp_path.iterdir()) == []  # too large for the folder
    size = 4000
    files = ProgramFiles(tmp_path, "1", CacheLimits(entries=100, size=size))
    for index in range(20):
        files.save(f"{index}", ODD)
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= size
    assert files.load("19") == ODD


def test_a_missing_folder_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    files = ProgramFiles(tmp_path / "file" / "programs", "1")
    files.save("key", ODD)
    assert files.load("key") is None
    assert (tmp_path / "file").read_text() == "in the way"


def test_a_full_disk_leaves_no_files(files: ProgramFiles, limited_files: Callable[[int], None]) -> None:
    files.folder.mkdir()
    limited_files(64)
    files.save("key", ODD)
    assert list(files.folder.iterdir()) == []


# ---- folder and version ----------------------------------------------------------------------------------------------


def test_the_version_changes_with_any_source_file(tmp_path: Path) -> None:
    for name in ("a.py", "deep/b.wgsl", "deep/deeper/c.py", "notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("1")
    seen = {version_of([tmp_path])}
    (tmp_path / "notes.txt").write_text("none of them")
    assert version_of([tmp_path]) in seen
    for change in (
        lambda: (tmp_path / "deep/b.wgsl").write_text("12"),
        lambda: os.utime(tmp_path / "deep/deeper/c.py", ns=(5, 5)),
        lambda: (tmp_path / "new.py").write_text(""),
        (tmp_path / "a.py").unlink,
    ):
        change()
        version = version_of([tmp_path])
        assert version is not None
        assert version not in seen
        seen.add(version)


def test_an_archive_has_no_version(tmp_path: Path) -> None:
    (tmp_path / "archive.zip").write_bytes(b"PK")
    assert version_of([tmp_path / "archive.zip" / "dmlgpu"]) is None


def test_the_environment_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    for variable, value, expected in (
        ("DMLGPU_CACHE", "off", None),
        ("DMLGPU_CACHE", " OFF ", None),
        ("DMLGPU_CACHE", str(tmp_path), tmp_path),
        ("XDG_CACHE_HOME", str(tmp_path), tmp_path / "dmlgpu/programs"),
        ("HOME", str(tmp_path), tmp_path / ".cache/dmlgpu/programs"),
    ):
        for name in ("DMLGPU_CACHE", "XDG_CACHE_HOME", "HOME"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv(variable, value)
        assert default_folder() == expected


@pytest.mark.usefixtures("homeless")
def test_without_a_home_no_programs_are_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DMLGPU_CACHE", raising=False)
    assert default_folder() is None


# ---- executors' programs ---------------------------------------------------------------------------------------------


def fail(*_: object, **__: object) -> Program:
    raise AssertionError("compiled")


def test_operators_are_compiled_once_for_all_processes(in_files: ProgramFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = programs.of_operator(ADD, TARGET)
    assert programs.of_operator(ADD, TARGET) is compiled
    kept_programs.programs.clear()  # as in the next process
    monkeypatch.setattr(compiler, "stages", fail)
    loaded = programs.of_operator(ADD, TARGET)
    assert loaded == compiled
    assert loaded.timings.rendering == 0 < loaded.timings.planning
    with pytest.raises(AssertionError):
        programs.of_operator(ADD, Target("other"))


def test_networks_are_compiled_once_for_all_processes(in_files: ProgramFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    network = resolve(chain(relu(), relu()))
    compiled = programs.of_network(network, TARGET)
    with pytest.raises(InvalidArgument, match="disabled_passes must name passes"):
        programs.of_network(network, TARGET, ("fusion",))
    monkeypatch.setattr("dmlgpu.compiler.graph.compiler.compile_network", fail)
    assert programs.of_network(network, TARGET) == compiled
    for other, target, disabled in (
        (resolve(chain(relu())), TARGET, ()),
        (network, Target("other"), ()),
        (network, TARGET, ("element-wise",)),
    ):
        with pytest.raises(AssertionError):
            programs.of_network(other, target, disabled)


@pytest.mark.usefixtures("in_files")
def test_mutants_use_no_files() -> None:
    plain = programs.of_operator(ADD, TARGET)
    kept_programs.programs.clear()
    text = templates.source("elementwise/element_wise_add")
    with without_files(), templates.replaced("elementwise/element_wise_add", text.replace("a + b", "a - b")):
        mutant = programs.of_operator(ADD, TARGET)
    kept_programs.programs.clear()
    assert mutant != plain
    assert programs.of_operator(ADD, TARGET) == plain


def test_without_files(files: ProgramFiles) -> None:
    with without_files(), without_files():
        files.save("key", ODD)
    assert not files.folder.exists()
    files.save("key", ODD)
    with without_files():
        assert files.load("key") is None
    assert files.load("key") == ODD


PROCESS = """
import hashlib, sys
import dmlgpu.tensors.tensor, dmlgpu.runtime.wgpu.backend
from dmlgpu import descs, TensorDesc, DataType
from dmlgpu.compiler import programs
from dmlgpu.compiler.target import Profile, Target
row = TensorDesc(DataType.FLOAT32, (4, 1000))
desc = descs.ActivationSoftmax1(input_tensor=row, output_tensor=row, axes=(1,))
target = Target("CPU", Profile.CPU, frozenset({"immediates", "shader-int64", "shader-f16", "subgroup"}))
text = repr(programs.of_operator(desc, target))
stages = [f"dmlgpu.compiler.{name}" for name in ("stages", "schedule", "wgsl", "graph.compiler")]
compiling = ("jinja2", *stages, "dmlgpu.reference")
print(hashlib.sha256(text.encode()).hexdigest(), *[name for name in compiling if name in sys.modules])
"""


@pytest.mark.slow
def test_the_next_process_loads_no_compiler(tmp_path: Path) -> None:
    environment = {**os.environ, "DMLGPU_CACHE": str(tmp_path)}
    command = [sys.executable, "-c", PROCESS]
    first, second = (
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()
        for _ in range(2)
    )
    assert first[0] == second[0]
    assert first[1:] == ["jinja2", "dmlgpu.compiler.stages", "dmlgpu.compiler.schedule", "dmlgpu.compiler.wgsl"]
    assert second[1:] == []


def test_models_are_loaded_without_the_compiler() -> None:
    names = (
        "jinja2",
        "dmlgpu.compiler.stages",
        "dmlgpu.compiler.schedule",
        "dmlgpu.compiler.wgsl",
        "dmlgpu.compiler.explain",
        "dmlgpu.ops",
        "onnx.reference",
    )
    code = f"import sys, dmlgpu.frontends.onnx; print([name for name in {names} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
