"""Exported folders: ``program.json``, weights, the runtime, and a demo page."""

from __future__ import annotations

import hashlib
import importlib.resources
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dmlgpu.common.files import whole_file
from dmlgpu.compiler.plan import Role
from dmlgpu.compiler.program import Program
from dmlgpu.export.compiling import Exportable, ExportPort
from dmlgpu.export.layout import Document, Uploads, add_program

FORMAT: Final = 1
"""Version of ``program.json``, which ``runtime.js`` requires."""

PART_BYTES: Final = 16 << 20
"""Maximum size of a file of weights, so that hosts accept them and pages load several in parallel."""

MODEL_FILES: Final = (
    "device.js",
    "index.html",
    "page.css",
    "page.js",
    "run.mjs",
    "runtime.d.ts",
    "runtime.js",
    "samples.js",
    "tensors.js",
)
"""Files of each model folder besides its program and weights."""


@dataclass(frozen=True)
class Exported:
    """Summary of an export.

    Attributes:
        folder: Output folder.
        files: Sizes of all files in bytes, by name.
        kernels: Number of dispatches of a run.
        shaders: Number of distinct shaders.
        weight_bytes: Bytes of weights in the files.
        memory_bytes: Bytes of all buffers while the model is loaded.
        features: Required WebGPU features.
    """

    folder: Path
    files: dict[str, int]
    kernels: int
    shaders: int
    weight_bytes: int
    memory_bytes: int
    features: tuple[str, ...] = ()


def write_folder(model: Exportable, folder: Path) -> Exported:
    """Write the folder of a model. Files of the same names are replaced.

    Raises:
        OSError: If a file cannot be written.
    """
    document, weights = as_document(model)
    parts = [weights[start : start + PART_BYTES] for start in range(0, len(weights), PART_BYTES)]
    names = [f"weights-{number}.bin" for number in range(len(parts))]
    document["weights"] = [
        {"file": name, "bytes": len(part), "sha256": hashlib.sha256(part).hexdigest()}
        for name, part in zip(names, parts, strict=True)
    ]
    files = dict(zip(names, parts, strict=True))
    files["program.json"] = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
    files["package.json"] = _package(model.name)
    files |= {name: page_file(name) for name in MODEL_FILES}
    write_files(folder, files)
    byte_count = sum(buffer["bytes"] for buffer in document["buffers"] if not buffer.get("initial"))
    return Exported(
        folder,
        {name: len(data) for name, data in files.items()},
        len(document["dispatches"]),
        len(document["shaders"]),
        len(weights),
        byte_count,
        tuple(document["needs"]["features"]),
    )


def page_file(name: str) -> bytes:
    """Return a shared file of folders."""
    return importlib.resources.files("dmlgpu.export").joinpath("pages", name).read_bytes()


def write_files(folder: Path, files: dict[str, bytes]) -> None:
    """Write files into a folder, which is created if it does not exist."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        with whole_file(folder / name) as stream:
            stream.write(data)


def as_document(model: Exportable) -> tuple[dict[str, Any], bytes]:
    """Return the content of ``program.json`` without the list of weight files, and all weights."""
    document, uploads = Document(), Uploads()
    buffers = [document.buffer(f"input {port.name}", port.desc.byte_size) for port in model.inputs]
    initialization: list[dict[str, Any]] = []
    dispatches: list[dict[str, Any]] = []
    outputs = [document.buffer(f"output {number}", size) for number, size in enumerate(model.output_sizes)]
    if model.program is not None:
        inputs = _inputs(model, model.program, document, uploads, buffers)
        places = [(number, 0) for number in outputs]
        initialization, dispatches = add_program(document, uploads, model.program, inputs, places)
        _mark_initial(document, dispatches)
    results = []
    for result in model.results:
        entry = _described(result.port)
        if result.output is not None:
            entry["buffer"] = outputs[result.output]
        elif result.input is not None:
            entry["buffer"] = buffers[result.input]
        else:
            assert result.data is not None
            entry["buffer"] = document.buffer(f"output {result.port.name}", len(result.data))
            if result.data:
                document.upload(uploads, entry["buffer"], result.data)
        results.append(entry)
    return {
        "format": FORMAT,
        "name": model.name,
        "made": dict(model.provenance),
        "needs": document.needs([*initialization, *dispatches]),
        "inputs": [{**_described(port), "buffer": number} for port, number in zip(model.inputs, buffers, strict=True)],
        "outputs": results,
        "buffers": document.buffers,
        "clears": outputs if model.clears else [],
        "uploads": document.uploads,
        "parameters": document.parameters,
        "shaders": document.shaders,
        "initialization": initialization,
        "dispatches": dispatches,
    }, uploads.data


def _inputs(
    model: Exportable, program: Program, document: Document, uploads: Uploads, buffers: Sequence[int]
) -> list[tuple[int, int] | None]:
    """Return the locations of the inputs of the program. Unused weights are omitted."""
    kernels = (*program.initialization, *program.kernels)
    read = {slot.index for kernel in kernels for slot in kernel.slots if slot.role is Role.INPUT}
    places: list[tuple[int, int] | None] = []
    for number, feed in enumerate(model.feeds):
        if isinstance(feed, int):
            places.append((buffers[feed], 0))
        elif feed is None or number not in read:
            places.append(None)
        else:
            buffer = document.buffer(f"weight {number}", len(feed))
            places.append((buffer, 0))
            document.upload(uploads, buffer, feed)
    return places


def _mark_initial(document: Document, dispatches: Sequence[dict[str, Any]]) -> None:
    """Mark weights that only the initialization reads: their buffers are freed after it."""
    used = {buffer for dispatche in dispatches for buffer, _, _ in dispatche["bind"]}
    for number, buffer in enumerate(document.buffers):
        if number not in used and buffer["name"].startswith("weight "):
            buffer["initial"] = True


def _described(port: ExportPort) -> dict[str, Any]:
    desc = port.desc
    strides = {} if desc.is_packed else {"sizes": list(desc.sizes), "strides": list(desc.element_strides)}
    kind = {"bool": True} if port.is_bool else {}
    return {
        "name": port.name,
        "type": desc.data_type.name,
        "shape": list(port.shape),
        "bytes": desc.byte_size,
        **kind,
        **strides,
    }


def _package(name: str) -> bytes:
    """Return the package files for Node and TypeScript."""
    package = {
        "name": "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in name.lower()).strip("-")
        or "model",
        "private": True,
        "type": "module",
        "main": "runtime.js",
        "types": "runtime.d.ts",
        "optionalDependencies": {"webgpu": "*"},
    }
    return (json.dumps(package, indent=2) + "\n").encode()
