"""Derive ``dmlgpu/catalog/*.json`` from the full catalog of DirectML's public documentation.

    python scripts/import_schema.py DIRECTORY

DIRECTORY contains ``operators.json`` and ``enums.json``. Derived data (newest types and ranks, unions over feature
levels) is dropped. Facts that the documentation states in prose (array lengths, where an activation may be fused) are
data here.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

SCHEMA = Path(__file__).parents[1] / "dmlgpu" / "catalog"

RANK_COUNTS = {
    "SLICE": "DimensionCount",
    "SLICE1": "DimensionCount",
    "SLICE_GRAD": "DimensionCount",
    "PADDING": "DimensionCount",
    "PADDING1": "DimensionCount",
    "TILE": "RepeatsCount",
    "RESAMPLE": "ScaleCount",
    "RESAMPLE1": "DimensionCount",
    "RESAMPLE2": "DimensionCount",
    "RESAMPLE3": "DimensionCount",
    "RESAMPLE_GRAD": "DimensionCount",
    "RESAMPLE_GRAD1": "DimensionCount",
}
"""Operators whose arrays hold one entry per dimension of the tensor."""

SPATIAL_COUNTS = (
    "CONVOLUTION",
    "CONVOLUTION_INTEGER",
    "QUANTIZED_LINEAR_CONVOLUTION",
    "AVERAGE_POOLING",
    "AVERAGE_POOLING1",
    "AVERAGE_POOLING_GRAD",
    "LP_POOLING",
    "LP_POOLING1",
    "MAX_POOLING",
    "MAX_POOLING1",
    "MAX_POOLING2",
    "MAX_POOLING_GRAD",
    "QUANTIZED_LINEAR_AVERAGE_POOLING",
    "FOLD",
    "UNFOLD",
)
"""Operators whose DimensionCount leaves out the batch and the channel dimension."""

NON_EMPTY = {"SPLIT": "OutputCount", "JOIN": "InputCount"}

# Two pages say "TBD": these are the answers that docs and tests rely on. One summary calls an alias by the name itself.
CORRECTIONS = {
    "SCATTER_ELEMENTS": {
        "summary": "Copies the input, then overwrites one element per update; only the coordinate on the axis comes "
        "from the index (alias SCATTER).",
    },
    "QUANTIZE": {
        "summary": "Quantizes each element with a scale and, optionally, a zero point.",
        "formula": "y = clamp(round_half_even(x / scale) + zeroPoint, lowest, highest); zeroPoint = 0 for type SCALE. "
        "QuantizationTensors = [scale, zero point]; per dimension, block = input size / scale size and element i uses "
        "entry i div block.",
    },
    "DEQUANTIZE": {
        "summary": "Turns quantized elements back into floating-point numbers.",
        "formula": "y = (x - zeroPoint) * scale; zeroPoint = 0 for type SCALE. QuantizationTensors = [scale, zero "
        "point]; per dimension, block = input size / scale size and element i uses entry i div block.",
    },
}


def field(spec: dict[str, Any]) -> dict[str, Any]:
    """One field without what its kind already says."""
    entry = {key: spec[key] for key in ("name", "kind", "type")}
    if spec["optional"]:
        entry["optional"] = True
    if spec["array"]:
        entry["count"] = spec["count_field"]
    return entry


def table(spec: dict[str, Any]) -> dict[str, Any]:
    """Types, ranks and shape per tensor."""
    keys = ("dims", "types", "shape")
    return {name: {key: entry[key] for key in keys if key in entry} for name, entry in spec.items()}


def by_level(spec: dict[str, Any]) -> dict[str, Any]:
    """Tables in the order of their levels."""
    return {level: table(spec[level]) for level in sorted(spec)}


def counts(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    """What the documents say about array lengths, per count field."""
    if name in NON_EMPTY:
        return {NON_EMPTY[name]: {"minimum": 1}}
    tensors = [entry["name"] for entry in spec["fields"] if entry["type"] == "TENSOR"]
    # FOLD's columns are always of rank 3; its spatial dimensions are the output's.
    tensor = "OutputTensor" if name == "FOLD" else tensors[0]
    if name in RANK_COUNTS:
        return {RANK_COUNTS[name]: {"tensor": tensor, "less": 0}}
    return {"DimensionCount": {"tensor": tensor, "less": 2}} if name in SPATIAL_COUNTS else {}


def fusion(spec: dict[str, Any]) -> dict[str, Any] | None:
    """From which level, and into which operators (null: all that take one), the operator may be fused."""
    if not spec["fusable_activation"]:
        return None
    if not spec["fusable_only"]:
        return {"level": spec["feature_level"], "into": None}
    level = re.search(r"feature level (\d_\d)", spec["fusable_only"])
    assert level is not None
    hosts = [name for name in ("CONVOLUTION", "GEMM") if name in spec["fusable_only"]]
    return {"level": max(level[1], spec["feature_level"]), "into": hosts}


def variants(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """REDUCE's tables per group of functions."""
    groups = spec.get("support_by_variant", {})
    return [
        {"field": "Function", "members": re.findall(r"[A-Z][A-Z0-9_]+", title), "support": by_level(tables)}
        for title, tables in groups.items()
    ]


def operator(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Everything kept about one operator; absent keys mean null, false or empty."""
    entry = {key: spec[key] for key in ("enum_value", "feature_level", "summary", "formula", "notes", "constraints")}
    entry |= CORRECTIONS.get(name, {})
    entry["document"] = spec["doc"].removesuffix(".md")
    entry["owned_inputs"] = not any("not support DML_TENSOR_FLAG_OWNED_BY_DML" in text for text in spec["constraints"])
    for key in ("aliases", "supersedes", "superseded_by", "in_place", "accepts_fused_activation", "defaults"):
        entry[key] = spec.get(key)
    entry["fusion"] = fusion(spec)
    entry["fields"] = [field(entry) for entry in spec["fields"]]
    entry["counts"] = counts(name, spec)
    entry["relations"] = spec["tensor_relations"]
    entry["support"] = by_level(spec["support_by_level"])
    entry["variants"] = variants(spec)
    entry["examples"] = spec["examples"]
    return {key: value for key, value in entry.items() if value not in (None, False, [], {})}


def write(path: Path, entries: dict[str, dict[str, Any]]) -> None:
    """Write one line per key of each entry: compact, and still readable in a diff."""
    blocks = []
    for name, entry in entries.items():
        lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in entry.items())
        blocks.append(f" {json.dumps(name)}: {{\n{lines}\n }}")
    path.write_text("{\n" + ",\n".join(blocks) + "\n}\n", encoding="utf-8")


def main() -> None:
    """Read the full catalog, write the package's."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path, help="the folder of the full operators.json and enums.json")
    directory = parser.parse_args().directory
    operators = json.loads((directory / "operators.json").read_text(encoding="utf-8"))
    enums = json.loads((directory / "enums.json").read_text(encoding="utf-8"))
    write(SCHEMA / "operators.json", {name: operator(name, spec) for name, spec in operators.items()})
    write(SCHEMA / "enums.json", {key: enums[key] for key in ("enums", "constants", "feature_levels")})


if __name__ == "__main__":
    main()
