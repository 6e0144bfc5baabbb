"""The peers that are known, how each is installed, and the processes in which they answer."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dmlgpu.bench.children import Child
from dmlgpu.errors import DmlError, InvalidArgument, NotSupported

_FOLDER = Path(__file__).parent

_START = """
import sys
folder, name, module = sys.argv[1:]
sys.path[:] = [folder, *filter(None, sys.path)]  # not the working directory
worker = __import__(f"{name}.worker").worker
del sys.path[0]
sys.exit(worker.main(module))
"""
"""Imports this package under its own short name, since where a peer is installed dmlgpu need not be."""


@dataclass(frozen=True)
class KnownPeer:
    """A program that computes the same.

    Attributes:
        name: what tables and options call it.
        module: of the folder ``programs``, which knows how to call it.
        install: the packages that it needs.
        is_gpu: whether it runs on a GPU's adapter; others are shown, and not counted as the best.
    """

    name: str
    module: str
    install: str
    is_gpu: bool = True

    def command(self, interpreter: str) -> tuple[str, ...]:
        """Return what starts its process with a Python interpreter."""
        return (interpreter, "-c", _START, str(_FOLDER.parent), _FOLDER.name, self.module)


PEERS: tuple[KnownPeer, ...] = (
    KnownPeer("webgpu-provider", "webgpu_provider", "onnxruntime onnxruntime-ep-webgpu onnx"),
    KnownPeer("tinygrad", "tinygrad_webgpu", "tinygrad dawn-python numpy"),
    KnownPeer("ncnn", "ncnn_vulkan", "ncnn numpy"),
    KnownPeer("iree", "iree_vulkan", "iree-base-compiler iree-base-runtime onnx numpy"),
    KnownPeer("taichi", "taichi_vulkan", "taichi numpy"),
    KnownPeer("torch-cuda", "torch_cuda", "torch numpy"),
    KnownPeer("torch", "torch_cpu", "torch numpy", is_gpu=False),
    KnownPeer("onnxruntime", "onnxruntime_cpu", "onnxruntime onnx", is_gpu=False),
)


@dataclass(frozen=True)
class InstalledPeer:
    """A peer that answers.

    Attributes:
        peer: which.
        child: its process.
        interpreter: the Python that runs it.
        versions: of what computes, by the packages' names.
    """

    peer: KnownPeer
    child: Child
    interpreter: str
    versions: Mapping[str, str]

    def to_json(self) -> dict[str, object]:
        """What a run writes down about it."""
        return {"interpreter": self.interpreter, "is_gpu": self.peer.is_gpu, "versions": dict(self.versions)}


def parse_environments(texts: Sequence[str], peers: Sequence[KnownPeer] = PEERS) -> dict[str, str]:
    """Return interpreters by the peers' names from texts ``NAME=PATH``; a virtual environment's folder stands for the
    interpreter in it.

    Raises:
        InvalidArgument: a text is malformed, names no peer or nothing that exists.
    """
    found = {}
    names = [one.name for one in peers]
    for text in texts:
        name, _, given = text.partition("=")
        if name not in names or not given:
            raise InvalidArgument(
                f"a peer's environment must be NAME=PATH with one of {', '.join(names)}, got {text!r}"
            )
        path = Path(given)
        if path.is_dir():
            path = path / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
        if not path.is_file():
            raise InvalidArgument(f"there is no Python interpreter {str(path)!r}, which {text!r} names")
        found[name] = str(path.absolute())
    return found


def choose(names: Sequence[str], peers: Sequence[KnownPeer] = PEERS) -> tuple[KnownPeer, ...]:
    """Return the peers with some names; all of them where none is given.

    Raises:
        InvalidArgument: a name is none.
    """
    known = {one.name: one for one in peers}
    for name in names:
        if name not in known:
            raise InvalidArgument(f"a peer must be one of {', '.join(known)}, got {name!r}")
    return tuple(known[name] for name in names) if names else tuple(peers)


def start(
    peers: Sequence[KnownPeer], interpreters: Mapping[str, str], time_limit: float
) -> tuple[list[InstalledPeer], list[str]]:
    """Start the peers that are installed.

    Args:
        peers: those that are wanted.
        interpreters: by their names, where not this one.
        time_limit: seconds for one answer.

    Returns:
        Those that answer, and of each other one a sentence that says why not, and how to install it.
    """
    found, missing = [], []
    for peer in peers:
        interpreter = interpreters.get(peer.name, sys.executable)
        child = Child(peer.command(interpreter), time_limit=time_limit)
        try:
            versions = child.ask({"do": "versions"})["versions"]
        except NotSupported as error:
            child.close()
            how = f"pip install {peer.install}, or --peer-env {peer.name}=PYTHON of an environment that has them"
            missing.append(f"{peer.name} is not installed ({error}): {how}")
        except (DmlError, OSError, ValueError) as error:
            child.close()
            missing.append(f"{peer.name} cannot be started by {interpreter}: {error}")
        else:
            found.append(InstalledPeer(peer, child, interpreter, versions))
    return found, missing
