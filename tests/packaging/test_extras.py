"""Each extra alone: the first example of its page runs if only its requirements are installed."""

import os
import sys
import venv
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from packaging.requirements import Requirement

from tests.gguf_models import write_quantized
from tests.packaging.conftest import ROOT, run

COMMANDS = {
    "": ['-c "from dmlgpu import ops; ops.softmax([[1.0, 2.0, 3.0]])"'],
    "cli": ["-m dmlgpu devices", "-m dmlgpu ops gemm", "-m dmlgpu test ACTIVATION_ELU -a numpy"],
    "onnx": [
        "-c \"import dmlgpu, numpy; dmlgpu.load('model.onnx').run({'x': numpy.ones(3, 'float32')})\"",
        "-c \"from dmlgpu import export; export.write_onnx('model.onnx', 'folder')\"",
    ],
    "cli,onnx": [
        "-m dmlgpu show model.onnx",
        "-m dmlgpu run model.onnx --input x=x.npy",
        "-m dmlgpu export model.onnx -o folder",
    ],
    "llm": ["-c \"from dmlgpu.onnx import Generator; next(Generator.load('model.gguf').generate_tokens([1]))\""],
    "cli,llm": ["-m dmlgpu demo generate --layers 1 --width 64"],
    "demo": ["-m dmlgpu demo palette"],
    "train": ["-m dmlgpu demo train --steps 20"],
    "ocr": ["-m dmlgpu demo ocr"],
    "browser,cli": ['-c "from dmlgpu.runtime.browser import lending"', "-m dmlgpu serve --help"],
    "bench": ["-m dmlgpu bench GEMM -s m=k=n=64 --plot gemm.svg"],
    "cluster": ['-c "from dmlgpu.conformance import cluster; from dmlgpu.common import dask_client"'],
    "docs": ["-c \"from mkdocs.config import load_config; c = load_config('mkdocs.yml'); c.plugins.on_config(c)\""],
    "torch": ["-c \"import torch; assert (torch.ones(3, device='dml') * 2).sum().item() == 6\""],
}
"""Programs by the extras that their page names."""


def required(wheel: Distribution, extras: set[str]) -> dict[str, Distribution]:
    """Return the packages, as installed here, that extras of the wheel require, by name."""
    packages: dict[str, Distribution] = {}
    seen: dict[str, set[str]] = {}

    def add(package: Distribution, chosen: set[str]) -> None:
        for line in package.requires or ():
            requirement = Requirement(line)
            marker = requirement.marker
            if marker is not None and not any(marker.evaluate({"extra": extra}) for extra in (chosen or {""})):
                continue
            if requirement.name == "dmlgpu":
                add(wheel, requirement.extras)
                continue
            new = {"", *requirement.extras} - seen.setdefault(requirement.name, set())
            if not new:
                continue
            seen[requirement.name] |= new
            packages[requirement.name] = distribution(requirement.name)
            add(packages[requirement.name], new)

    add(wheel, {"", *extras})
    return packages


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    tensors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "relu", tensors[:1], tensors[1:])
    onnx.save(helper.make_model(graph), folder / "model.onnx")
    np.save(folder / "x.npy", np.ones(3, np.float32))
    write_quantized(folder / "model.gguf", "llama", {}, layers=1)
    return folder


@pytest.mark.parametrize("extras", COMMANDS, ids=lambda extras: extras or "none")
def test_an_extra_alone_runs_what_its_page_shows(extras: str, installed: Path, models: Path, tmp_path: Path) -> None:
    (wheel,) = (package for package in distributions(path=[str(installed)]) if package.name == "dmlgpu")
    try:
        packages = required(wheel, {extra for extra in extras.split(",") if extra})
    except PackageNotFoundError as missing:
        pytest.skip(f"{missing.name} is not installed here")
    environment = tmp_path / "environment"
    venv.create(environment, symlinks=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = environment / "lib" / version / "site-packages"
    for path in installed.iterdir():
        (site / path.name).symlink_to(path)
    for package in packages.values():
        for top in {file.parts[0] for file in package.files or () if file.parts[0] not in ("..", "__pycache__")}:
            source = Path(str(package.locate_file(top)))
            if source.exists() and not (site / top).exists():
                (site / top).symlink_to(source)
    work = tmp_path / "work"
    work.mkdir()
    for path in models.iterdir():
        (work / path.name).symlink_to(path)
    variables = os.environ | {"DMLGPU_ADAPTER": "numpy", "PYTHONWARNINGS": "ignore"}
    variables.pop("PYTHONPATH", None)
    for line in COMMANDS[extras]:
        interpreter = environment / "bin" / "python"
        folder = ROOT if extras == "docs" else work
        run("sh", "-c", f"exec {interpreter} {line}", cwd=folder, env=variables)
