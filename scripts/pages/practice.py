"""The hand-written, realistic example of an operator, ``docs/examples/<operator>.py``, if there is one.

Each is a complete script: a docstring for the page, then the operator with ``dmlgpu.ops`` and with its description,
both compared with a formula in NumPy. The operators are those of image classifiers and detectors, of transformers,
and of recurrent and quantized networks.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"

GIANT = 6000
"""Length of a generated example from which a hand-written one replaces it on a page."""


def sections(stem: str, generated: str) -> Iterator[str]:
    """The examples of a page as Markdown: the hand-written one first, then the generated one, folded if both exist."""
    path = EXAMPLES / f"{stem}.py"
    if not path.exists():
        yield from ("## Example", f"```python\n{generated}```")
        return
    prose, code = read(path)
    yield from ("## In practice", prose, f"```python\n{code}```")
    if len(generated) < GIANT:
        yield f"<details><summary>A small case with its numbers</summary>\n\n```python\n{generated}```\n\n</details>"


def read(path: Path) -> tuple[str, str]:
    """The prose and the code of an example."""
    source = path.read_text(encoding="utf-8")
    docstring = ast.parse(source).body[0]
    assert isinstance(docstring, ast.Expr) and isinstance(docstring.value, ast.Constant)
    lines = source.splitlines(keepends=True)
    return inspect.cleandoc(str(docstring.value.value)), "".join(lines[docstring.end_lineno or 0 :]).lstrip("\n")
