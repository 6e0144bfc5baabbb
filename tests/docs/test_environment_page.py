"""The page on environment variables names all that dmlgpu reads."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_has_every_variable():
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "dmlgpu").rglob("*.py")]
    names = {name for text in texts for name in re.findall(r"\bDMLGPU_[A-Z_]*[A-Z]\b", text)}
    page = (ROOT / "docs" / "environment.md").read_text(encoding="utf-8")
    assert "DMLGPU_ADAPTER" in names
    assert {name for name in names if f"`{name}`" not in page} == set()
