"""``dmlgpu doctor``: what it finds on machines that are well and that are not, as text and as JSON."""

import json
import os
import re
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from dmlgpu.cli import diagnosis, doctor
from dmlgpu.cli.diagnosis import (
    CASES,
    SUITE,
    Card,
    Examination,
    ExaminedAdapter,
    Loader,
    Manifest,
    read_manifest,
)
from dmlgpu.cli.doctor import Requirement
from dmlgpu.cli.main import EXTRAS, main
from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.conformance.drivers.discovery import Discovery, LocatedAdapter
from dmlgpu.conformance.running.outcome import Outcome, Status
from dmlgpu.conformance.suites.registry import suite_by_name
from dmlgpu.runtime.numpy import NUMPY_ADAPTER
from tests.unit.cli.cli_process import dmlgpu as command

CARD = AdapterInfo("Example GPU", "Vulkan", "discrete", "Example", "Example 1.2", ("shader-f16",), {})
SOFTWARE = AdapterInfo("llvmpipe (LLVM 15)", "Vulkan", "cpu", "llvmpipe", "Mesa 22.3.6")
GOOD = Outcome("argmin-example1", Status.PASS, seconds=0.25)
CRASHED = Outcome("argmin-example1", Status.CRASH, message="killed by signal 11 (SIGSEGV)")


def examined(info, outcome=GOOD, *, reached=True, default=False, environment=()):
    again = () if outcome.status.is_good else ("dmlgpu test --adapter 0 -k argmin-example1",)
    located = LocatedAdapter(info, 0, environment, f"{info.name} {info.backend}")
    return ExaminedAdapter(located, reached, default, (outcome,), again)


@pytest.fixture
def machine(monkeypatch):
    """Sets the facts of the machine, by default those of a working one."""

    def have(*adapters, problems=(), unmatched="", loaders=(), manifests=None, cards=(), requirements=()):
        known = adapters or (examined(CARD, default=True), examined(NUMPY_ADAPTER))
        monkeypatch.setattr(diagnosis, "examine", lambda: Examination(tuple(known), tuple(problems), unmatched))
        monkeypatch.setattr(diagnosis, "loaders", lambda: tuple(loaders))
        default = (Manifest("/x/card.json", "libcard.so", "1.3"),)
        monkeypatch.setattr(diagnosis, "manifests", lambda: default if manifests is None else manifests)
        monkeypatch.setattr(diagnosis, "cards", lambda: tuple(cards))
        monkeypatch.setattr(doctor, "requirements", lambda: tuple(requirements))
        monkeypatch.setattr(doctor, "caches", lambda: (doctor.CacheFolder("Mesa", "~/.cache/x", 2, 4096),))

    monkeypatch.setattr(doctor.sys, "platform", "linux")
    have()
    return have


def report(capsys):
    """Exit code, and what the JSON says is a problem and is a note, each with its remedy."""
    code = main(["doctor", "--json"])
    findings = json.loads(capsys.readouterr().out)["findings"]
    problems, notes = (
        [(finding["text"], finding["remedy"]) for finding in findings if finding["is_problem"] == kind]
        for kind in (1, 0)
    )
    return code, problems, notes


def test_a_machine_that_is_well(machine, capsys):
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert "adapter Example GPU Vulkan (default)\n  is          Vulkan: Example GPU (Example 1.2)\n" in text
    assert "  computes    argmin-example1: pass (0.25 s)\n" in text
    assert "  manifests  /x/card.json: libcard.so, Vulkan 1.3\n" in text
    assert "  ~/.cache/x  Mesa: 4,096 bytes in 2 files\n" in text
    assert text.endswith("no problems found\n")
    assert report(capsys) == (0, [], [])


def test_no_heading_stands_above_nothing_and_notes_are_a_list(machine, monkeypatch, capsys):
    monkeypatch.setattr(doctor, "environment", dict)
    machine(requirements=[Requirement(extra, "none", "", None, False) for extra in ("peers", "docs")])
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert not [line for line in lines if line.startswith("environment")]
    assert lines[lines.index("notes") :] == [
        "notes",
        "  1  optional extra peers: none not installed",
        "     pip install 'dmlgpu[peers]', if you need it",
        "  2  optional extra docs: none not installed",
        "     pip install 'dmlgpu[docs]', if you need it",
        "no problems found",
    ]


def test_the_json_holds_the_facts_of_a_bug_report(machine, capsys):
    main(["doctor", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert {"dmlgpu", "python", "wgpu", "numpy", "os", "cpu"} <= document["versions"].keys()
    card = document["adapters"][0]
    assert (card["name"], card["default"], card["works"], card["features"]) == (
        "Example GPU",
        True,
        True,
        ["shader-f16"],
    )
    assert [(computation["case"], computation["status"]) for computation in card["computations"]] == [
        ("argmin-example1", "pass")
    ]
    keys = {"format", "versions", "requirements", "environment", "caches", "loaders", "manifests", "cards"}
    assert document.keys() == keys | {"adapters", "problems", "findings"}


def test_an_adapter_that_crashes(machine, capsys):
    machine(examined(CARD, CRASHED, default=True), examined(NUMPY_ADAPTER))
    code, [(text, remedy)], notes = report(capsys)
    assert (code, notes) == (1, [])
    assert text == "Example GPU Vulkan fails argmin-example1: crash: killed by signal 11 (SIGSEGV)"
    assert remedy.startswith("reproduce with dmlgpu test --adapter 0 -k argmin-example1; see docs/is-it-my-driver.md")
    main(["doctor"])
    assert f"problems\n  1  {text}\n     {remedy}\n" in capsys.readouterr().out


REFUSAL = "the driver cannot create a device: Parent device is lost"
OPENGL = AdapterInfo("Example GPU/PCIe", "OpenGL", "unknown", "", "3.3.0 Example 1.2")
WITHOUT_DEVICE = Outcome("argmin-example1", Status.NOT_SUPPORTED, message=f"{OPENGL}: {REFUSAL}", missing="device")


@pytest.mark.parametrize(
    ("working", "says"),
    [
        (CARD, ("; the same GPU works by Vulkan", "use Example GPU Vulkan")),
        (replace(CARD, name="Other GPU"), ("", "use Other GPU Vulkan")),
    ],
)
def test_an_adapter_without_a_device_is_a_note_if_a_gpu_works(working, says, machine, capsys):
    machine(examined(working, default=True), examined(OPENGL, WITHOUT_DEVICE), examined(NUMPY_ADAPTER))
    text = f"Example GPU/PCIe OpenGL cannot be used: {REFUSAL}{says[0]}"
    assert report(capsys) == (0, [], [(text, says[1])])
    main(["doctor"])
    printed = capsys.readouterr().out
    assert "  computes    nothing: no device can be created\n" in printed
    assert f"notes\n  1  {text}\n     {says[1]}\nno problems found\n" in printed
    main(["doctor", "--json"])
    assert [adapter["works"] for adapter in json.loads(capsys.readouterr().out)["adapters"]] == [True, False, True]


@pytest.mark.parametrize("others", [(), (SOFTWARE,)])
def test_an_adapter_without_a_device_is_a_problem_without_a_gpu(others, machine, capsys):
    machine(examined(OPENGL, WITHOUT_DEVICE), *map(examined, others), examined(NUMPY_ADAPTER))
    code, problems, _ = report(capsys)
    alone = "there is no GPU adapter: everything runs on the NumPy reference, slowly"
    assert (code, [text for text, _ in problems]) == (
        1,
        [*([] if others else [alone]), f"Example GPU/PCIe OpenGL cannot be used: {REFUSAL}"],
    )


def test_no_gpu_adapter(machine, capsys):
    machine(examined(NUMPY_ADAPTER), loaders=[Loader("libvulkan.so.1", False)], manifests=())
    code, problems, _ = report(capsys)
    assert code == 1
    assert [text for text, _ in problems] == [
        "libvulkan.so.1 cannot be loaded",
        "no Vulkan driver is installed: there is no manifest",
        "there is no GPU adapter: everything runs on the NumPy reference, slowly",
    ]
    assert [word in remedy for word, (_, remedy) in zip(("libvulkan1", *["mesa-vulkan"] * 2), problems, strict=True)]


def test_a_gpu_adapter_that_only_another_driver_brings(machine, capsys):
    environment = (("VK_DRIVER_FILES", "/x/card.json"),)
    machine(examined(CARD, reached=False, environment=environment), examined(NUMPY_ADAPTER))
    _, problems, _ = report(capsys)
    text = "no GPU adapter is found by default, but another driver has Vulkan: Example GPU (Example 1.2)"
    assert problems == [(text, "VK_DRIVER_FILES=/x/card.json")]


def test_old_software_is_a_note(machine, capsys):
    machine(examined(SOFTWARE, default=True), examined(NUMPY_ADAPTER))
    code, problems, notes = report(capsys)
    assert (code, problems) == (0, [])
    assert [text for text, _ in notes] == [
        "all GPU adapters are software rasterizers: correct but slow",
        "llvmpipe (LLVM 15) Vulkan has the quirk mesa-loops: the loops of an invocation end after 65,535 iterations in "
        "total, without an error; dmlgpu's operators avoid it, your own kernels do not",
    ]
    assert notes[1][1].startswith("install Mesa 25 or newer")
    machine(examined(replace(SOFTWARE, driver="Mesa 25.0.7"), default=True), examined(CARD))
    assert report(capsys) == (0, [], [])


def test_reasons_for_missing_adapters(machine, capsys):
    machine(
        problems=["/x/old.json: the adapters could not be listed: killed by signal 6 (SIGABRT)"],
        unmatched="radeon",
        manifests=(Manifest("/x/broken.json", "/x/gone.so", "1.3", "its driver library does not exist"),),
        cards=[Card("/dev/dri/renderD128", False), Card("/dev/dri/renderD129", True)],
    )
    code, problems, _ = report(capsys)
    assert code == 1
    assert [text for text, _ in problems] == [
        "/x/broken.json: its driver library does not exist",
        "/dev/dri/renderD128: this user has no permission to read and write it",
        "/x/old.json: the adapters could not be listed: killed by signal 6 (SIGABRT)",
        "DMLGPU_ADAPTER is 'radeon', which matches no adapter of this machine",
    ]


def test_packages(machine, capsys):
    machine(
        requirements=[
            Requirement("", "wgpu", ">=0.32,<0.33", "0.30.0", False),
            Requirement("", "numpy", ">=2.0", "2.1", True),
            Requirement("onnx", "onnx", ">=1.19", None, False),
            Requirement("ocr", "onnx", ">=1.19", None, False),
            Requirement("ocr", "scipy", ">=1.11", None, False),
            Requirement("cli", "rich", ">=13", "12.0", False),
        ]
    )
    code, problems, notes = report(capsys)
    assert code == 1
    assert problems == [
        ("wgpu 0.30.0; dmlgpu needs wgpu>=0.32,<0.33", "pip install 'wgpu>=0.32,<0.33'"),
        ("rich 12.0; the extra cli needs rich>=13", "pip install 'dmlgpu[cli]'"),
    ]
    assert notes == [
        ("optional extra onnx: onnx not installed", "pip install 'dmlgpu[onnx]', if you need it"),
        ("optional extra ocr: onnx, scipy not installed", "pip install 'dmlgpu[ocr]', if you need it"),
    ]


def test_requirements_of_the_metadata(monkeypatch):
    lines = [
        "numpy>=2.0",
        "wgpu<0.1",
        "typer>=0.16; extra == 'cli'",
        'nonesuch-package>=1; extra == "onnx"',
        "dmlgpu[cli]; extra == 'demo'",
        "ruff>=0.6; extra == 'test'",
        "scipy>=1.11; (python_version < '3.0') and extra == 'ocr'",
        "onnx>=1.19; (python_version > '3.0') and extra == 'ocr'",
    ]
    monkeypatch.setattr(doctor, "requires", lambda name: lines)
    monkeypatch.setattr(doctor, "installed", {"numpy": "2.4", "wgpu": "0.32.0", "typer": "0.20"}.get)
    assert doctor.requirements() == (
        Requirement("", "numpy", ">=2.0", "2.4", True),
        Requirement("", "wgpu", "<0.1", "0.32.0", False),
        Requirement("cli", "typer", ">=0.16", "0.20", True),
        Requirement("onnx", "nonesuch-package", ">=1", None, False),
        Requirement("ocr", "onnx", ">=1.19", None, False),
    )


FOR_USERS = {
    "cli",
    "onnx",
    "llm",
    "grammar",
    "server",
    "audio",
    "torch",
    "demo",
    "ocr",
    "train",
    "browser",
    "bench",
    "cluster",
    "dawn",
    "docs",
    "peers",
}


@pytest.fixture
def extras():
    """The requirements of each extra, as pyproject.toml has them."""
    text = (Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)["project"]["optional-dependencies"]


def test_every_extra_for_users_is_examined_and_no_other(extras, monkeypatch):
    lines = [
        f"{requirement.partition(';')[0]}; extra == '{extra}'"
        for extra, requirements in extras.items()
        for requirement in requirements
    ]
    monkeypatch.setattr(doctor, "requires", lambda name: lines)
    assert {requirement.extra for requirement in doctor.requirements()} == FOR_USERS
    assert FOR_USERS.isdisjoint(doctor.FOR_WORK) and FOR_USERS.union(doctor.FOR_WORK) == extras.keys()


def test_a_missing_module_names_an_extra_that_installs_it(extras):
    packages = {"PIL": "pillow", "skimage": "scikit-image", "sklearn": "scikit-learn"}
    for module, extra in EXTRAS.items():
        assert packages.get(module, module) in [re.match(r"[\w-]+", extra)[0] for extra in extras[extra]]


def test_variables_that_matter_and_no_others(monkeypatch):
    monkeypatch.setattr(Path, "home", lambda: Path("/home/jane"))
    for name in doctor.environment():
        monkeypatch.delenv(name)
    monkeypatch.setenv("VK_DRIVER_FILES", "/home/jane/x.json:/home/janet/y.json")
    monkeypatch.setenv("SECRET_TOKEN", "x")
    assert doctor.environment() == {"VK_DRIVER_FILES": "~/x.json:/home/janet/y.json"}


def test_caches(monkeypatch, tmp_path):
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    for name in ("XDG_CACHE_HOME", "__GL_SHADER_DISK_CACHE_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MESA_SHADER_CACHE_DIR", str(tmp_path / "mesa"))
    folder = tmp_path / "mesa" / "mesa_shader_cache" / "0a"
    folder.mkdir(parents=True)
    (folder / "kernel").write_bytes(b"x" * 100)
    (folder.parent / "index").write_bytes(b"x" * 10)
    assert doctor.caches() == (doctor.CacheFolder("Mesa", "~/mesa/mesa_shader_cache", 2, 110),)


@pytest.mark.usefixtures("homeless")
def test_caches_of_a_user_without_a_home_are_those_that_variables_name(monkeypatch, tmp_path):
    monkeypatch.delenv("__GL_SHADER_DISK_CACHE_PATH", raising=False)
    monkeypatch.setenv("MESA_SHADER_CACHE_DIR", str(tmp_path))
    (tmp_path / "mesa_shader_cache_db").mkdir()
    assert doctor.caches() == (doctor.CacheFolder("Mesa", f"{tmp_path}/mesa_shader_cache_db", 0, 0),)


@pytest.mark.parametrize(
    ("text", "library", "problem"),
    [
        ('{"ICD": {"library_path": "libcard.so", "api_version": "1.3"}}', "libcard.so", ""),
        ('{"ICD": {"library_path": "./card.so", "api_version": "1.3"}}', "./card.so", ""),
        ('{"ICD": {"library_path": "./gone.so"}}', "./gone.so", "its driver library does not exist"),
        ('{"ICD": 1}', "", "cannot be read: TypeError"),
        ("{", "", "cannot be read: JSONDecodeError"),
    ],
)
def test_manifests(text, library, problem, tmp_path):
    (tmp_path / "card.so").touch()
    path = tmp_path / "card.json"
    path.write_text(text)
    manifest = read_manifest(path)
    assert manifest.library == library
    assert manifest.problem.startswith(problem) and bool(manifest.problem) == bool(problem)


def test_a_variable_that_names_no_manifest(monkeypatch, tmp_path):
    (tmp_path / "card.json").write_text('{"ICD": {"library_path": "libcard.so"}}')
    monkeypatch.setattr(diagnosis, "machine_manifests", lambda: (tmp_path / "card.json",))
    monkeypatch.setenv("VK_ADD_DRIVER_FILES", f"/nonesuch/x.json{os.pathsep}{tmp_path}")
    for name in ("VK_DRIVER_FILES", "VK_ICD_FILENAMES"):
        monkeypatch.delenv(name, raising=False)
    missing, card = diagnosis.manifests()
    assert missing == Manifest("/nonesuch/x.json", "", "", "named by VK_ADD_DRIVER_FILES, but the file does not exist")
    assert (card.library, card.problem) == ("libcard.so", "")


def test_the_computations_exist():
    suite = suite_by_name(SUITE)
    assert all(suite.has(name) for name in CASES)


@pytest.mark.parametrize(
    ("requested", "default", "unmatched"), [("", "Example GPU", ""), ("numpy", "numpy", ""), ("radeon", None, "radeon")]
)
def test_the_default_is_the_one_that_a_device_would_take(monkeypatch, requested, default, unmatched):
    elsewhere = LocatedAdapter(replace(CARD, name="Other GPU"), 0, (("VK_DRIVER_FILES", "/x/other.json"),))
    known = (LocatedAdapter(NUMPY_ADAPTER, 1), elsewhere, LocatedAdapter(CARD, 0))
    monkeypatch.setattr(diagnosis, "all_drivers", lambda: Discovery(known, ("a problem",)))
    monkeypatch.setattr(diagnosis, "run_cases", lambda job, names, workers: iter([GOOD]))
    monkeypatch.setenv("DMLGPU_ADAPTER", requested)
    monkeypatch.delenv("VK_DRIVER_FILES", raising=False)
    diagnosed = diagnosis.examine()
    assert [adapter.is_reached for adapter in diagnosed.adapters] == [True, False, True]
    assert [adapter.located.info.name for adapter in diagnosed.adapters if adapter.is_default] == (
        [default] if default else []
    )
    assert (diagnosed.problems, diagnosed.unmatched) == (("a problem",), unmatched)


def test_numpy_computes_right(monkeypatch):
    monkeypatch.setattr(diagnosis, "all_drivers", lambda: Discovery((LocatedAdapter(NUMPY_ADAPTER, 0, ()),)))
    monkeypatch.setattr(diagnosis, "run_cases", _in_this_process)
    (only,) = diagnosis.examine().adapters
    assert only.works
    assert [outcome.case for outcome in only.outcomes] == list(CASES)


def _in_this_process(job, names, workers):
    from dmlgpu.runtime.device import Device

    return [suite_by_name(job.suite).run(name, Device(job.adapter_text.partition(":")[0])) for name in names]


def test_it_runs_without_a_package_and_without_the_extra():
    hidden = "import sys; sys.modules.update(dict.fromkeys(('numpy', 'packaging', 'typer', 'rich')))"
    done = command("doctor", "--json", setup=hidden)
    assert (done.returncode, done.stderr) == (1, "")
    document = json.loads(done.stdout)
    assert "adapters cannot be listed: numpy is not installed" in [finding["text"] for finding in document["findings"]]
    assert "adapters" not in document
    assert document["format"] == doctor.FORMAT
