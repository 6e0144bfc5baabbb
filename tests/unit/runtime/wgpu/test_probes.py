"""The table of probes: what overrides a measurement, what is cached, and which targets follow."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

import pytest

from dmlgpu.common.errors import DmlError, InvalidArgument
from dmlgpu.compiler.target import (
    COOPERATIVE,
    SOFTWARE_FLOAT16,
    AdapterInfo,
    Division,
    Float16Conversions,
    Float16Encoding,
    Matrices,
    Profile,
    Target,
)
from dmlgpu.compiler.tuned_files import identity
from dmlgpu.runtime.wgpu import cooperative, measured
from dmlgpu.runtime.wgpu.measured import Probe
from dmlgpu.runtime.wgpu.probes import (
    CHECKS,
    DIVISION,
    FLOAT16,
    FLOAT_MATRICES,
    INTEGER_MATRICES,
    MATRICES,
    PROBES,
    SUBGROUPS,
    avoided,
    with_facts,
)

FEATURES = ("shader-f16", "subgroup")
CARD = AdapterInfo("Card", "Vulkan", "discrete", "maker", "driver 1", FEATURES)
INTEGRATED, CPU, UNKNOWN = (replace(CARD, kind=kind) for kind in ("integrated", "cpu", "unknown"))
METAL, D3D12, OPENGL = (replace(CARD, backend=backend) for backend in ("Metal", "D3D12", "OpenGL"))
TARGET = Target("Card", features=frozenset(FEATURES))
PLAIN = Target("Card")
PACK, F16 = Float16Encoding.PACK, Float16Encoding.F16
READERS: dict[str, Callable[[Target], object]] = {
    "division": lambda target: target.division,
    "float16": lambda target: target.float16,
    "bounds": lambda target: target.policies.checked,
    "subgroups": lambda target: target.features,
    "matrices": lambda target: target.features,
    "float-matrices": lambda target: target.matrices,
    "integer-matrices": lambda target: target.matrices,
}

of_every_probe = pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)


@pytest.fixture(autouse=True)
def unmeasured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("DMLGPU_CACHE", *(probe.variable for probe in PROBES if probe.variable)):
        monkeypatch.delenv(variable, raising=False)
    for variable in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(variable, str(tmp_path))
    monkeypatch.setattr(measured, "CACHED", {})
    monkeypatch.setattr(measured, "FAILURES", {})


def value_of(probe: Probe, facts: Collection[str], info: AdapterInfo = CARD, target: Target = TARGET) -> object:
    """The field of an adapter's target after facts have been measured."""
    measured.CACHED[probe.name, str(info)] = frozenset(facts)
    return READERS[probe.name](with_facts(info, target))


# ---- measured facts


@pytest.mark.parametrize(
    ("probe", "facts", "target", "expected"),
    [
        (DIVISION, {"native", "fused"}, TARGET, Division.NATIVE),
        (DIVISION, {"fused"}, TARGET, Division.FUSED),
        (DIVISION, (), TARGET, Division.SOFTWARE),
        (FLOAT16, {"unpack", "pack", "f16"}, TARGET, Float16Conversions(True, PACK)),
        (FLOAT16, {"unpack", "f16"}, TARGET, Float16Conversions(True, F16)),
        (FLOAT16, {"unpack", "f16"}, PLAIN, Float16Conversions(True)),
        (FLOAT16, {"f16"}, TARGET, Float16Conversions(False, F16)),
        (FLOAT16, (), TARGET, SOFTWARE_FLOAT16),
        (CHECKS, {"limited"}, TARGET, False),
        (CHECKS, (), TARGET, True),
        (SUBGROUPS, {"full"}, TARGET, {"shader-f16", "subgroup"}),
        (SUBGROUPS, (), TARGET, {"shader-f16"}),
    ],
)
def test_gpus_use_what_is_correct(probe: Probe, facts: Collection[str], target: Target, expected: object) -> None:
    assert value_of(probe, facts, CARD, target) == expected
    assert value_of(probe, facts, INTEGRATED, target) == expected


@pytest.mark.parametrize(
    ("subgroups", "matrices", "expected"),
    [
        ({"full"}, {"equal", "faster"}, cooperative.NEEDED),
        ({"full"}, {"equal"}, cooperative.NEEDED - {COOPERATIVE}),
        ({"full"}, (), cooperative.NEEDED - {COOPERATIVE}),
        ((), {"equal", "faster"}, {"shader-f16"}),
    ],
)
def test_matrix_units_need_subgroups(subgroups: set[str], matrices: set[str], expected: set[str]) -> None:
    value_of(SUBGROUPS, subgroups)
    target = replace(TARGET, features=cooperative.NEEDED, matrices=Matrices())
    assert value_of(MATRICES, matrices, CARD, target) == expected
    assert (with_facts(CARD, target).matrices is None) == (COOPERATIVE not in expected)
    assert value_of(MATRICES, matrices, CARD, replace(TARGET, features=frozenset({COOPERATIVE}))) == set()


@pytest.mark.parametrize(
    ("facts", "is_used"), [({"equal", "faster"}, True), ({"equal"}, False), ((), False), (None, True)]
)
@pytest.mark.parametrize(("probe", "field"), [(FLOAT_MATRICES, "floats"), (INTEGER_MATRICES, "integers")])
def test_other_matrix_units_are_measured_by_themselves(
    facts: set[str] | None, is_used: bool, probe: Probe, field: str
) -> None:
    value_of(SUBGROUPS, {"full"})
    value_of(MATRICES, {"equal", "faster"})
    if facts is not None:
        value_of(probe, facts)
    units = replace(Matrices(), **{field: Matrices(steps=32)})
    target = with_facts(CARD, replace(TARGET, features=cooperative.NEEDED, matrices=units))
    assert target.matrices == (units if is_used else Matrices())


def test_fields_of_unmeasured_facts_keep_their_values() -> None:
    target = replace(TARGET, features=cooperative.NEEDED)
    assert with_facts(CARD, target) == target
    assert [probe.facts(CARD, target.features) for probe in PROBES] == [None] * len(PROBES)


# ---- facts that are not measured


@pytest.mark.parametrize(
    ("probe", "info", "expected"),
    [
        (DIVISION, CPU, Division.NATIVE),
        (FLOAT16, CPU, SOFTWARE_FLOAT16),
        (SUBGROUPS, CPU, {"shader-f16", "subgroup"}),
        *((CHECKS, info, True) for info in (CPU, UNKNOWN, METAL, D3D12, OPENGL)),
    ],
)
def test_other_adapters_are_not_measured(probe: Probe, info: AdapterInfo, expected: object) -> None:
    for facts in ((), {"native", "pack", "limited", "full"}):
        assert value_of(probe, facts, info) == expected
    assert probe.given(info, FEATURES) is not None


def test_adapters_without_a_feature_are_not_measured() -> None:
    assert SUBGROUPS.given(CARD, ("shader-f16",)) == ()
    assert MATRICES.given(CARD, FEATURES) == ()


@pytest.mark.parametrize(
    ("probe", "value", "info", "expected"),
    [
        *((DIVISION, name, info, Division(name)) for name in Division for info in (CARD, CPU)),
        (FLOAT16, "software", CARD, SOFTWARE_FLOAT16),
        (FLOAT16, "pack", CPU, Float16Conversions(True, PACK)),
        (FLOAT16, "f16", CARD, Float16Conversions(True, F16)),
        (CHECKS, "always", CARD, True),
        (CHECKS, "never", CARD, False),
        (CHECKS, "never", CPU, False),
        (CHECKS, "never", D3D12, True),
        (CHECKS, "never", OPENGL, True),
        (SUBGROUPS, "always", CARD, {"shader-f16", "subgroup"}),
        (SUBGROUPS, " Never", CARD, {"shader-f16"}),
        (SUBGROUPS, "never", CPU, {"shader-f16"}),
    ],
)
def test_the_environment_overrides_measurements(
    probe: Probe, value: str, info: AdapterInfo, expected: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(probe.variable, value)
    for facts in ((), {"native", "pack", "limited", "full"}):
        assert value_of(probe, facts, info) == expected


@pytest.mark.parametrize(
    ("value", "info", "is_used"),
    [("always", CARD, True), ("always", CPU, True), ("never", CARD, False), ("auto", CPU, False), ("", CPU, False)],
)
def test_the_environment_and_the_kind_of_adapter_decide_on_matrix_units(
    value: str, info: AdapterInfo, is_used: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DMLGPU_MATRICES", value)
    value_of(SUBGROUPS, {"full"})
    target = replace(TARGET, features=cooperative.NEEDED, matrices=Matrices())
    for facts in ((), {"equal", "faster"}):
        assert (COOPERATIVE in value_of(MATRICES, facts, info, target)) == is_used
        # Only schedules for GPUs use them.
        assert with_facts(info, target).profile is (Profile.DISCRETE if is_used else Profile.CPU)


@pytest.mark.parametrize("probe", [CHECKS, SUBGROUPS, MATRICES, INTEGER_MATRICES], ids=lambda probe: probe.name)
def test_auto_measures(probe: Probe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(probe.variable, "auto")
    assert probe.facts(CARD, cooperative.NEEDED) is None


@pytest.mark.parametrize(
    ("probe", "expected"),
    [
        (DIVISION, "DMLGPU_DIVISION must be one of software, fused, native, got 'fast'"),
        (FLOAT16, "DMLGPU_FLOAT16 must be one of software, pack, f16, got 'fast'"),
        (CHECKS, "DMLGPU_CHECKS must be one of auto, always, never, got 'fast'"),
        (SUBGROUPS, "DMLGPU_SUBGROUPS must be one of auto, always, never, got 'fast'"),
        (MATRICES, "DMLGPU_MATRICES must be one of auto, always, never, got 'fast'"),
    ],
)
def test_an_unknown_value_is_rejected(probe: Probe, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(probe.variable, "fast")
    for info in (CARD, CPU, OPENGL):
        with pytest.raises(InvalidArgument) as caught:
            with_facts(info, PLAIN)
        assert str(caught.value) == expected


# ---- measuring and caching


@of_every_probe
def test_facts_are_measured_once_and_read_from_a_file(probe: Probe, tmp_path: Path) -> None:
    results = [frozenset({"one", "another"})]
    probe = replace(probe, measure=lambda device: results.pop())
    for _ in range(2):
        assert probe.facts(CARD, cooperative.NEEDED, object()) == {"one", "another"}  # type: ignore[arg-type]
        measured.CACHED.clear()
    (path,) = tmp_path.rglob("*.json")
    assert path.parent == tmp_path / "dmlgpu" / probe.name
    assert json.loads(path.read_text()) == {"format": 1, "adapter": identity(CARD), probe.name: ["another", "one"]}


@of_every_probe
def test_no_fact_holds_if_the_kernel_fails(probe: Probe, tmp_path: Path) -> None:
    def fail(device: object) -> frozenset[str]:
        raise DmlError("the kernel fails")

    assert replace(probe, measure=fail).facts(CARD, cooperative.NEEDED, object()) == set()  # type: ignore[arg-type]
    assert probe.known(CARD) is None
    assert probe.failure(CARD) == "the kernel fails"
    assert not list(tmp_path.rglob("*.json"))


def write(facts: list[str], info: AdapterInfo = CARD, **changes: object) -> Path:
    path = DIVISION.file(CARD)
    assert path is not None
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"format": 1, "adapter": identity(info), "division": facts} | changes))
    return path


@pytest.mark.parametrize("content", ["{", "[]", '{"format": 1}'])
def test_facts_are_measured_without_a_valid_file(content: str) -> None:
    write([]).write_text(content)
    assert DIVISION.known(CARD) is None


def test_facts_are_measured_again_for_another_driver_or_format(monkeypatch: pytest.MonkeyPatch) -> None:
    write(["native"], replace(CARD, driver="driver 2"))
    assert DIVISION.known(CARD) is None
    write(["native"], format=2)
    assert DIVISION.known(CARD) is None
    write(["native"])
    monkeypatch.setenv("DMLGPU_CACHE", "off")
    assert DIVISION.known(CARD) is None


# ---- descriptions


@pytest.mark.parametrize(
    ("probe", "facts", "expected"),
    [
        (DIVISION, {"fused"}, ["quotients and square roots of the driver (not rounded correctly)"]),
        (DIVISION, {"native"}, []),
        (FLOAT16, {"unpack", "f16"}, ["pack2x16float (not exact)"]),
        (FLOAT16, (), ["unpack2x16float (not exact)", "pack2x16float (not exact)"]),
        (CHECKS, (), ["kernels without checks of indices (the driver does not limit accesses of buffers)"]),
        (SUBGROUPS, (), ["subgroup operations (subgroups are not full, or shuffles are wrong)"]),
    ],
)
def test_what_kernels_avoid_is_described(
    probe: Probe, facts: Collection[str], expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert avoided(CARD) == []
    for info in (CARD, CPU):
        measured.CACHED[probe.name, str(info)] = frozenset(facts)
    assert avoided(CARD) == expected
    assert avoided(CPU) == []
    monkeypatch.setenv(probe.variable, list(probe.values)[-1])
    assert avoided(CARD) == []
