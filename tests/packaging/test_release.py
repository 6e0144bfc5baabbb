"""What a release consists of: the sdist builds the wheel, versions agree, and the pages about it are true."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

from dmlgpu import __version__
from dmlgpu.catalog.stubs import stubs

ROOT = Path(__file__).parents[2]
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


def build(kind: str, source: Path, target: Path) -> Path:
    command = [sys.executable, "-m", "build", kind, "--no-isolation", "--outdir", target, source]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = target.iterdir()
    return built


def test_the_sdist_builds_the_same_wheel(tmp_path: Path) -> None:
    with tarfile.open(build("--sdist", ROOT, tmp_path / "sdist")) as archive:
        archive.extractall(tmp_path / "source", filter="data")
    (source,) = (tmp_path / "source").iterdir()
    with zipfile.ZipFile(build("--wheel", source, tmp_path / "wheel")) as wheel:
        members = {name for name in wheel.namelist() if name.startswith("dmlgpu/")}
    expected = {path.relative_to(ROOT).as_posix() for path in (ROOT / "dmlgpu").rglob("*.py")}
    expected |= {f"dmlgpu/{name}" for name in stubs()}
    expected |= {f"dmlgpu/{path.relative_to(ROOT).as_posix()}" for path in (ROOT / "shaders").rglob("*.wgsl")}
    assert expected <= members
    # Who has the sdist can run the tests, build the documentation and read what a release says of itself.
    for name in (
        "tests/docs/test_readme.py",
        "mkdocs.yml",
        "hatch_build.py",
        "docs/index.md",
        "CHANGELOG.md",
        "CITATION.cff",
        "scripts/test",
    ):
        assert (source / name).is_file(), name


def test_versions_agree() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    newest = re.search(r"^## (\S+?),", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert newest is not None
    assert {project["version"], citation["version"], newest[1]} == {__version__}
    assert citation["license"] == project["license"]


@pytest.mark.parametrize("form", [form for form in FORMS if form.stem != "config"], ids=lambda form: form.stem)
def test_issue_forms_ask_for_what_doctor_says(form: Path) -> None:
    fields = yaml.safe_load(form.read_text(encoding="utf-8"))["body"]
    (doctor,) = (field for field in fields if "doctor" in field.get("id", ""))
    assert "dmlgpu doctor --json" in doctor["attributes"]["label"]
    assert doctor["validations"]["required"]


def test_the_workflow_runs_the_cases_on_three_systems_and_keeps_the_records() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "conformance.yml").read_text(encoding="utf-8"))
    job = workflow["jobs"]["conformance"]
    systems = {entry["os"].split("-")[0] for entry in job["strategy"]["matrix"]["include"]}
    assert systems == {"windows", "macos", "ubuntu"}
    commands = " ".join(step.get("run", "") for step in job["steps"])
    assert "dmlgpu test --drivers all" in commands
    assert "results.jsonl" in job["steps"][-1]["with"]["path"]


def test_what_contributors_are_told_to_run_exists() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:scripts|dmlgpu|tests)/[\w./]+)", page))
    assert {"scripts/generate", "scripts/release", "tests/wrong_arguments.py"} <= named
    assert not [name for name in named if not (ROOT / name).exists()]
