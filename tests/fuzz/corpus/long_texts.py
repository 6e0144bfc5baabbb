"""Long strings in messages: names, reasons, and contents of models; messages quote their beginnings."""

import json
import shutil
import tempfile
from pathlib import Path

from tests.fuzz.devices import open_device
from tests.fuzz.targets import models

TEXT = "x" * 10_000


def replay(monitor):
    device = open_device(monitor.adapter)
    buffer = monitor.call(device.create_buffer, 64, TEXT)
    monitor.call(repr, buffer)
    monitor.call(buffer.read, 0, 128)
    device.name = TEXT
    monitor.call(device.create_buffer, 2**70)
    monitor.call(device.remove, TEXT)
    monitor.call(device.create_buffer, 64)
    with tempfile.TemporaryDirectory(prefix="dmlgpu-fuzz-") as name:
        folder = Path(name) / "model"
        shutil.copytree(models.EXAMPLES[0], folder)
        tree = json.loads((folder / "owned.json").read_bytes())
        for index, changed in enumerate(_changed(tree, json.dumps(tree))):
            (folder / f"{index}.json").write_text(changed)
            models.replay(folder / f"{index}.json", monitor)
        # NumPy quotes the head that it cannot read.
        raw = (folder / "weights.npy").read_bytes()
        head = b"{" + b"'x': 1, " * 1000 + b"}"
        (folder / "weights.npy").write_bytes(raw[:8] + len(head).to_bytes(2, "little") + head)
        models.replay(folder / "owned.json", monitor)


def _changed(tree, text):
    """The text with each of its strings made long, values and keys."""
    for word in sorted(_words(tree)):
        yield text.replace(json.dumps(word), json.dumps(TEXT), 1)
        yield text.replace(json.dumps(word), json.dumps(word + TEXT))


def _words(tree):
    if isinstance(tree, str):
        return {tree}
    if isinstance(tree, dict):
        return set(tree).union(*map(_words, tree.values()))
    return set().union(*map(_words, tree)) if isinstance(tree, list) else set()
