"""Adapters in the environments that bring their drivers. What children list is made up by a module that they load."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from dmlgpu.common.errors import InvalidArgument
from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.conformance.drivers import discovery
from dmlgpu.conformance.drivers.discovery import (
    DRIVER_VARIABLES,
    LocatedAdapter,
    all_drivers,
    in_environment,
    machine_manifests,
    manifests_at,
    of_drivers,
    process_adapters,
    with_labels,
)
from dmlgpu.runtime.adapters import adapters
from dmlgpu.runtime.numpy import NUMPY_ADAPTER

MADE_UP = """
import os, sys, time
manifest = os.path.basename(os.environ.get("VK_DRIVER_FILES", "own"))
if manifest == "crash.json":
    print("no such device", file=sys.stderr, flush=True)
    os._exit(3)
if manifest == "hang.json":
    time.sleep(1000)
from dmlgpu.runtime import wgpu as gpu
from dmlgpu.compiler.target import AdapterInfo
def llvmpipe(backend, version):
    return AdapterInfo("llvmpipe (LLVM 15)", backend, "cpu", "Mesa", f"Mesa {version}", ("shader-f16",), {"a": 1})
card = AdapterInfo("Card", "Vulkan", "discrete", "Example", "Example 1.2")
opengl, mesa25 = llvmpipe("OpenGL", "25.0.7"), llvmpipe("Vulkan", "25.0.7")
found = {
    "own": (mesa25, opengl),
    os.path.basename(os.devnull): (opengl,),
    "mesa25.json": (mesa25,),
    "mesa26.json": (llvmpipe("OpenGL", "26.1.6"), llvmpipe("Vulkan", "26.1.6")),
    "cards.json": (card, card),
}
def adapters():
    print("a driver prints this", flush=True)
    return found.get(manifest, ())
gpu.adapters, gpu.dawn_adapters = adapters, tuple
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of manifests; children find what each of them brings, in an environment with no other drivers."""
    for name in DRIVER_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "sitecustomize.py").write_text(MADE_UP)
    paths = [str(modules), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    monkeypatch.setattr(sys, "platform", "linux")
    manifests = tmp_path / "icd.d"
    manifests.mkdir()
    for name in ("mesa25", "mesa26", "cards", "crash", "hang", "empty"):
        (manifests / f"{name}.json").write_text("{}")
    return manifests


@pytest.mark.slow
def test_every_adapter_is_found_once(folder, monkeypatch):
    monkeypatch.setattr(discovery, "machine_manifests", lambda: (folder / "mesa25.json", folder / "crash.json"))
    result = all_drivers([folder / "mesa26.json", folder / "empty.json"])
    mesa26 = (("VK_DRIVER_FILES", str(folder / "mesa26.json")), ("__EGL_VENDOR_LIBRARY_FILENAMES", os.devnull))
    assert [
        (adapter.label, adapter.info.driver, adapter.index, adapter.environment) for adapter in result.adapters
    ] == [
        ("llvmpipe Vulkan 25.0.7", "Mesa 25.0.7", 0, ()),
        ("llvmpipe OpenGL", "Mesa 25.0.7", 1, ()),
        ("llvmpipe Vulkan 26.1.6", "Mesa 26.1.6", 1, mesa26),
        ("numpy", NUMPY_ADAPTER.driver, 2, ()),
    ]
    crash = f"{folder / 'crash.json'}: the adapters could not be listed"
    assert result.problems == (
        f"{crash}: the process ended with exit code 3\nno such device",
        f"{folder / 'empty.json'}: the driver has no adapter",
    )
    assert result.adapters[0].info == AdapterInfo(
        "llvmpipe (LLVM 15)", "Vulkan", "cpu", "Mesa", "Mesa 25.0.7", ("shader-f16",), {"a": 1}
    )


def test_a_driver_that_crashes_takes_no_other_adapter_with_it(folder, monkeypatch):
    monkeypatch.setenv("VK_DRIVER_FILES", str(folder / "crash.json"))
    monkeypatch.setattr(discovery, "machine_manifests", tuple)
    result = all_drivers()
    assert [adapter.label for adapter in result.adapters] == ["llvmpipe OpenGL", "numpy"]
    assert [adapter.environment for adapter in result.adapters] == [(("VK_DRIVER_FILES", os.devnull),)] * 2
    (problem,) = result.problems
    assert problem.startswith("this process's drivers: the adapters could not be listed: the process ended with")


def test_a_driver_that_hangs_is_given_up(folder, monkeypatch):
    monkeypatch.setattr(discovery, "LISTING_LIMIT", 0.5)
    result = of_drivers([folder / "hang.json"])
    assert result.adapters == ()
    assert result.problems == (f"{folder / 'hang.json'}: the adapters were not listed within 0.5 s",)


def test_equal_cards_stay_apart(folder):
    discovery = of_drivers([folder / "cards.json"])
    assert [(adapter.label, adapter.index) for adapter in discovery.adapters] == [
        ("Card Vulkan 1.2 #1", 0),
        ("Card Vulkan 1.2 #2", 1),
    ]


def test_this_process():
    known = adapters()
    assert [(adapter.info, adapter.index) for adapter in process_adapters()] == list(
        zip(known, range(len(known)), strict=True)
    )
    assert len({adapter.label for adapter in process_adapters()}) == len(known)


def test_variables_of_this_process_are_passed_on_to_children(monkeypatch):
    adapters()
    for name in DRIVER_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert process_adapters()[-1].environment == ()
    monkeypatch.setenv("VK_DRIVER_FILES", "a.json")
    assert process_adapters()[-1] == LocatedAdapter(
        NUMPY_ADAPTER, len(adapters()) - 1, (("VK_DRIVER_FILES", "a.json"),), "numpy"
    )


# ---- manifests


def test_a_folder_stands_for_its_manifests(folder):
    assert [path.name for path in manifests_at(folder)][:3] == ["cards.json", "crash.json", "empty.json"]
    assert manifests_at(folder / "mesa25.json") == (folder / "mesa25.json",)


@pytest.mark.parametrize("name", ["missing.json", "modules"])
def test_no_manifest(folder, name):
    path = folder.parent / name
    with pytest.raises(InvalidArgument) as error:
        manifests_at(path)
    assert str(error.value) == f"{path} must be a Vulkan driver's manifest, or a folder with such files (*.json)"


def test_manifests_are_looked_for_where_the_loader_does(folder, tmp_path, monkeypatch):
    config, data = tmp_path / "config" / "vulkan" / "icd.d", tmp_path / "data" / "vulkan" / "icd.d"
    for path in (config, data):
        path.mkdir(parents=True)
    (config / "b.json").write_text("{}")
    (data / "a.json").write_text("{}")
    (data / "same.json").symlink_to(config / "b.json")
    monkeypatch.setenv("VK_ADD_DRIVER_FILES", f"{folder / 'cards.json'}{os.pathsep}{tmp_path / 'missing.json'}")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CONFIG_DIRS", str(tmp_path / "none"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "none"))
    monkeypatch.setenv("XDG_DATA_DIRS", f"{tmp_path / 'data'}{os.pathsep}{tmp_path / 'none'}")
    manifests = [path for path in machine_manifests() if tmp_path in path.parents]
    assert manifests == [folder / "cards.json", config / "b.json", data / "a.json"]


@pytest.mark.usefixtures("homeless")
def test_a_user_without_a_home_has_the_manifests_that_variables_name(folder, monkeypatch):
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("VK_ADD_DRIVER_FILES", str(folder / "cards.json"))
    assert folder / "cards.json" in machine_manifests()


def test_elsewhere_than_on_linux_there_is_nothing_to_look_for(monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    assert machine_manifests() == ()


# ---- strings


def test_labels_say_no_more_than_it_takes():
    old = AdapterInfo("llvmpipe (LLVM 15)", "Vulkan", "cpu", "", "Mesa 22.3.6")
    new, opengl = replace(old, driver="Mesa 25.0.7 (LLVM 15)"), replace(old, backend="OpenGL")
    assert _labels(old, opengl, NUMPY_ADAPTER) == ["llvmpipe Vulkan", "llvmpipe OpenGL", "numpy"]
    assert _labels(old, opengl, new) == ["llvmpipe Vulkan 22.3.6", "llvmpipe OpenGL", "llvmpipe Vulkan 25.0.7"]
    assert _labels(old, old, new) == [
        "llvmpipe Vulkan 22.3.6 #1",
        "llvmpipe Vulkan 22.3.6 #2",
        "llvmpipe Vulkan 25.0.7",
    ]
    nameless = replace(old, driver="")
    assert _labels(nameless, nameless) == ["llvmpipe Vulkan #1", "llvmpipe Vulkan #2"]


def _labels(*infos: AdapterInfo) -> list[str]:
    return [str(label) for label in with_labels(LocatedAdapter(info, 0) for info in infos)]


def test_a_command_sets_the_variables_of_the_driver():
    assert in_environment("dmlgpu test", {"A": "/x/y.json", "B": "a b"}) == "A=/x/y.json B='a b' dmlgpu test"
    assert in_environment("dmlgpu test", {}) == "dmlgpu test"
