"""Exported folders: ``program.json``, weights, the runtime, and a demo page."""

from __future__ import annotations

import hashlib
import importlib.resources
import itertools
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dmlgpu.common.errors import InvalidArgument, shown
from dmlgpu.common.files import whole_file
from dmlgpu.compiler.plan import Role
from dmlgpu.compiler.program import Program
from dmlgpu.export.compiling import Exportable, ExportPort, ExportResult
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
        kernels: Number of dispatches of a run, at the first sizes.
        shaders: Number of distinct shaders.
        weight_bytes: Bytes of weights in the files.
        memory_bytes: Bytes of all buffers while the model is loaded.
        features: Required WebGPU features.
        sizes: Number of combinations of sizes that the model takes.
    """

    folder: Path
    files: dict[str, int]
    kernels: int
    shaders: int
    weight_bytes: int
    memory_bytes: int
    features: tuple[str, ...] = ()
    sizes: int = 1


def write_folder(models: Sequence[Exportable], folder: Path) -> Exported:
    """Write the folder of a model. Files of the same names are replaced.

    Args:
        models: The model for each combination of sizes.
        folder: The folder.

    Raises:
        OSError: If a file cannot be written.
    """
    document, weights = as_document(models)
    parts = [weights[start : start + PART_BYTES] for start in range(0, len(weights), PART_BYTES)]
    names = [f"weights-{index}.bin" for index in range(len(parts))]
    document["weights"] = [
        {"file": name, "bytes": len(part), "sha256": hashlib.sha256(part).hexdigest()}
        for name, part in zip(names, parts, strict=True)
    ]
    files = dict(zip(names, parts, strict=True))
    files["program.json"] = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
    files["package.json"] = _package(models[0].name)
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
        len(models),
    )


def page_file(name: str) -> bytes:
    """Return a shared file of folders."""
    return importlib.resources.files("dmlgpu.export").joinpath("pages", name).read_bytes()


def path_argument(caller: str, folder: object, argument: str = "folder") -> Path:
    """Return an argument that must be a path.

    Raises:
        InvalidArgument: If it is not.
    """
    try:
        path = Path(os.fspath(folder))  # type: ignore[call-overload]
    except Exception:  # whatever a foreign __fspath__ raises
        raise InvalidArgument(f"{caller}: {argument} must be a path, got {shown(folder)}") from None
    if "\0" in str(path) or not str(path).isprintable():
        raise InvalidArgument(f"{caller}: {argument} must be a path, got {shown(folder)}")
    return path


def write_files(folder: Path, files: dict[str, bytes]) -> None:
    """Write files into a folder, which is created if it does not exist."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        with whole_file(folder / name) as stream:
            stream.write(data)


def as_document(models: Sequence[Exportable]) -> tuple[dict[str, Any], bytes]:
    """Return the content of ``program.json`` without the list of weight files, and all weights.

    Args:
        models: A model for each combination of sizes. What they have in common is stored once; buffers of inputs,
            outputs and temporary data are as large as the largest needs.
    """
    document, uploads = Document(), Uploads()
    first = models[0]
    buffers = [
        document.buffer(f"input {port.name}", max(model.inputs[index].desc.byte_size for model in models))
        for index, port in enumerate(first.inputs)
    ]
    sizes_of_outputs = itertools.zip_longest(*(model.output_sizes for model in models), fillvalue=0)
    outputs = [document.buffer(f"output {index}", max(sizes)) for index, sizes in enumerate(sizes_of_outputs)]
    programs = [model.program for model in models if model.program is not None]
    temporary_size = max((program.temporary_size for program in programs), default=0)
    temporary = document.buffer("temporary", temporary_size) if temporary_size else None
    initialization: list[dict[str, Any]] = []
    runs: list[dict[str, Any]] = []
    for model in models:
        dispatches: list[dict[str, Any]] = []
        if model.program is not None:
            inputs = _inputs(model, model.program, document, uploads, buffers)
            places = [(buffer, 0) for buffer in outputs]
            once, dispatches = add_program(document, uploads, model.program, inputs, places, temporary=temporary)
            initialization += once
        runs.append(
            {
                "inputs": [
                    {**_described(port), "buffer": index} for port, index in zip(model.inputs, buffers, strict=True)
                ],
                "outputs": [_output(result, document, uploads, buffers, outputs) for result in model.results],
                "clears": outputs[: len(model.output_sizes)] if model.clears else [],
                "dispatches": dispatches,
            }
        )
    everything = [dispatch for run in runs for dispatch in run["dispatches"]]
    _mark_initial(document, everything)
    return {
        "format": FORMAT,
        "name": first.name,
        "made": dict(first.provenance),
        "needs": document.needs([*initialization, *everything]),
        **runs[0],
        **({"others": runs[1:]} if len(runs) > 1 else {}),
        "buffers": document.buffers,
        "uploads": document.uploads,
        "parameters": document.parameters,
        "shaders": document.shaders,
        "initialization": initialization,
    }, uploads.data


def _output(
    result: ExportResult, document: Document, uploads: Uploads, inputs: Sequence[int], outputs: Sequence[int]
) -> dict[str, Any]:
    """Return the description of an output with its buffer."""
    if result.output is not None:
        buffer = outputs[result.output]
    elif result.input is not None:
        buffer = inputs[result.input]
    else:
        assert result.data is not None
        buffer = document.constant(uploads, f"output {result.port.name}", result.data)
    return {**_described(result.port), "buffer": buffer}


def _inputs(
    model: Exportable, program: Program, document: Document, uploads: Uploads, buffers: Sequence[int]
) -> list[tuple[int, int] | None]:
    """Return the locations of the inputs of the program. Unused weights are omitted."""
    kernels = (*program.initialization, *program.kernels)
    read = {slot.index for kernel in kernels for slot in kernel.slots if slot.role is Role.INPUT}
    places: list[tuple[int, int] | None] = []
    for index, feed in enumerate(model.feeds):
        if isinstance(feed, int):
            places.append((buffers[feed], 0))
        elif feed is None or index not in read:
            places.append(None)
        else:
            places.append((document.constant(uploads, f"weight {index}", feed), 0))
    return places


def _mark_initial(document: Document, dispatches: Sequence[dict[str, Any]]) -> None:
    """Mark weights that only the initialization reads: their buffers are freed after it."""
    used = {buffer for dispatche in dispatches for buffer, _, _ in dispatche["bind"]}
    for index, buffer in enumerate(document.buffers):
        if index not in used and buffer["name"].startswith("weight "):
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
