"""``dmlgpu devices``."""

import json
from dataclasses import replace

import pytest

from dmlgpu.catalog.enums import DataType
from dmlgpu.cli import devices
from dmlgpu.cli.main import main
from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.conformance.drivers.discovery import Discovery, LocatedAdapter
from dmlgpu.runtime.wgpu import measured
from tests.unit.cli.cli_process import dmlgpu as command

CARD = AdapterInfo(
    name="Example GPU",
    backend="Vulkan",
    kind="discrete",
    vendor="Example",
    driver="Example 1.2",
    features=("shader-f16", "shader-int64"),
    limits={
        "max-storage-buffers-per-shader-stage": 10,
        "max-storage-buffer-binding-size": 1 << 30,
        "max-compute-workgroup-storage-size": 49152,
        "max-compute-workgroups-per-dimension": 65535,
        "max-texture-dimension-1d": 8192,
    },
)
NUMPY = AdapterInfo(name="numpy", backend="NumPy", kind="cpu", vendor="", driver="NumPy 2.0")


@pytest.fixture
def two_adapters(monkeypatch):
    monkeypatch.setattr(devices, "adapters", lambda: (CARD, NUMPY))
    monkeypatch.setattr(devices, "choose_adapter", lambda requested, announce=True: NUMPY if requested else CARD)


@pytest.mark.parametrize("kind", ["unknown", "discrete"])
def test_adapters_of_unknown_kind_are_tried(kind, monkeypatch):
    reason = "the driver cannot create a device: Parent device is lost"
    monkeypatch.setattr("dmlgpu.runtime.wgpu.why_unusable", lambda info: reason, raising=False)
    facts = dict(devices.facts_of(replace(CARD, kind=kind)))
    assert facts["unusable"] == (reason if kind == "unknown" else "")


def test_text_in_a_pipe(two_adapters, capsys):
    devices.show()
    assert capsys.readouterr().out == (
        "0  Vulkan: Example GPU (default)\n"
        "  kind        discrete\n"
        "  vendor      Example\n"
        "  driver      Example 1.2\n"
        "  features    shader-f16, shader-int64\n"
        "  data types  native: FLOAT32, UINT32, INT32, UINT64, INT64\n"
        "              in 32-bit arithmetic: FLOAT16, UINT16, UINT8, INT16, INT8, UINT4, INT4\n"
        "              moved and cast: FLOAT64\n"
        "              FLOAT16 uses shader-f16 only with the flag ALLOW_HALF_PRECISION_COMPUTATION, as in DirectML: "
        "float16 arithmetic is less accurate\n"
        "  checks      measured when the adapter is opened for the first time (docs/adapters.md)\n"
        "  limits      buffers per kernel 10, binding 1,024 MiB, workgroup memory 48 KiB, workgroups per axis 65,535\n"
        "\n"
        "1  NumPy: numpy\n"
        "  kind        cpu, software: runs on the CPU\n"
        "  driver      NumPy 2.0\n"
        "  data types  native: FLOAT32, FLOAT16, UINT32, UINT16, UINT8, INT32, INT16, INT8, FLOAT64, UINT64, INT64, "
        "UINT4, INT4\n"
    )


def test_what_kernels_avoid_is_listed(monkeypatch):
    monkeypatch.setitem(measured.CACHED, ("float16", str(CARD)), frozenset({"pack"}))
    assert dict(devices.facts_of(CARD))["avoided"] == "unpack2x16float (not exact)"
    monkeypatch.setitem(measured.CACHED, ("bounds", str(CARD)), frozenset())
    assert dict(devices.facts_of(CARD))["avoided"].splitlines() == [
        "unpack2x16float (not exact)",
        "kernels without checks of indices (the driver does not limit accesses of buffers)",
    ]
    assert (
        dict(devices.facts_of(CARD))["checks"] == "kernels keep wgpu's checks of indices and loops (docs/adapters.md)"
    )


def test_one_adapter_keeps_its_number(two_adapters, capsys):
    devices.show("numpy")
    assert capsys.readouterr().out.startswith("1  NumPy: numpy\n")


def test_json(two_adapters, capsys):
    devices.show(as_json=True)
    card, numpy = json.loads(capsys.readouterr().out)
    assert {key: card[key] for key in ("index", "name", "backend", "kind", "vendor", "driver", "default")} == {
        "index": 0,
        "name": "Example GPU",
        "backend": "Vulkan",
        "kind": "discrete",
        "vendor": "Example",
        "driver": "Example 1.2",
        "default": True,
    }
    assert card["features"] == ["shader-f16", "shader-int64"]
    assert card["limits"] == CARD.limits
    assert card["data_types"]["INT64"] == "native"
    assert card["data_types"]["FLOAT64"] == "moved and cast"
    assert (numpy["index"], numpy["default"]) == (1, False)


@pytest.fixture
def all_drivers(monkeypatch):
    brought = LocatedAdapter(CARD, 0, (("VK_DRIVER_FILES", "/x/card.json"),), "Example GPU Vulkan")
    discovery = Discovery((LocatedAdapter(NUMPY, 1, (), "numpy"), brought), ("/x/old.json: no answer",))
    monkeypatch.setattr("dmlgpu.cli.devices.all_drivers", lambda paths: discovery)


def test_every_driver_of_the_machine(all_drivers, capsys):
    assert main(["devices", "--drivers", "all"]) == 0
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert [line for line in lines if not line.startswith("  ")] == ["0  NumPy: numpy", "", "1  Vulkan: Example GPU"]
    assert lines[-1] == "  environment  VK_DRIVER_FILES=/x/card.json"
    assert captured.err == "dmlgpu: /x/old.json: no answer\n"


def test_one_adapter_of_another_driver(all_drivers, capsys):
    assert main(["devices", "--drivers", "all", "--adapter", "example", "--json"]) == 0
    (card,) = json.loads(capsys.readouterr().out)
    assert {key: card[key] for key in ("index", "label", "number", "environment", "features")} == {
        "index": 1,
        "label": "Example GPU Vulkan",
        "number": 0,
        "environment": {"VK_DRIVER_FILES": "/x/card.json"},
        "features": ["shader-f16", "shader-int64"],
    }
    assert "default" not in card


def test_every_data_type_is_listed():
    assert list(devices.data_type_support(CARD)) == [kind.name for kind in DataType if kind is not DataType.UNKNOWN]


def test_64_bit_types_without_their_features():
    plain = AdapterInfo(name="x", backend="OpenGL", kind="cpu", vendor="", driver="")
    support = devices.data_type_support(plain)
    assert (support["INT64"], support["UINT64"], support["FLOAT64"]) == (
        "as pairs of words",
        "as pairs of words",
        "moved and cast",
    )


@pytest.mark.slow
def test_this_machine():
    listed = json.loads(command("devices", "--json").stdout)
    assert listed[-1]["name"] == "numpy"
    assert [entry["index"] for entry in listed] == list(range(len(listed)))
    assert sum(entry["default"] for entry in listed) == 1
    chosen = json.loads(command("devices", "--json", environment={"DMLGPU_ADAPTER": "numpy"}).stdout)
    assert [entry["name"] for entry in chosen if entry["default"]] == ["numpy"]
