"""The pages of the operators are those that the generator writes."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_committed_pages_are_what_the_generator_writes():
    script = ROOT / "scripts" / "generate_pages.py"
    result = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
