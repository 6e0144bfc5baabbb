"""Print results as lines and as a page."""

from __future__ import annotations

import collections
import importlib.metadata
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from torch_clients.rows import Result, Row

PACKAGES = (
    "torch", "torchvision", "timm", "transformers", "accelerate", "peft", "diffusers", "kornia", "ultralytics",
    "segmentation_models_pytorch", "open_clip_torch", "spandrel", "piq", "lpips", "sentence-transformers",
    "x-transformers", "vector-quantize-pytorch", "lightning", "fastai", "keras", "stable_baselines3", "torchmetrics",
    "torch-geometric", "monai", "gpytorch", "torchdiffeq",
)  # fmt: skip


def versions(comfyui: Path | None = None) -> dict[str, str]:
    """Return the versions of the installed clients, and of ComfyUI if its folder is given."""
    installed = {}
    for name in PACKAGES:
        try:
            installed[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    if comfyui is not None:
        text = (comfyui / "comfyui_version.py").read_text(encoding="utf-8")
        (installed["ComfyUI"],) = re.findall(r'__version__ = "(.+)"', text)
    return installed


MAX_REASON = 120
"""Maximum number of characters of a reason in a table."""

Key = tuple[str, str, str]
"""Client, name and adapter of a result."""


def read(path: Path) -> dict[Key, Result]:
    """Return the results of earlier runs from a file, the latest of each row; none if there is no file."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    results = (Result(**json.loads(text)) for text in lines)
    return {(result.client, result.name, result.adapter): result for result in results}


def add(path: Path, result: Result) -> None:
    """Append a result to a file."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(result)) + "\n")


def ordered(results: Mapping[Key, Result], rows: Sequence[Row]) -> list[Key]:
    """Return the keys of the results of rows, adapter by adapter, in the order of the rows."""
    adapters = dict.fromkeys(adapter for _, _, adapter in results)
    keys = ((row.client, row.name, adapter) for adapter in adapters for row in rows)
    return [key for key in keys if key in results]


def line(result: Result) -> str:
    """Return a line with the result of a row."""
    difference = "" if result.difference is None else f" {result.difference:.1e}"
    reason = f": {result.reason}" if result.reason else ""
    name = f"{result.client}: {result.name}"
    return f"{result.state:8} {result.adapter}, {name}{difference}, {result.seconds:.1f} s{reason}"


def summary(results: Sequence[Result]) -> str:
    """Return counts by state."""
    counts = collections.Counter(result.state for result in results)
    return f"{len(results)} rows: " + ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))


def page(results: Sequence[Result], installed: Mapping[str, str]) -> str:
    """Return the page: a table for each client, with a column for each adapter.

    Args:
        results: Results of all rows on all adapters.
        installed: Versions by package.
    """
    adapters = list(dict.fromkeys(result.adapter for result in results))
    shown = ", ".join(f"{name} {version}" for name, version in installed.items())
    lines = [
        "# PyTorch programs",
        "",
        "`scripts/clients --table docs/pytorch-clients.md` runs programs of PyTorch's libraries on the device `dml` and"
        " on the CPU, with small random weights, and writes this page. Numbers are the largest difference between both,"
        f" relative to the largest magnitude; 0 if tokens or other integers are equal. Versions: {shown}.",
        "",
        "A program that is *rejected* raises an error; the table says what the error advises, which was tried. A"
        " program that is *skipped*, or whose cell is empty, was not run there.",
    ]
    by_client: dict[str, dict[str, dict[str, Result]]] = {}
    for result in results:
        by_client.setdefault(result.client, {}).setdefault(result.name, {})[result.adapter] = result
    for client, rows in by_client.items():
        lines += ["", f"## {client}", "", f"| program | {' | '.join(f'`{adapter}`' for adapter in adapters)} |"]
        lines.append(f"|---|{'---|' * len(adapters)}")
        for name, row in rows.items():
            cells = (cell(row[adapter]) if adapter in row else "" for adapter in adapters)
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def cell(result: Result) -> str:
    """Return a result as a cell of a table."""
    if result.state == "right":
        return f"{result.difference:.0e}" if result.difference else "0"
    reason = result.reason if len(result.reason) <= MAX_REASON else f"{result.reason[:MAX_REASON]} ..."
    return f"{result.state}: {reason}".replace("|", "\\|").replace("\n", " ")
