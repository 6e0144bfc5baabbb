"""Past findings: a seed is the index of a file of the corpus.

A ``.py`` file has a function ``replay(monitor)``; a ``.json`` file is a model, a ``.jsonl`` file is read as records.
"""

from __future__ import annotations

import runpy
import shutil
import tempfile
from pathlib import Path

from tests.fuzz.monitor import Monitor
from tests.fuzz.targets import models, records

FOLDER = Path(__file__).parents[1] / "corpus"
FILES = tuple(sorted(path for path in FOLDER.iterdir() if path.suffix in (".py", ".json", ".jsonl")))


def run(seed: int, monitor: Monitor) -> None:
    """Replay a file."""
    file = FILES[seed]
    monitor.subject = lambda: file.name
    if file.suffix == ".py":
        runpy.run_path(str(file))["replay"](monitor)
        return
    with tempfile.TemporaryDirectory(prefix="dmlgpu-fuzz-") as name:
        copy = Path(name) / "model" / file.name
        shutil.copytree(models.EXAMPLES[0], copy.parent)
        shutil.copy(file, copy)
        if file.suffix == ".json":
            models.replay(copy, monitor)
            return
        for what in ("compare", "compare back", *records.FORMATS):
            records.replay(copy, copy, what, monitor)
