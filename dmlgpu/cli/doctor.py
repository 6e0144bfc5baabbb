"""``dmlgpu doctor``: what a bug report needs, and what to install or mend.

It runs where packages are missing too, so it loads nothing beyond Python's own library before it has looked for them.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Any

from dmlgpu.cli import tables
from dmlgpu.cli.diagnosis import findings, software
from dmlgpu.cli.diagnosis.findings import Finding

FORMAT = 1
"""Of the JSON; it grows by one where something that was there changes its meaning or goes."""


def show(as_json: bool = False) -> bool:
    """Examine installation and machine, and print what was found.

    Returns:
        Whether nothing is to be mended.
    """
    report, found = examine()
    if as_json:
        print(json.dumps(report, indent=2, ensure_ascii=False))
    else:
        _print(report, found)
    return not any(one.is_problem for one in found)


def examine() -> tuple[dict[str, Any], tuple[Finding, ...]]:
    """Return the report, as JSON has it, and its findings, problems first.

    Keys of the report: format, versions, requirements, environment, loaders, manifests, cards, adapters, problems,
    caches, findings. Where a package is missing that looking for adapters takes, there are no loaders, manifests,
    cards, adapters and problems.
    """
    required = software.requirements()
    report: dict[str, Any] = {
        "format": FORMAT,
        "versions": software.versions(),
        "requirements": [asdict(one) for one in required],
        "environment": software.environment(),
        "caches": [asdict(one) for one in software.caches()],
    }
    found = list(findings.of_requirements(required))
    try:
        machine, more = _machine()
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", "dmlgpu"):
            raise
        remedy = "pip install 'dmlgpu[cli]', then run `dmlgpu doctor` again"
        machine, more = {}, [Finding(True, f"adapters cannot be listed without {package}", remedy)]
    found = sorted([*found, *more], key=lambda one: not one.is_problem)
    return {**report, **machine, "findings": [asdict(one) for one in found]}, tuple(found)


def _machine() -> tuple[dict[str, Any], list[Finding]]:
    """What needs dmlgpu's dependencies: drivers and adapters."""
    from dmlgpu.cli.devices import as_json_of  # noqa: PLC0415 - see the module's docstring
    from dmlgpu.cli.diagnosis import adapters, drivers  # noqa: PLC0415

    if sys.stderr.isatty():
        print("computing on every adapter ...", file=sys.stderr)
    loaders, manifests, cards = drivers.loaders(), drivers.manifests(), drivers.cards()
    examination = adapters.examine()
    record = {
        "loaders": [asdict(one) for one in loaders],
        "manifests": [asdict(one) for one in manifests],
        "cards": [asdict(one) for one in cards],
        "adapters": [
            {
                **as_json_of(one.located.number, one.located.info, one.is_default),
                "label": one.located.label,
                "reached": one.is_reached,
                "environment": {name: software.short(value) for name, value in one.located.environment},
                "works": one.works,
                "computations": [outcome.to_json() for outcome in one.outcomes],
                "again": list(one.again),
            }
            for one in examination.adapters
        ],
        "problems": list(examination.problems),
    }
    found = [*findings.of_drivers(loaders, manifests, cards), *findings.of_adapters(examination)]
    return record, found


# ---- for people


def _print(report: dict[str, Any], found: tuple[Finding, ...]) -> None:
    tables.facts("versions", report["versions"].items())
    extras = dict.fromkeys(one["extra"] for one in report["requirements"])
    tables.facts("packages", [(extra or "library", _packages(report, extra)) for extra in extras])
    tables.facts("environment", report["environment"].items())
    tables.facts("drivers", _drivers(report))
    for one in report.get("adapters", ()):
        tables.facts(f"adapter {one['label']}{' (default)' if one['default'] else ''}", _adapter(one))
    kept = [
        (one["path"], f"{one['name']}: {one['size']:,} bytes in {one['files']:,} files") for one in report["caches"]
    ]
    tables.facts("caches of compiled kernels", kept)
    for is_problem, title in ((True, "to be mended"), (False, "notes")):
        pairs = [(str(number), f"{one.text}\n{one.remedy}") for number, one in _numbered(found, is_problem)]
        if pairs or is_problem:
            tables.facts(title if pairs else "nothing is to be mended", pairs)


def _cache(one: dict[str, Any]) -> str:
    return f"{one['name']}: {one['size']:,} bytes in {one['files']:,} files"


def _numbered(found: tuple[Finding, ...], is_problem: bool) -> list[tuple[int, Finding]]:
    return list(enumerate((one for one in found if one.is_problem == is_problem), start=1))


def _packages(report: dict[str, Any], extra: str) -> str:
    """The packages of an extra with their versions; what does not fit says so."""
    asked = [one for one in report["requirements"] if one["extra"] == extra]
    return ", ".join(
        f"{one['package']} {one['installed'] or 'is missing'}"
        + (f" (needs {one['wanted']})" if one["installed"] and not one["fits"] else "")
        for one in asked
    )


def _drivers(report: dict[str, Any]) -> list[tuple[str, str]]:
    """The loaders, manifests and cards, and what could not be listed; none of them where nothing was looked for."""
    loaders = [f"{one['library']}: {'found' if one['found'] else 'missing'}" for one in report.get("loaders", ())]
    manifests = [
        f"{one['path']}: {one['problem'] or one['library'] + ', Vulkan ' + one['api_version']}"
        for one in report.get("manifests", ())
    ]
    cards = [f"{one['path']}: {'usable' if one['usable'] else 'no permission'}" for one in report.get("cards", ())]
    return [
        ("loaders", "\n".join(loaders)),
        ("manifests", "\n".join(manifests)),
        ("cards", "\n".join(cards)),
        ("problems", "\n".join(report.get("problems", ()))),
    ]


def _adapter(one: dict[str, Any]) -> list[tuple[str, str]]:
    """What an adapter is, and what came of computing on it."""
    from dmlgpu.cli.devices import facts_of  # noqa: PLC0415 - see the module's docstring
    from dmlgpu.target import AdapterInfo  # noqa: PLC0415

    texts = {name: one[name] for name in ("name", "backend", "kind", "vendor", "driver")}
    info = AdapterInfo(**texts, features=tuple(one["features"]), limits=one["limits"])
    return [
        ("is", str(info)),
        *facts_of(info),
        ("reached by", "" if one["reached"] else "\n".join(f"{name}={it}" for name, it in one["environment"].items())),
        ("computes", "\n".join(_computation(each) for each in one["computations"])),
        ("again", "\n".join(one["again"])),
    ]


def _computation(outcome: dict[str, Any]) -> str:
    message = f": {outcome['message']}" if outcome.get("message") else ""
    return f"{outcome['case']}: {outcome['status']}{message} ({outcome.get('seconds', 0):.2f} s)"
