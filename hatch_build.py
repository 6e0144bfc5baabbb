"""The build hook: writes the stubs of modules that are made from the catalog, into wheels and editable installs.

Both get them from the checkout, where git ignores them: a wheel as files of the package, an editable install because
it is the checkout.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class StubHook(BuildHookInterface):  # type: ignore[type-arg]
    """Writes the stubs before the package's files are collected."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the stubs and have them included although git ignores them."""
        sys.path.insert(0, self.root)
        try:
            from dmlgpu.catalog import stubs  # noqa: PLC0415 - only the path above leads to this checkout's
        finally:
            sys.path.remove(self.root)
        stubs.write(Path(self.root) / "dmlgpu")
        build_data["artifacts"] += [f"dmlgpu/{name}" for name in stubs.stubs()]
