"""DxDispatch models, changed: refused with the place, or run; nothing is written outside the output directory."""

from __future__ import annotations

import contextlib
import functools
import os
import random
import shutil
import tempfile
from pathlib import Path
from typing import Any

from dmlgpu.conformance.cases.registry import OPERATOR_CASES
from dmlgpu.frontends import dxdispatch
from dmlgpu.frontends.dxdispatch.json_node import parse_json
from tests.fuzz.devices import check_usable, shared_device
from tests.fuzz.json_mutations import damaged, mutated, spelled
from tests.fuzz.model_texts import model_of
from tests.fuzz.monitor import Monitor, Refused

ROOT = Path(__file__).parents[3]
EXAMPLES = (ROOT / "tests" / "data" / "dxdispatch", ROOT / "examples")
"""Models of every kind of dispatchable (operators, graphs, serialized graphs, ONNX, shaders), and what they read."""
FILES = {"weights.npy": 5, "input.bin": 2, "product.bin": 2, "add.onnx": 2, "add.wgsl": 1}
"""Files that models read, with the relative frequency of damage."""
MAX_BYTES = 1 << 20
"""Of the resources of a model that is run."""


def run(seed: int, monitor: Monitor) -> None:
    """Change one model, and at times a file that it reads."""
    rng = random.Random(f"models {seed}")
    with tempfile.TemporaryDirectory(prefix="dmlgpu-fuzz-") as name:
        folder = Path(name) / "model"
        for examples in EXAMPLES:
            shutil.copytree(examples, folder, dirs_exist_ok=True)
        model = _model(rng)
        is_spoilt = rng.random() < 0.2
        # A file that is damaged is reached only by a model that is not refused before.
        changed = model if is_spoilt and rng.random() < 0.5 else mutated(model, rng, _examples())
        (folder / "model.json").write_bytes(spelled(changed, rng))
        if is_spoilt:
            _spoil_file(folder, rng)
        replay(folder / "model.json", monitor)


def replay(file: Path, monitor: Monitor) -> None:
    """Load a model, and run it if it is small."""
    text = file.read_bytes()
    monitor.subject = lambda: text[:3000].decode(errors="backslashreplace")
    with _inside(file.parent), tempfile.TemporaryDirectory(prefix="dmlgpu-fuzz-out-") as name:
        outside = _files(file.parent.parent)
        model = monitor.call(dxdispatch.load, file)
        size = (
            0 if isinstance(model, Refused) else sum(resource.allocated_size for resource in model.resources.values())
        )
        if not isinstance(model, Refused) and size <= MAX_BYTES:
            device = shared_device(monitor.adapter)
            timing = dxdispatch.TimingOptions(iterations=random.Random(text).randrange(1, 4), repeat=2)
            monitor.call(dxdispatch.execute, model, device, output_directory=Path(name) / "out", timing=timing)
            check_usable(device, monitor)
        changed = sorted(map(str, _files(file.parent.parent) ^ outside))
        changed += [str(file) for file in _files(Path(name)) if not file.is_relative_to(Path(name) / "out")]
        monitor.check(not changed, "file outside", "dxdispatch.execute", ", ".join(changed))


def _model(rng: random.Random) -> Any:
    """An example, or a model of one of the operators' smaller cases."""
    if rng.random() < 0.3:
        return rng.choice(_examples())
    cases = OPERATOR_CASES[rng.choice(list(OPERATOR_CASES))]
    return model_of(cases.case(rng.choice(cases.names("quick"))).desc)


@functools.cache
def _examples() -> tuple[Any, ...]:
    paths = (path for folder in EXAMPLES for path in sorted(folder.glob("*.json")))
    return tuple(parse_json(path.read_bytes(), str(path)) for path in paths)


def _spoil_file(folder: Path, rng: random.Random) -> None:
    """Damage a file that models read, above all the head of an array."""
    file = folder / rng.choices(list(FILES), list(FILES.values()))[0]
    raw = file.read_bytes()
    if file.suffix == ".npy" and rng.random() < 0.5:
        shape = rng.choice((b"(1000000000000,)", b"(-1, 3)", b"(2147483648, 4)", b"()", b"(0,)", b"('a',)", b"(3, 2"))
        raw = raw.replace(b"(3,), ", shape + b", ").replace(b"<f4", rng.choice((b"|O8", b"<c8", b"<f4", b"<U9", b"V4")))
    else:
        raw = damaged(raw, rng)
    file.write_bytes(raw)


def _files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file() or path.is_symlink()}


@contextlib.contextmanager
def _inside(folder: Path) -> Any:
    """Work in a folder, to which relative paths refer."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
