"""A model's array file whose head claims more elements than it holds, or than there can be."""

import shutil
import tempfile
from pathlib import Path

from tests.fuzz.targets import models


def replay(monitor):
    with tempfile.TemporaryDirectory(prefix="dmlgpu-fuzz-") as name:
        folder = Path(name) / "model"
        shutil.copytree(models.EXAMPLES[0], folder)
        raw = (folder / "weights.npy").read_bytes()
        for shape in (b"(3, 2", b"'''", b"(2147483648, 4)", b"(1000000000000,)", b"(-1, 3)", b"(3, 0, 99999999)"):
            (folder / "weights.npy").write_bytes(raw.replace(b"(3,)", shape))
            models.replay(folder / "owned.json", monitor)
