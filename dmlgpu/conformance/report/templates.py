"""Where the templates of reports are, and how they are filled in."""

from __future__ import annotations

from pathlib import Path

import jinja2

PAGES = Path(__file__).parent / "pages"

ENVIRONMENT = jinja2.Environment(
    loader=jinja2.FileSystemLoader(PAGES),
    undefined=jinja2.StrictUndefined,
    autoescape=jinja2.select_autoescape(),
    trim_blocks=True,
    lstrip_blocks=True,
)
