"""Shell completion: the suggestions for shells, and bash itself if it is installed."""

import os
import shlex
import shutil
import subprocess
import sys
from unittest import mock

import pytest

from dmlgpu.catalog import catalog
from dmlgpu.compiler.graph.passes import PASSES
from dmlgpu.conformance.suites.registry import suite_by_name
from tests.unit.cli.cli_process import START, dmlgpu, run_here


def ask(variables):
    """What ``dmlgpu`` answers a shell, called in this process."""
    with mock.patch.dict(os.environ, variables):
        return run_here()


def script(shell):
    """Return the script that makes a shell complete ``dmlgpu``, by the command of docs/examples/cli/index.md."""
    done = ask({"_DMLGPU_COMPLETE": f"source_{shell}"})
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def offered(*words):
    """What bash is offered for the last of some words."""
    variables = {"_DMLGPU_COMPLETE": "complete_bash", "COMP_WORDS": shlex.join(("dmlgpu", *words))}
    if not words[-1]:
        variables["COMP_WORDS"] = shlex.join(("dmlgpu", *words[:-1])) + " "
    done = ask({**variables, "COMP_CWORD": str(len(words))})
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_verbs():
    assert offered("de") == ["devices", "demo"]


def test_operators():
    every = [name.lower() for name in catalog()]
    assert offered("ops", "") == every
    assert offered("show", "gather") == [name for name in every if name.startswith("gather")]
    assert offered("show", "GATHER") == [name for name in catalog() if name.startswith("GATHER")]


def test_values_of_options():
    assert offered("test", "--profile", "st") == ["standard"]
    assert offered("show", "--without", "") == list(PASSES)
    assert offered("show", "--schedules", "g") == ["gpu"]
    values = offered("test", "--suite", "o")
    assert values == ["onnx", "operator_accuracy", "operators"]
    assert all(suite_by_name(name).profiles for name in values)


def test_options():
    assert offered("devices", "--") == ["--adapter", "--drivers", "--json", "--help"]


def test_no_driver_is_asked():
    variables = {"_DMLGPU_COMPLETE": "complete_bash", "COMP_WORDS": "dmlgpu show --adapter n", "COMP_CWORD": "3"}
    watch = "import atexit, sys; atexit.register(lambda: print('wgpu' in sys.modules))"
    assert dmlgpu(setup=watch, environment=variables).stdout.split() == ["numpy", "False"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell(shell):
    assert f"_DMLGPU_COMPLETE=complete_{shell}" in script(shell)


@pytest.mark.skipif(shutil.which("bash") is None, reason="this machine has no bash")
def test_bash_completes(tmp_path):
    command = tmp_path / "dmlgpu"
    command.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, "-c", START])} "$@"\n')
    command.chmod(0o755)
    asking = 'COMP_WORDS=(dmlgpu sur); COMP_CWORD=1; _dmlgpu_completion dmlgpu; echo "${COMPREPLY[@]}"'
    done = subprocess.run(
        ["bash", "--norc", "-c", f"{script('bash')}\n{asking}"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
    )
    assert (done.stdout, done.stderr) == ("survey\n", "")
