"""``python -m dmlgpu.frontends.pydirectml SCRIPT [ARGS]``."""

from __future__ import annotations

import sys

from dmlgpu.frontends.pydirectml.runner import main

if __name__ == "__main__":
    sys.exit(main())
