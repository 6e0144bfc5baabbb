"""Files that a model may read and write; output files are written atomically."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dmlgpu
from dmlgpu.common.errors import ModelError
from dmlgpu.frontends import dxdispatch
from tests.unit.cli.cli_process import run_here

OUTSIDE = "; a model may {} it only with --allow-paths (in Python allow_paths=True)"


@pytest.fixture(scope="module")
def device() -> dmlgpu.Device:
    return dmlgpu.Device("numpy")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current directory with files of the user, next to the folder of a model and one for results."""
    for name in ("home", "model", "results"):
        (tmp_path / name).mkdir()
    (tmp_path / "home" / "own.bin").write_bytes(bytes([1, 2, 3, 4]))
    (tmp_path / "model" / "a.bin").write_bytes(bytes([5, 6, 7, 8]))
    monkeypatch.chdir(tmp_path / "home")
    return tmp_path / "home"


def written(home: Path, source: str = "a.bin", target: str = "b.bin") -> Path:
    """A model that reads a file and writes another."""
    model: dict[str, Any] = {
        "resources": {"X": {"initialValuesDataType": "UINT8", "initialValues": {"sourcePath": source}}},
        "dispatchables": {},
        "commands": [{"type": "writeFile", "resource": "X", "targetPath": target}],
    }
    path = home.parent / "model" / "model.json"
    path.write_text(json.dumps(model))
    return path


def run(model: Path, device: dmlgpu.Device, **more: Any) -> None:
    dxdispatch.run(model, device, output_directory=model.parents[1] / "results", **more)


def complaint(model: Path, device: dmlgpu.Device, **more: Any) -> str:
    with pytest.raises(ModelError) as caught:
        run(model, device, **more)
    return str(caught.value)


@pytest.mark.parametrize(
    "source", ["{home}/own.bin", "../home/own.bin", "a/../../home/own.bin", "link", "folder/own.bin"]
)
def test_files_outside_the_folder_are_read_only_where_that_is_allowed(
    home: Path, device: dmlgpu.Device, source: str
) -> None:
    (home.parent / "model" / "a").mkdir()
    (home.parent / "model" / "link").symlink_to(home / "own.bin")
    (home.parent / "model" / "folder").symlink_to("../home")
    model = written(home, source.format(home=home))
    own = home / "own.bin"
    path = "$.resources.X.initialValues.sourcePath"
    assert complaint(model, device) == f"{path}: {str(own)!r} lies outside the model's folder{OUTSIDE.format('read')}"
    run(model, device, allow_paths=True)
    assert (home.parent / "results" / "b.bin").read_bytes() == own.read_bytes()


def test_files_of_the_current_directory_are_found_only_where_that_is_allowed(home: Path, device: dmlgpu.Device) -> None:
    model = written(home, "own.bin")
    with pytest.raises(dxdispatch.MissingFile, match=r"there is no file '.*model.own\.bin'$"):
        dxdispatch.load(model)
    assert dxdispatch.load(model, allow_paths=True).resources["X"].values.count == 4


def test_links_within_the_folder_are_followed(home: Path, device: dmlgpu.Device) -> None:
    (home.parent / "model" / "link").symlink_to("a.bin")
    (home.parent / "other").symlink_to("model")
    written(home, "link")
    run(home.parent / "other" / "model.json", device)
    assert (home.parent / "results" / "b.bin").read_bytes() == bytes([5, 6, 7, 8])


@pytest.mark.parametrize("target", ["{home}/own.bin", "link", "folder/own.bin", "folder/new/own.bin"])
def test_files_outside_the_output_directory_are_written_only_where_that_is_allowed(
    home: Path, device: dmlgpu.Device, target: str
) -> None:
    results = home.parent / "results"
    (results / "link").symlink_to(home / "own.bin")
    (results / "folder").symlink_to(home)
    model = written(home, target=target.format(home=home))
    resolved = home / target.format(home=home).removeprefix("folder/").replace("link", "own.bin")
    assert complaint(model, device) == (
        f"$.commands[0]: cannot write {str(results / target.format(home=home))!r}: {str(resolved)!r} lies outside "
        f"the output directory{OUTSIDE.format('write')}"
    )
    assert (home / "own.bin").read_bytes() == bytes([1, 2, 3, 4]) and not (home / "new").exists()
    run(model, device, allow_paths=True)
    assert resolved.read_bytes() == bytes([5, 6, 7, 8]) and (results / "link").is_symlink()


def test_targets_above_the_output_directory_where_that_is_allowed(home: Path, device: dmlgpu.Device) -> None:
    model = written(home, target="../home/own.bin")
    assert "must lie below the output directory" in complaint(model, device)
    run(model, device, allow_paths=True)
    assert (home / "own.bin").read_bytes() == bytes([5, 6, 7, 8])


def test_nothing_runs_before_all_targets_are_known_to_be_allowed(home: Path, device: dmlgpu.Device) -> None:
    model = written(home)
    text = json.loads(model.read_text())
    text["commands"].append({"type": "writeFile", "resource": "X", "targetPath": str(home / "own.bin")})
    model.write_text(json.dumps(text))
    assert complaint(model, device).startswith("$.commands[1]: cannot write ")
    assert not list((home.parent / "results").iterdir())


def test_pipes_devices_and_folders_are_rejected(home: Path, device: dmlgpu.Device) -> None:
    os.mkfifo(home.parent / "model" / "pipe")
    os.mkfifo(home.parent / "results" / "pipe")
    for name in ("pipe", "/dev/zero", "../model"):
        assert complaint(written(home, name), device, allow_paths=True).endswith(" is not a regular file")
        assert complaint(written(home, target=name), device, allow_paths=True).endswith(" is not a regular file")


def test_the_command_has_an_option_for_it(home: Path) -> None:
    model = written(home, str(home / "own.bin"))
    command = ["run", model, "-o", home.parent / "results", "-a", "numpy"]
    rejected = run_here(*command)
    assert (rejected.returncode, rejected.stdout) == (2, "")
    assert "only with --allow-paths" in rejected.stderr
    assert run_here(*command, "--allow-paths").returncode == 0
    assert (home.parent / "results" / "b.bin").read_bytes() == bytes([1, 2, 3, 4])


@pytest.mark.parametrize("suffix", ["bin", "npy"])
def test_a_full_disk_is_an_error_and_leaves_the_earlier_file(
    home: Path, device: dmlgpu.Device, limited_files: Any, suffix: str
) -> None:
    (home.parent / "model" / "a.bin").write_bytes(bytes(100_000))
    results = home.parent / "results"
    (results / f"b.{suffix}").write_text("earlier")
    model = written(home, target=f"b.{suffix}")
    limited_files(1 << 16)
    assert complaint(model, device) == f"$.commands[0]: cannot write {str(results / f'b.{suffix}')!r}: File too large"
    assert [(file.name, file.read_text()) for file in results.iterdir()] == [(f"b.{suffix}", "earlier")]
    limited_files(1 << 20)
    run(model, device)
    assert not np.fromfile(results / f"b.{suffix}", np.uint8)[-100_000:].any()
