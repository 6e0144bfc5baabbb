"""``dmlgpu doctor``: facts for a bug report, problems and fixes.

It also runs if packages are missing, so it imports only the standard library before it has checked for them.
"""

from __future__ import annotations

import json
import os
import platform
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dmlgpu
from dmlgpu.cli import tables
from dmlgpu.common import folders

if TYPE_CHECKING:
    from dmlgpu.cli.diagnosis import Card, Examination, ExaminedAdapter, Loader, Manifest
    from dmlgpu.compiler.target import AdapterInfo


FORMAT = 1
"""Version of the JSON format; incremented when a key changes its meaning or is removed."""


def show(as_json: bool = False) -> bool:
    """Examine installation and machine, and print the findings.

    Returns:
        True if there is no problem.
    """
    report, findings = examine()
    if as_json:
        print(json.dumps(report, indent=2, ensure_ascii=False))
    else:
        _print(report, findings)
    return not any(finding.is_problem for finding in findings)


def examine() -> tuple[dict[str, Any], tuple[DoctorFinding, ...]]:
    """Return the report as JSON, and its findings, problems first.

    Keys of the report: format, versions, requirements, environment, loaders, manifests, cards, adapters, problems,
    caches, findings. If a package needed to list adapters is missing, there are no loaders, manifests, cards, adapters
    and problems.
    """
    required = requirements()
    report: dict[str, Any] = {
        "format": FORMAT,
        "versions": versions(),
        "requirements": [asdict(entry) for entry in required],
        "environment": environment(),
        "caches": [asdict(cache) for cache in caches()],
    }
    findings = list(requirement_findings(required))
    try:
        machine, more = _machine()
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", "dmlgpu"):
            raise
        remedy = "pip install 'dmlgpu[cli]', then run `dmlgpu doctor` again"
        machine, more = {}, [DoctorFinding(True, f"adapters cannot be listed: {package} is not installed", remedy)]
    findings = sorted([*findings, *more], key=lambda entry: not entry.is_problem)
    return {**report, **machine, "findings": [asdict(entry) for entry in findings]}, tuple(findings)


def _machine() -> tuple[dict[str, Any], list[DoctorFinding]]:
    """Examine drivers and adapters, which needs the dependencies of dmlgpu."""
    from dmlgpu.cli import diagnosis  # noqa: PLC0415 - see the module's docstring
    from dmlgpu.cli.devices import as_json_of  # noqa: PLC0415 - likewise

    if sys.stderr.isatty():
        print("testing every adapter ...", file=sys.stderr)
    loaders, manifests, cards = diagnosis.loaders(), diagnosis.manifests(), diagnosis.cards()
    examination = diagnosis.examine()
    record = {
        "loaders": [asdict(loader) for loader in loaders],
        "manifests": [asdict(manifest) for manifest in manifests],
        "cards": [asdict(card) for card in cards],
        "adapters": [
            {
                **as_json_of(examined.located.index, examined.located.info, examined.is_default),
                "label": examined.located.label,
                "reached": examined.is_reached,
                "environment": {name: short(value) for name, value in examined.located.environment},
                "works": examined.works,
                "computations": [outcome.to_json() for outcome in examined.outcomes],
                "again": list(examined.again),
            }
            for examined in examination.adapters
        ],
        "problems": list(examination.problems),
    }
    findings = [*driver_findings(loaders, manifests, cards), *adapter_findings(examination)]
    return record, findings


# ---- printing


def _print(report: dict[str, Any], findings: tuple[DoctorFinding, ...]) -> None:
    _section("versions", report["versions"].items())
    extras = dict.fromkeys(requirement["extra"] for requirement in report["requirements"])
    _section("packages", [(extra or "library", _packages(report, extra)) for extra in extras])
    _section("environment (docs/environment.md)", report["environment"].items())
    _section("drivers", _drivers(report))
    for adapter in report.get("adapters", ()):
        tables.facts(f"adapter {adapter['label']}{' (default)' if adapter['default'] else ''}", _adapter(adapter))
    folders = [
        (cache["path"], f"{cache['name']}: {cache['size']:,} bytes in {cache['files']:,} files")
        for cache in report["caches"]
    ]
    _section("caches of compiled kernels", folders)
    for is_problem, title in ((False, "notes"), (True, "problems")):
        matching = (finding for finding in findings if finding.is_problem == is_problem)
        numbered = [(str(index), f"{finding.text}\n{finding.remedy}") for index, finding in enumerate(matching, 1)]
        _section(title, numbered)
    if not any(finding.is_problem for finding in findings):
        print("no problems found")


def _section(title: str, pairs: Iterable[tuple[str, str]]) -> None:
    """Print facts below a title; prints nothing if there are none."""
    pairs = [(name, text) for name, text in pairs if text]
    if pairs:
        tables.facts(title, pairs)


def _packages(report: dict[str, Any], extra: str) -> str:
    """Return the packages of an extra with their versions, and the required version of those that do not fit."""
    required = [requirement for requirement in report["requirements"] if requirement["extra"] == extra]
    return ", ".join(
        f"{entry['package']} {entry['installed'] or 'not installed'}"
        + (f" (needs {entry['versions']})" if entry["installed"] and not entry["fits"] else "")
        for entry in required
    )


def _drivers(report: dict[str, Any]) -> list[tuple[str, str]]:
    """Return loaders, manifests, cards and problems."""
    loaders = [
        f"{loader['library']}: {'found' if loader['exists'] else 'missing'}" for loader in report.get("loaders", ())
    ]
    manifests = [
        f"{manifest['path']}: {manifest['problem'] or manifest['library'] + ', Vulkan ' + manifest['api_version']}"
        for manifest in report.get("manifests", ())
    ]
    cards = [f"{card['path']}: {'usable' if card['usable'] else 'no permission'}" for card in report.get("cards", ())]
    return [
        ("loaders", "\n".join(loaders)),
        ("manifests", "\n".join(manifests)),
        ("cards", "\n".join(cards)),
        ("problems", "\n".join(report.get("problems", ()))),
    ]


def _adapter(record: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the facts of an adapter, and the results computed on it."""
    from dmlgpu.cli.devices import facts_of  # noqa: PLC0415 - see the module's docstring
    from dmlgpu.compiler.target import AdapterInfo  # noqa: PLC0415
    from dmlgpu.conformance.running.outcome import DEVICE  # noqa: PLC0415

    texts = {name: record[name] for name in ("name", "backend", "kind", "vendor", "driver")}
    info = AdapterInfo(**texts, features=tuple(record["features"]), limits=record["limits"])
    is_unusable = any(outcome.get("missing") == DEVICE for outcome in record["computations"])
    computations = ["nothing: no device can be created"] if is_unusable else map(_computation, record["computations"])
    return [
        ("is", str(info)),
        *facts_of(info),
        (
            "reached by",
            "" if record["reached"] else "\n".join(f"{name}={it}" for name, it in record["environment"].items()),
        ),
        ("computes", "\n".join(computations)),
        ("again", "\n".join(record["again"])),
    ]


def _computation(outcome: dict[str, Any]) -> str:
    message = f": {outcome['message']}" if outcome.get("message") else ""
    return f"{outcome['case']}: {outcome['status']}{message} ({outcome.get('seconds', 0):.2f} s)"


_PACKAGES = {
    "libvulkan.so.1": "the Vulkan loader: libvulkan1 (Debian, Ubuntu), vulkan-loader (Fedora), "
    "vulkan-icd-loader (Arch Linux)",
    "libEGL.so.1": "the EGL loader, for OpenGL: libegl1 (Debian, Ubuntu), libglvnd-egl (Fedora), libglvnd (Arch Linux)",
    "vulkan-1.dll": "the driver of the graphics card's vendor, which includes the Vulkan loader",
    "d3d12.dll": "Windows 10 or later, which includes Direct3D 12",
}
_VULKAN_DRIVERS = (
    "the graphics card's driver (NVIDIA's own; Mesa's for AMD and Intel), or Mesa's software driver: "
    "mesa-vulkan-drivers (Debian, Ubuntu, Fedora), vulkan-swrast (Arch Linux)"
)


@dataclass(frozen=True)
class DoctorFinding:
    """A problem or a note.

    Attributes:
        is_problem: Whether something does not work; else a note.
        text: Description.
        remedy: Remedy.
    """

    is_problem: bool
    text: str
    remedy: str


def requirement_findings(requirements: Sequence[Requirement]) -> Iterator[DoctorFinding]:
    """Find missing packages and unsuitable versions. Missing extras are notes."""
    for needed in requirements:
        has = f"{needed.package} {needed.installed}" if needed.installed else f"{needed.package} is not installed"
        specifier = f"{needed.package}{needed.versions}"
        if not needed.extra and not needed.fits:
            yield DoctorFinding(True, f"{has}; dmlgpu needs {specifier}", f"pip install '{specifier}'")
        elif needed.installed and not needed.fits:
            yield DoctorFinding(
                True, f"{has}; the extra {needed.extra} needs {specifier}", f"pip install 'dmlgpu[{needed.extra}]'"
            )
    missing: dict[str, list[str]] = {}
    for requirement in requirements:
        if requirement.extra and requirement.installed is None:
            missing.setdefault(requirement.extra, []).append(requirement.package)
    for extra, packages in missing.items():
        text = f"optional extra {extra}: {', '.join(packages)} not installed"
        yield DoctorFinding(False, text, f"pip install 'dmlgpu[{extra}]', if you need it")


def driver_findings(
    loaders: Sequence[Loader], manifests: Sequence[Manifest], cards: Sequence[Card]
) -> Iterator[DoctorFinding]:
    """Find missing or broken loaders and drivers, and graphics cards without permission."""
    for loader in loaders:
        if not loader.exists:
            yield DoctorFinding(True, f"{loader.library} cannot be loaded", f"install {_PACKAGES[loader.library]}")
    if sys.platform.startswith("linux") and not manifests:
        yield DoctorFinding(True, "no Vulkan driver is installed: there is no manifest", f"install {_VULKAN_DRIVERS}")
    for manifest in manifests:
        if manifest.problem:
            remedy = "reinstall the driver, or remove the file and references to it"
            yield DoctorFinding(True, f"{manifest.path}: {manifest.problem}", remedy)
    for card in cards:
        if not card.usable:
            remedy = 'sudo usermod -aG render "$USER", then log in again; in a container, pass the device in'
            yield DoctorFinding(True, f"{card.path}: this user has no permission to read and write it", remedy)


def adapter_findings(examination: Examination) -> Iterator[DoctorFinding]:
    """Find adapters that are missing, slow or wrong."""
    for problem in examination.problems:
        yield DoctorFinding(True, problem, "install the newest version of this driver, or remove its manifest")
    if examination.unmatched:
        text = f"DMLGPU_ADAPTER is {examination.unmatched!r}, which matches no adapter of this machine"
        yield DoctorFinding(True, text, "unset it, or set it to a name or index that `dmlgpu devices` lists")
    usable = [
        examined
        for examined in examination.adapters
        if not examined.unusable and examined.located.info.backend != "NumPy"
    ]
    gpus = [examined.located.info for examined in usable if examined.is_reached]
    others = [examined for examined in usable if not examined.is_reached]
    if not gpus and others:
        command = " ".join(f"{name}={value}" for name, value in others[0].located.environment)
        yield DoctorFinding(
            True, f"no GPU adapter is found by default, but another driver has {others[0].located.info}", command
        )
    elif not gpus:
        remedy = (
            f"install {_VULKAN_DRIVERS}"
            if sys.platform.startswith("linux")
            else "install the driver of the graphics card"
        )
        yield DoctorFinding(True, "there is no GPU adapter: everything runs on the NumPy reference, slowly", remedy)
    elif all(info.is_software for info in gpus):
        text = "all GPU adapters are software rasterizers: correct but slow"
        yield DoctorFinding(False, text, "if there is a graphics card, install its vendor's driver")
    for examined in examination.adapters:
        if examined.unusable:
            yield _unusable(examined, examination.adapters)
        else:
            yield from _findings_of_adapter(examined)


def _unusable(examined: ExaminedAdapter, adapters: Sequence[ExaminedAdapter]) -> DoctorFinding:
    """Return the finding that an adapter cannot be used: a note if the machine has a working GPU."""
    text, info = f"{examined.located} cannot be used: {examined.unusable}", examined.located.info
    working = [other.located for other in adapters if other.is_working_gpu]
    for other in working:
        if _is_same_gpu(info, other.info):
            return DoctorFinding(False, f"{text}; the same GPU works by {other.info.backend}", f"use {other}")
    if working:
        return DoctorFinding(False, text, f"use {working[0]}")
    return DoctorFinding(True, text, "install the newest version of this driver")


def _is_same_gpu(info: AdapterInfo, other: AdapterInfo) -> bool:
    """Return whether the name of one adapter begins with that of another, without suffixes of drivers."""
    names = [adapter.name.partition(" (")[0].partition("/")[0] for adapter in (info, other)]
    return names[0].startswith(names[1]) or names[1].startswith(names[0])


def _findings_of_adapter(examined: ExaminedAdapter) -> Iterator[DoctorFinding]:
    for outcome in examined.outcomes:
        if not outcome.status.is_good:
            what = f"{outcome.status}: {outcome.message}" if outcome.message else str(outcome.status)
            text = f"{examined.located} fails {outcome.case}: {what}"
            again = f"reproduce with {' and '.join(examined.again)}; " if examined.again else ""
            yield DoctorFinding(True, text, f"{again}see docs/is-it-my-driver.md")
    from dmlgpu.compiler.quirks import are_ignored, quirks_of  # noqa: PLC0415 - see the module's docstring

    how = "DMLGPU_QUIRKS=off ignores it" if are_ignored() else "dmlgpu's operators avoid it, your own kernels do not"
    for quirk in quirks_of(examined.located.info):
        yield DoctorFinding(False, f"{examined.located} has the quirk {quirk}; {how}", quirk.remedy or quirk.link)


FOR_WORK = ("array-api-tests", "check", "check-onnx", "release", "test", "test-models")
"""Extras for the development of dmlgpu; the others are for users."""

DEPENDENCIES = ("wgpu", "numpy", "jinja2")
"""Dependencies of the library, used if dmlgpu is not installed as a package."""

_VARIABLES = (
    *("DMLGPU_", "WGPU_", "VK_", "MESA_", "LIBGL_", "GALLIUM_", "LP_", "RADV_", "ANV_", "INTEL_", "NVK_", "ZINK_"),
    *("__EGL_", "__GLX_", "EGL_", "DRI_PRIME", "CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "LD_PRELOAD"),
    *("PYTHONPATH", "DISPLAY", "WAYLAND_DISPLAY", "XDG_DATA_DIRS", "XDG_CONFIG_DIRS"),
)
"""Prefixes of environment variables that affect which adapters exist and how they compute."""

_NAME = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?")
_EXTRA = re.compile(r"extra\s*==\s*['\"]([^'\"]+)['\"]")
_MAX_FILES = 100_000


@dataclass(frozen=True)
class Requirement:
    """A package required by dmlgpu or one of its extras.

    Attributes:
        extra: Name of the extra; empty for the library itself.
        package: Name of the package.
        versions: Required versions, such as ``>=0.32,<0.33``; empty for any.
        installed: Installed version, or None.
        fits: Whether the installed version fits; if that cannot be checked, whether the package is installed.
    """

    extra: str
    package: str
    versions: str
    installed: str | None
    fits: bool


@dataclass(frozen=True)
class CacheFolder:
    """Folder in which a driver caches compiled kernels.

    Attributes:
        name: Its owner.
        path: Folder.
        files, size: Number of files (at most 100,000 are counted) and their bytes.
    """

    name: str
    path: str
    files: int
    size: int


def versions() -> dict[str, str]:
    """Return the versions of dmlgpu, Python and dependencies, and the kind of computer."""
    packages = {name: installed(name) or "not installed" for name in DEPENDENCIES}
    return {
        "dmlgpu": dmlgpu.__version__,
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        **packages,
        "os": platform.platform(),
        "cpu": f"{platform.processor() or platform.machine()}, {os.cpu_count()} logical cores",
        "dmlgpu_at": short(Path(dmlgpu.__file__).parent),
        "python_at": short(Path(sys.executable)),
    }


def installed(package: str) -> str | None:
    """Return the installed version of a package, or None."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def requirements() -> tuple[Requirement, ...]:
    """Return the requirements of dmlgpu and its extras for users; only those of the library if dmlgpu is not
    installed."""
    try:
        texts = requires("dmlgpu") or list(DEPENDENCIES)
    except PackageNotFoundError:
        texts = list(DEPENDENCIES)
    return tuple(_requirements(texts))


def _requirements(texts: Iterable[str]) -> Iterator[Requirement]:
    """Parse a package's requirements, without those for other Python versions and extras that refer to other extras."""
    for text in texts:
        requirement, _, marker = text.partition(";")
        name, extra_match = _NAME.match(requirement.strip()), _EXTRA.search(marker)
        extra = extra_match[1] if extra_match else ""
        if name is None or name[1] == "dmlgpu" or extra in FOR_WORK or not _applies(marker.strip(), extra):
            continue
        specifier, version_there = requirement.strip()[name.end() :].strip(" ()"), installed(name[1])
        yield Requirement(
            extra, name[1], specifier, version_there, version_there is not None and _fits(version_there, specifier)
        )


def _applies(marker: str, extra: str) -> bool:
    """Return whether a requirement with a marker belongs to the extra; True if ``packaging`` is not installed."""
    try:
        from packaging.markers import Marker  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        return True
    return not marker or Marker(marker).evaluate({"extra": extra})


def _fits(installed_version: str, specifier: str) -> bool:
    """Return whether a version fits the requirement; True if ``packaging`` is not installed."""
    try:
        from packaging.specifiers import SpecifierSet  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        return True
    return SpecifierSet(specifier).contains(installed_version, prereleases=True)


def environment() -> dict[str, str]:
    """Return the environment variables that affect drivers and adapters."""
    return {name: short(value) for name, value in sorted(os.environ.items()) if name.startswith(_VARIABLES)}


def caches() -> tuple[CacheFolder, ...]:
    """Return the existing folders in which drivers cache compiled kernels."""
    existing = []
    for name, folder in _cache_folders():
        if folder.is_dir():
            sizes = list(_sizes(folder))
            existing.append(CacheFolder(name, short(folder), len(sizes), sum(sizes)))
    return tuple(existing)


def _cache_folders() -> Iterator[tuple[str, Path]]:
    """Yield the folders in which drivers cache compiled kernels, each with the name of its owner."""
    usual, home = folders.user_caches(), folders.home()
    mesa = os.environ.get("MESA_SHADER_CACHE_DIR") or usual
    nvidia = os.environ.get("__GL_SHADER_DISK_CACHE_PATH") or (usual and usual / "nvidia")
    if mesa:
        for part in ("mesa_shader_cache", "mesa_shader_cache_db", "mesa_shader_cache_sf"):
            yield "Mesa", Path(mesa, part)
    if nvidia:
        yield "NVIDIA", Path(nvidia)
    if home:
        yield "NVIDIA", home / ".nv"
    if usual:
        yield "AMD", usual / "AMD"
        yield "Direct3D", usual / "D3DSCache"


def _sizes(folder: Path) -> Iterator[int]:
    """Return the sizes of the readable files below a folder."""
    left = _MAX_FILES
    for root, _, names in os.walk(folder):
        for name in names[:left]:
            try:
                yield os.stat(os.path.join(root, name)).st_size
            except OSError:  # it has gone meanwhile
                continue
        left -= len(names)
        if left <= 0:
            return


def short(path: str | Path) -> str:
    """Replace the home folder by ``~``, so that reports do not contain the name of the user."""
    text, home = str(path), str(folders.home() or "")
    return text if home in ("/", "") else re.sub(rf"{re.escape(home)}(?=$|[/\\:])", "~", text)
