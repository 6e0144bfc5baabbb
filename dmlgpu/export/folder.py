"""Folders that run in a page: ``program.json``, weights, the runtime, and a page that shows it working."""

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
"""Of ``program.json``; ``runtime.js`` takes no other."""

PART_BYTES: Final = 16 << 20
"""Most bytes of a file of weights, so that hosts with limits take them and pages load several at a time."""

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
"""What each folder of a model holds beside its program and weights."""


@dataclass(frozen=True)
class Exported:
    """What was written.

    Attributes:
        folder: where.
        files: The names of all files, and their bytes.
        kernels: How many dispatches a run has.
        shaders: How many different texts of kernels there are.
        weight_bytes: Bytes of weights, as they lie in the files.
        memory_bytes: Bytes of all buffers that stay while the model is loaded.
        features: WebGPU's features that it takes.
    """

    folder: Path
    files: dict[str, int]
    kernels: int
    shaders: int
    weight_bytes: int
    memory_bytes: int
    features: tuple[str, ...] = ()


def write_folder(model: Exportable, folder: Path) -> Exported:
    """Write a model's folder; files of the same names are replaced.

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
    """Return a file that folders have in common."""
    return importlib.resources.files("dmlgpu.export").joinpath("pages", name).read_bytes()


def write_files(folder: Path, files: dict[str, bytes]) -> None:
    """Write files into a folder, which is made where it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        with whole_file(folder / name) as stream:
            stream.write(data)


def as_document(model: Exportable) -> tuple[dict[str, Any], bytes]:
    """Return what ``program.json`` holds, but for the files of weights, and all weights."""
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
    """Return where the inputs of the program lie. Weights that no kernel reads are omitted."""
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
    """Mark the weights that only the initialization reads: their buffers go when it is done."""
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
    """Return what makes the folder a package for Node and for TypeScript."""
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
