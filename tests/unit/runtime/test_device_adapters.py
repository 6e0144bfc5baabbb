"""Which adapter a device takes."""

import warnings

import numpy as np
import pytest

import dmlgpu
from dmlgpu import AdapterInfo, AdapterNotFound, Device, DriverFaultWarning, SoftwareAdapterWarning, ops
from dmlgpu.runtime import adapters
from dmlgpu.runtime import device as devices
from dmlgpu.runtime import wgpu as gpu
from dmlgpu.runtime.numpy import NUMPY_ADAPTER
from tests.unit.device_objects import raises

CARD = AdapterInfo("GeForce", "Vulkan", "discrete", "NVIDIA", "550.1")
CARD_ON_OPENGL = AdapterInfo("GeForce", "OpenGL", "discrete", "NVIDIA", "550.1")
SOFTWARE = AdapterInfo("llvmpipe", "Vulkan", "cpu", "Mesa", "Mesa 25")
SOFTWARE_ON_OPENGL = AdapterInfo("llvmpipe", "OpenGL", "cpu", "Mesa", "Mesa 25")
ON_DAWN = AdapterInfo("GeForce", "Dawn Vulkan", "discrete", "NVIDIA", "550.1, Dawn 20261009")
NUMPY = str(NUMPY_ADAPTER)


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    monkeypatch.delenv("DMLGPU_ADAPTER", raising=False)
    monkeypatch.setattr(adapters, "announced", set())


@pytest.fixture
def machine(monkeypatch):
    """Makes wgpu report certain adapters, and Dawn those of its own."""

    def report(*infos: AdapterInfo) -> None:
        monkeypatch.setattr(gpu, "adapters", lambda: tuple(info for info in infos if not info.is_of_dawn))
        monkeypatch.setattr(gpu, "dawn_adapters", lambda: tuple(info for info in infos if info.is_of_dawn))

    return report


def test_adapters_of_dawn_follow_those_of_wgpu(machine):
    machine(ON_DAWN, SOFTWARE)
    assert dmlgpu.adapters() == (SOFTWARE, ON_DAWN, NUMPY_ADAPTER)
    assert [adapters.choose(choice) for choice in ("dawn", "geforce", 1, "1", np.int64(1))] == [ON_DAWN] * 5
    assert adapters.choose(2) == adapters.choose("2") == NUMPY_ADAPTER
    assert (ON_DAWN.api, str(ON_DAWN)) == ("Vulkan", "Dawn Vulkan: GeForce (550.1, Dawn 20261009)")


def test_dawn_is_not_a_default(machine):
    machine(ON_DAWN, SOFTWARE)
    assert adapters.choose(announce=False) == SOFTWARE
    machine(ON_DAWN)
    assert adapters.choose(announce=False) == NUMPY_ADAPTER


def test_dawn_is_not_loaded_if_another_adapter_matches(machine, monkeypatch):
    machine(SOFTWARE, CARD)
    monkeypatch.setattr(gpu, "dawn_adapters", lambda: pytest.fail("Dawn was loaded"))
    assert adapters.choose() == adapters.choose("geforce") == CARD
    assert adapters.choose("numpy") == NUMPY_ADAPTER


def test_numpy_comes_last(machine):
    machine(SOFTWARE, CARD)
    assert dmlgpu.adapters() == (SOFTWARE, CARD, NUMPY_ADAPTER)


@pytest.mark.parametrize(
    ("infos", "chosen"),
    [
        ((SOFTWARE, CARD), CARD),
        ((SOFTWARE_ON_OPENGL, SOFTWARE, CARD_ON_OPENGL, CARD), CARD),
        ((SOFTWARE, CARD_ON_OPENGL), CARD_ON_OPENGL),
    ],
)
def test_hardware_goes_first_without_a_word_and_opengl_last(machine, infos, chosen):
    machine(*infos)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert adapters.choose() is chosen


def test_hardware_that_creates_no_device_is_passed_over(machine, monkeypatch):
    """Old GPUs have OpenGL without compute shaders."""
    old = AdapterInfo("HD Graphics 3000", "OpenGL", "unknown", "Intel", "Mesa 25")
    monkeypatch.setattr(gpu, "why_unusable", {old: "it has no compute shaders"}.get, raising=False)
    machine(SOFTWARE, old)
    with pytest.warns(SoftwareAdapterWarning) as caught:
        assert adapters.choose() is SOFTWARE
    assert [str(warning.message) for warning in caught] == [
        "no usable hardware adapter was found ('OpenGL: HD Graphics 3000': it has no compute shaders): dmlgpu computes "
        "on 'Vulkan: llvmpipe', in software; Device('llvmpipe') or DMLGPU_ADAPTER=llvmpipe silences this"
    ]
    assert adapters.choose("hd graphics") is old


@pytest.mark.parametrize(
    ("infos", "chosen", "text"),
    [
        (
            (SOFTWARE_ON_OPENGL, SOFTWARE),
            SOFTWARE,
            "no hardware adapter was found: dmlgpu computes on 'Vulkan: llvmpipe', in software; Device('llvmpipe') or "
            "DMLGPU_ADAPTER=llvmpipe silences this",
        ),
        (
            (),
            NUMPY_ADAPTER,
            "no GPU adapter was found: dmlgpu computes on 'numpy', in software; Device('numpy') or "
            "DMLGPU_ADAPTER=numpy silences this",
        ),
    ],
)
def test_software_is_announced(machine, infos, chosen, text):
    machine(*infos)
    with pytest.warns(SoftwareAdapterWarning) as caught:
        assert adapters.choose() is chosen
    assert [str(warning.message) for warning in caught] == [text]
    assert [warning.filename for warning in caught] == [__file__]


def test_software_is_announced_once_in_a_process(machine):
    machine(SOFTWARE)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        adapters.choose(announce=False)
        assert caught == []
        for _ in range(3):
            adapters.choose()
        adapters.choose()  # another line of code
    assert len(caught) == 1


def test_the_warning_points_at_the_caller(machine, monkeypatch):
    """Whichever function of dmlgpu looks for an adapter first."""
    calls = {"Device": Device, "Tensor": lambda: dmlgpu.Tensor([1.0]), "softmax": lambda: ops.softmax([1.0, 2.0])}
    for name, call in calls.items():
        machine()
        monkeypatch.setattr(adapters, "announced", set())
        monkeypatch.setattr(devices._Default, "by_environment", None)
        monkeypatch.setattr(devices, "shared", {})
        with pytest.warns(SoftwareAdapterWarning) as caught:
            call()
        assert [warning.filename for warning in caught] == [__file__], name


@pytest.mark.parametrize(
    ("wish", "chosen"),
    [
        ("geforce", CARD),
        ("MESA", SOFTWARE),
        (" opengl: ge", CARD_ON_OPENGL),
        (0, SOFTWARE),
        ("1", CARD),
        (3, NUMPY_ADAPTER),
        (CARD, CARD),
    ],
)
def test_a_wish(machine, wish, chosen):
    machine(SOFTWARE, CARD, CARD_ON_OPENGL)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert adapters.choose(wish) is chosen


def test_the_environment_chooses(machine, monkeypatch):
    machine(SOFTWARE, CARD)
    for value, chosen in (("llvm", SOFTWARE), ("1", CARD), ("", CARD)):
        monkeypatch.setenv("DMLGPU_ADAPTER", value)
        assert adapters.choose() is chosen
    assert adapters.choose("geforce") is CARD


def test_asking_for_numpy_does_not_look_at_drivers(monkeypatch):
    monkeypatch.setattr(gpu, "adapters", None)
    assert Device(" NumPy ").adapter is NUMPY_ADAPTER


@pytest.mark.parametrize("wish", ["radeon", 3, -1, "3"])
def test_no_match_lists_them_all(machine, wish):
    machine(SOFTWARE, CARD)
    shown = 3 if wish == "3" else wish
    with raises(
        AdapterNotFound,
        f"no adapter matches {shown!r}; available adapters:\n  0: Vulkan: llvmpipe (Mesa 25)\n"
        f"  1: Vulkan: GeForce (550.1)\n  2: {NUMPY}",
    ):
        Device(wish)


def test_the_default_device_is_kept_until_it_is_removed(monkeypatch):
    monkeypatch.setattr(devices._Default, "by_environment", None)
    monkeypatch.setenv("DMLGPU_ADAPTER", "numpy")
    first = dmlgpu.default_device()
    assert dmlgpu.default_device() is first
    first.remove()
    second = dmlgpu.default_device()
    assert second is not first
    assert second.removed_reason is None


def test_numpy_has_no_wgpu_device():
    assert Device("numpy").parent is None


# ---- known faults


def test_opening_a_driver_with_a_known_fault_warns_once(monkeypatch):
    old = AdapterInfo("llvmpipe (LLVM 15)", "Vulkan", "cpu", "llvmpipe", "Mesa 22.3.6")
    backend = Device("numpy").backend
    monkeypatch.setattr(backend, "info", old)
    monkeypatch.setattr(devices, "open_executor", lambda info, options: backend)
    with pytest.warns(DriverFaultWarning, match=r"end after 65,535 iterations .* install Mesa 25") as caught:
        Device(old)
        Device(old)
    assert len(caught) == 1
    assert caught[0].filename == __file__
