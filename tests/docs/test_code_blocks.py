"""Every block of Python on the pages runs, in order, on the adapter `numpy`; what quotes a file is in it.

The examples of operators have tests of their own.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
ELSEWHERE = {
    "browser.md": "waits until a page is opened; tests/chromium does",
    "pydirectml.md": "imports pydirectml; tests/unit/frontends/pydirectml/test_pydirectml_scripts.py runs it",
    "scikit-learn.md": "needs skl2onnx; tests/unit/frontends/onnx/test_sklearn_models.py runs it",
    "serving.md": "needs a server; tests/unit/frontends/generation/test_server.py asks one with this client",
    "kernels.md": "needs a GPU adapter; tests/gpu/test_own_kernels.py runs it",
    "architecture.md": "has shaders between its blocks that a test compares; tests/house/test_architecture.py runs it",
}

SETUP = {
    "index.md": """
import onnx
from onnx import TensorProto, helper

image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 1, 28, 28])
scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", 784])
nodes = [helper.make_node("Flatten", ["image"], ["flat"]), helper.make_node("Softmax", ["flat"], ["scores"])]
onnx.save(helper.make_model(helper.make_graph(nodes, "digits", [image], [scores])), "model.onnx")
""",
}
"""What a page's reader has already: a model."""


def pages() -> list[str]:
    paths = (path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md"))
    return sorted(page for page in paths if not page.startswith("examples/"))


def blocks(page: str) -> list[tuple[str, str, str]]:
    """Language, title and text of each fenced block."""
    return BLOCK.findall((ROOT / "docs" / page).read_text(encoding="utf-8"))


RUN = [page for page in pages() if any(block[:2] == ("python", "") for block in blocks(page))]
QUOTES = [
    (page, title, text) for page in pages() for _, title, text in blocks(page) if title and (ROOT / title).exists()
]


def test_pages_are_found() -> None:
    assert {"index.md", "tutorial/operators.md", "graphs.md", *ELSEWHERE} <= set(RUN)
    assert QUOTES


@pytest.mark.parametrize("page", [page for page in RUN if page not in ELSEWHERE])
def test_blocks_run(page: str, tmp_path: Path, adapter_environment: dict[str, str]) -> None:
    script = tmp_path / "blocks.py"
    code = "".join(text for language, title, text in blocks(page) if (language, title) == ("python", ""))
    script.write_text(SETUP.get(page, "") + code)
    done = subprocess.run(
        [sys.executable, script],
        cwd=tmp_path,
        env=adapter_environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("page", "path", "text"), QUOTES, ids=[f"{page}-{path}" for page, path, _ in QUOTES])
def test_quoted_lines_are_the_files_own(page: str, path: str, text: str) -> None:
    assert text in (ROOT / path).read_text(encoding="utf-8")
