"""The user's folders on each system, and for users without a home."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dmlgpu.common import folders


@pytest.mark.parametrize(
    ("system", "variables", "expected"),
    [
        ("linux", {}, "/home/jane/.cache"),
        ("linux", {"XDG_CACHE_HOME": ""}, "/home/jane/.cache"),
        ("linux", {"XDG_CACHE_HOME": "/scratch", "LOCALAPPDATA": "/local"}, "/scratch"),
        ("darwin", {"XDG_CACHE_HOME": "/scratch"}, "/scratch"),
        ("win32", {"XDG_CACHE_HOME": "/scratch"}, "/home/jane/AppData/Local"),
        ("win32", {"XDG_CACHE_HOME": "/scratch", "LOCALAPPDATA": "/local"}, "/local"),
    ],
)
def test_caches_are_in_the_folder_of_the_system(
    system: str, variables: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(Path, "home", lambda: Path("/home/jane"))
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert folders.user_caches() == Path(expected)
    assert folders.cache_folder() == Path(expected, "dmlgpu")


@pytest.mark.usefixtures("homeless")
def test_without_a_home_only_a_variable_names_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert folders.home() is None and folders.user_caches() is None
    with pytest.raises(FileNotFoundError, match="no folder for caches"):
        folders.cache_folder()
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(name, str(tmp_path))
    assert folders.home() is None and folders.cache_folder() == tmp_path / "dmlgpu"
