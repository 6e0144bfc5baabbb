"""The shell functions of scripts/demo and scripts/test that derive an apt source and find an interpreter."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="no bash on this machine")

DEB822 = """\
Types: deb
# a snapshot
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: /usr/share/keyrings/archive.gpg

Types: deb
URIs: http://mirror.example/security
Suites: bookworm-security
Components: main
"""
DEB822_BACKPORTS = """\
Types: deb
URIs: http://mirror.example/debian
Suites: bookworm-backports
Components: main contrib
Signed-By: /usr/share/keyrings/archive.gpg
"""


def call(function, *arguments):
    script = f'. scripts/lib/environment.sh; {function} "$@"'
    return subprocess.run(
        ["bash", "-c", script, "bash", *map(str, arguments)], cwd=ROOT, capture_output=True, text=True, check=False
    )


@pytest.fixture
def apt(tmp_path):
    (tmp_path / "sources.list.d").mkdir()
    return tmp_path


def test_backports_from_a_deb822_entry(apt):
    (apt / "sources.list.d" / "debian.sources").write_text(DEB822)
    assert call("backports_source", "bookworm", apt).stdout == DEB822_BACKPORTS


def test_source_packages_and_disabled_entries_are_passed_over(apt):
    sources = "Types: deb-src\nURIs: http://a.example\nSuites: bookworm\nComponents: main\n\n"
    disabled = "Enabled: no\nTypes: deb\nURIs: http://b.example\nSuites: bookworm\nComponents: main\n\n"
    (apt / "sources.list.d" / "debian.sources").write_text(sources + disabled + DEB822)
    assert call("backports_source", "bookworm", apt).stdout == DEB822_BACKPORTS


def test_backports_from_a_one_line_entry_keeps_its_options(apt):
    (apt / "sources.list").write_text(
        "# deb http://old.example/debian bookworm main\n"
        "deb-src http://mirror.example/debian bookworm main\n"
        "deb http://mirror.example/security bookworm-security main\n"
        "deb [arch=amd64 signed-by=/k.gpg] http://mirror.example/debian bookworm main contrib\n"
    )
    expected = "deb [arch=amd64 signed-by=/k.gpg] http://mirror.example/debian bookworm-backports main contrib\n"
    assert call("backports_source", "bookworm", apt).stdout == expected


def test_no_entry_gives_nothing(apt):
    (apt / "sources.list").write_text("deb http://mirror.example/debian trixie main\n")
    assert call("backports_source", "bookworm", apt).stdout == ""


@pytest.mark.parametrize(
    ("text", "offered"),
    [
        (DEB822_BACKPORTS, True),
        (DEB822, False),
        ("# Suites: bookworm-backports\n", False),
    ],
)
def test_a_suite_is_seen_where_a_source_offers_it(apt, text, offered):
    (apt / "sources.list.d" / "x.sources").write_text(text)
    assert (call("has_suite", "bookworm-backports", apt).returncode == 0) is offered


def test_a_suite_is_seen_in_a_one_line_entry(apt):
    (apt / "sources.list").write_text("deb http://mirror.example/debian bookworm-backports main\n")
    assert call("has_suite", "bookworm-backports", apt).returncode == 0
    (apt / "sources.list").write_text("#deb http://mirror.example/debian bookworm-backports main\n")
    assert call("has_suite", "bookworm-backports", apt).returncode == 1


def test_an_interpreter_is_found_that_is_new_enough():
    python = call("find_python").stdout.strip()
    check = "import sys; print(sys.version_info >= (3, 11))"
    assert subprocess.run([python, "-c", check], capture_output=True, text=True, check=True).stdout == "True\n"


@pytest.mark.parametrize(
    ("fault", "codename", "said"),
    [
        ("", "bookworm", ""),
        ("wrong; install Mesa 25", "bookworm", "==> wrong; install Mesa 25\nreplaced\n"),
        ("wrong; install Mesa 25", "jammy", "==> wrong; install Mesa 25\n"),
    ],
)
def test_a_driver_with_a_known_fault_is_replaced_where_there_is_a_newer_one(fault, codename, said):
    stubs = f"has_adapter() {{ echo '{fault}'; }}; os_release() {{ echo {codename}; }}"
    replacing = "install_mesa() { echo replaced >&2; }; ensure_adapter; echo $ADAPTER_FOUND"
    script = f". scripts/lib/environment.sh; {stubs}; {replacing}"
    finished = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert (finished.stdout, finished.stderr) == ("yes\n", said)


def test_scripts_are_valid_bash_and_executable():
    for name in ("scripts/check", "scripts/demo", "scripts/test", ".ci/run"):
        assert (ROOT / name).stat().st_mode & 0o111, f"{name} has no run bit"
        subprocess.run(["bash", "-n", name], cwd=ROOT, check=True)
    assert subprocess.run(["bash", "-n", "scripts/lib/environment.sh"], cwd=ROOT, check=True).returncode == 0


MATRIX_SOURCES = "".join(
    f"{DEB822_BACKPORTS}\n".replace("bookworm-backports", suite) for suite in ("trixie", "trixie-backports")
)
LINES = "deb http://mirror.example/debian trixie main\n\ndeb http://mirror.example/debian trixie-backports main\n\n"


@pytest.mark.parametrize(
    ("name", "source", "expected"),
    [
        ("sources.list.d/debian.sources", DEB822, MATRIX_SOURCES),
        ("sources.list", "deb http://mirror.example/debian bookworm main\n", LINES),
        ("sources.list", "deb http://mirror.example/debian bullseye main\n", ""),
    ],
)
def test_the_sources_of_the_driver_with_matrix_units_are_the_machines_own(apt, name, source, expected):
    (apt / name).write_text(source)
    script = "os_release() { echo bookworm; }; matrix_driver_sources"
    assert call(f"{script}", apt).stdout == expected


@pytest.mark.parametrize("exists", [True, False])
def test_a_driver_with_matrix_units_may_be_named(tmp_path, exists):
    manifest = tmp_path / "icd.json"
    if exists:
        manifest.touch()
    script = f"MATRIX_ICD={manifest}; ensure_matrix_driver && on_matrix_driver printenv VK_DRIVER_FILES; :"
    assert call(script).stdout == (f"{manifest}\n" if exists else "")


def test_commands_run_on_an_unpacked_driver(tmp_path):
    """By its own dynamic loader, with its libraries."""
    libraries = tmp_path / "dmlgpu" / "matrix-driver" / "root" / "usr" / "lib" / "x86_64-linux-gnu"
    libraries.mkdir(parents=True)
    (libraries / "libvulkan_lvp.so").touch()
    loader = libraries / "ld-linux-x86-64.so.2"
    loader.write_text('#!/bin/sh\necho "$VK_DRIVER_FILES" "$@"\n')
    loader.chmod(0o755)
    manifest = tmp_path / "dmlgpu" / "matrix-driver" / "icd.json"
    manifest.touch()
    script = f"MATRIX_FOLDER={manifest.parent}; unset MATRIX_ICD; ensure_matrix_driver && on_matrix_driver program"
    assert call(script, "argument").stdout == f"{manifest} --library-path {libraries} program argument\n"
