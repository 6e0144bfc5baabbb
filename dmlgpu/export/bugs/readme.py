"""The README of a bug report: what fails, how to see it, and where to report it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

TRACKERS: Final = (
    ("Mesa: RADV, ANV, NVK, Turnip, llvmpipe ...", "https://gitlab.freedesktop.org/mesa/mesa/-/issues"),
    ("NVIDIA", "https://forums.developer.nvidia.com/c/gpu-graphics/vulkan/"),
    ("AMD, Windows", "https://community.amd.com, or the AMD Bug Report Tool of the driver"),
    ("Intel, Windows", "https://github.com/IGCIT/Intel-GPU-Community-Issue-Tracker-IGCIT/issues"),
    ("Apple, Metal", "https://feedbackassistant.apple.com"),
    ("Qualcomm, Arm, Imagination", "the developer forum of the vendor"),
    ("SwiftShader", "https://g.co/swiftshaderbugs"),
    ("Chrome, Edge: Dawn and Tint", "https://crbug.com/new, component Blink>WebGPU"),
    ("Firefox", "https://bugzilla.mozilla.org, component Graphics: WebGPU"),
    ("wgpu and naga: if the SPIR-V is already wrong", "https://github.com/gfx-rs/wgpu/issues"),
)
"""Where developers of drivers and compilers take reports."""

_RESULTS: Final = {
    "pass": "All outputs are right here.",
    "wrong": "Outputs are wrong:",
    "error": "An exception ends the runner:",
    "crash": "The process dies:",
    "time-out": "The runner does not end:",
}

_FILES: Final = {
    "kernel-0.spv": "SPIR-V, as naga writes it for Mesa's Vulkan driver of the same machine",
    "buffer-0.bin": "contents of each buffer before the first dispatch",
    "parameters-0.bin": "parameter blocks: the uniform after the storage buffers",
    "expected-0.bin": "expected elements of each output, in row-major order",
    "allowed-0.bin": "allowed difference of each element, float64; -1: these bits; NaN: any NaN",
    "actual-0.bin": "elements that this adapter computed",
    "run.py": "runner on wgpu-py",
    "run.c": "runner on wgpu-native; `bug.h` has its tables",
    "bug.amber": "script for Amber",
    "page/index.html": "web page that judges itself",
}
"""Files and their contents."""


def readme(
    bug: Mapping[str, Any], status: str, message: str, files: Mapping[str, bytes], missing: Sequence[str]
) -> str:
    """Return the text of README.md.

    Args:
        bug: Content of ``bug.json``.
        status, message: Result of the Python runner.
        files: All other files of the folder.
        missing: Files that are missing, each with the reason.
    """
    return "\n".join([*_head(bug, status, message), *_commands(bug, files), *_contents(bug, files, missing), ""])


def _head(bug: Mapping[str, Any], status: str, message: str) -> Iterator[str]:
    adapter = bug["adapter"]
    yield f"# {bug['case']}"
    yield ""
    yield "Compute kernels with their inputs and expected outputs. They run without dmlgpu, which wrote this folder."
    yield ""
    yield "| | |"
    yield "|---|---|"
    yield f"| adapter | {adapter['name']}, {adapter['backend']} |"
    yield f"| driver | {adapter['driver']} |"
    yield f"| versions | {', '.join(f'{name} {version}' for name, version in bug['versions'].items())} |"
    yield f"| features | {', '.join(bug['features']) or 'none beyond the WebGPU defaults'} |"
    yield f"| tolerance | {bug['tolerance']} |"
    if bug["reduced_from"] != bug["case"]:
        yield f"| reduced from | {bug['reduced_from']} |"
    if bug.get("kernel_of_case"):
        yield f"| kernel | {bug['kernel_of_case']} |"
    yield ""
    yield _RESULTS[status]
    yield ""
    yield from (f"    {line}" for line in message.splitlines())
    yield ""


def _commands(bug: Mapping[str, Any], files: Mapping[str, bytes]) -> Iterator[str]:
    yield "## See it fail"
    yield ""
    yield "With Python, on the adapter with the index 0:"
    yield ""
    yield f"    pip install wgpu=={bug['versions']['wgpu']}"
    yield "    python run.py 0"
    yield ""
    yield "In C, with the headers and the library of the same package:"
    yield ""
    yield "    R=$(python -c 'import wgpu, os; print(os.path.dirname(wgpu.__file__))')/resources"
    yield "    cc run.c -I $R $R/libwgpu_native-release.so -Wl,-rpath,$R -lm -o run && ./run 0"
    for name, title, command in (
        ("bug.amber", "On Vulkan alone, with https://github.com/google/amber:", "amber bug.amber"),
        ("page/index.html", "In a browser:", "python -m http.server --directory page"),
    ):
        if name in files:
            yield from ("", title, "", f"    {command}")
    yield ""
    yield "Exit codes of the runners: 0 if all is right, 1 if outputs are wrong."
    yield ""


def _contents(bug: Mapping[str, Any], files: Mapping[str, bytes], missing: Sequence[str]) -> Iterator[str]:
    yield "## Contents"
    yield ""
    yield "`bug.json` lists the files of each dispatch. Data are little-endian."
    yield ""
    yield "| file | contents |"
    yield "|---|---|"
    for kernel in bug["kernels"]:
        forms = [kernel["wgsl"], *([kernel["spirv"]] if "spirv" in kernel else [])]
        yield f"| {' '.join(f'`{form}`' for form in forms)} | {kernel['label']} |"
    yield from (f"| `{name.replace('-0', '-N')}` | {text} |" for name, text in _FILES.items() if name in files)
    if missing:
        yield from ("", "Missing here:", "", *(f"- {reason}" for reason in missing))
    yield from ("", "## Report it", "", "Attach this folder.", "", "| driver or compiler | reports |", "|---|---|")
    yield from (f"| {vendor} | {place} |" for vendor, place in TRACKERS)
