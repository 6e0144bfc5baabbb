"""The command line as a whole: help, version, errors, exit codes, plain text in a pipe."""

import importlib
import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import dmlgpu
from dmlgpu.cli import app as cli_app
from dmlgpu.cli.main import EXIT_CODES, FAILED, INTERRUPTED, OK, USAGE, main
from dmlgpu.common.errors import DeviceRemoved, InvalidArgument, OperatorNotImplemented
from tests.unit.cli.cli_process import dmlgpu as command
from tests.unit.cli.cli_process import run_here

VERBS = ("devices", "ops", "show", "run", "demo ocr", "demo palette")
HEAVY = {"wgpu", "numpy", "PIL", "skimage", "onnx", "distributed", "dmlgpu.compiler.operators", "dmlgpu.reference"}
DECORATION = re.compile("[\x1b\u2500-\u259f]")


def test_version():
    done = command("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"dmlgpu {dmlgpu.__version__}\n", "")


def test_help_names_every_verb_and_the_exit_codes():
    done = run_here("--help")
    assert done.returncode == 0
    for verb in VERBS:
        assert re.search(rf"^  {verb.split()[0]}  +\S", done.stdout, re.MULTILINE), verb
    text = " ".join(done.stdout.split())
    assert "Exit codes: 0 success; 1 failure, or a wrong result; 2 invalid command line" in text


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_a_verb_has_examples_and_is_plain_in_a_pipe(verb):
    done = run_here(*verb.split(), "--help")
    assert done.returncode == 0
    assert f"  Examples:\n    dmlgpu {verb}" in done.stdout
    assert "--adapter" in done.stdout or verb == "ops"
    assert not DECORATION.search(done.stdout)


@pytest.mark.parametrize(
    ("arguments", "needed"),
    [
        (("--help",), set()),
        (("--version",), set()),
        (("test", "--help"), set()),
        (("devices",), {"wgpu", "numpy"}),
        (("ops",), {"numpy", "dmlgpu.compiler.operators"}),
    ],
)
def test_verbs_import_only_their_own_modules(arguments, needed):
    watch = "import atexit, sys; atexit.register(lambda: print(*sys.modules, sep='\\n', file=sys.stderr))"
    loaded = set(command(*arguments, setup=watch).stderr.split())
    assert loaded & HEAVY == needed
    if arguments in (("devices",), ("ops",)):
        assert not {"typer", "rich"} & loaded
    if arguments == ("devices",):
        assert not {"dmlgpu.compiler.plan", "dmlgpu.catalog"} & loaded


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("opps",), "Error: No such command 'opps'. Did you mean 'ops'?\n"),
        (("ops", "--bogus"), "Error: No such option: --bogus\n"),
        (("run",), "Error: Missing argument 'MODEL.json|MODEL.onnx'.\n"),
    ],
)
def test_usage_errors_are_2(arguments, message):
    done = run_here(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith(message)


def test_no_verb_shows_the_help():
    done = run_here()
    assert done.returncode == 2
    assert "Usage: dmlgpu [OPTIONS] COMMAND [ARGS]..." in done.stdout + done.stderr


def test_unknown_adapter_lists_all():
    done = run_here("devices", "--adapter", "nonesuch")
    assert (done.returncode, done.stdout) == (2, "")
    first, *listed = done.stderr.splitlines()
    assert first == "dmlgpu: no adapter matches 'nonesuch'; available adapters:"
    assert re.fullmatch(r"  \d+: NumPy: numpy \(NumPy .*\)", listed[-1])


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidArgument("expected this, got that"), 2),
        (FileNotFoundError(2, "No such file or directory", "photo.png"), 2),
        (OperatorNotImplemented("LSTM"), 1),
        (DeviceRemoved("the device is gone"), 1),
    ],
)
def test_errors_are_one_line_and_an_exit_code(error, code, monkeypatch, capsys):
    def fail(**_):
        raise error

    monkeypatch.setattr(importlib.import_module("dmlgpu.cli.devices"), "show", fail)
    assert main(["devices"]) == code
    text = "photo.png: No such file or directory" if isinstance(error, OSError) else str(error)
    assert capsys.readouterr() == ("", f"dmlgpu: {text}\n")


@pytest.mark.slow
def test_debug_shows_the_traceback():
    done = command("--debug", "ops", "gahternd1")
    assert done.returncode == 1
    assert done.stderr.startswith("Traceback (most recent call last):")
    assert "dmlgpu.common.errors.InvalidArgument: DirectML has no operator 'gahternd1'" in done.stderr


@pytest.mark.parametrize(
    ("module", "extra", "arguments"),
    [
        ("typer", "cli", ("ops", "conv")),
        ("PIL", "demo", ("demo", "palette")),
        ("skimage", "demo", ("demo", "palette", "--adapter", "numpy")),
        ("onnx", "onnx", ("demo", "ocr")),
        ("tokenizers", "llm", ("demo", "generate", "--adapter", "numpy")),
    ],
)
def test_a_missing_extra_says_how_to_install_it(module, extra, arguments, tmp_path):
    done = command(*arguments, setup=f"import sys; sys.modules['{module}'] = None", directory=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"dmlgpu: {module} is not installed; install it with: pip install 'dmlgpu[{extra}]'\n"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--version",), OK),
        (("ops", "gather_nd1"), OK),
        (("show", "gather_nd1", "-a", "numpy", "--wgsl"), FAILED),
        (("ops", "nonesuch"), USAGE),
        (("compare", "nonesuch.jsonl", "nonesuch.jsonl"), USAGE),
        (("test", "--json"), USAGE),
    ],
)
def test_exit_codes(arguments, code):
    assert run_here(*arguments).returncode == code


@pytest.mark.parametrize("arguments", [("devices",), ("devices", "--adapter", "0")])
def test_an_interrupt_is_an_exit_code_and_no_traceback(arguments, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(importlib.import_module("dmlgpu.cli.devices"), "show", interrupt)
    done = run_here(*arguments)
    assert (done.returncode, done.stdout, done.stderr) == (INTERRUPTED, "", "")


def test_every_exit_code_has_a_meaning():
    assert list(EXIT_CODES) == [0, 1, 2, 130]
    assert (OK, FAILED, USAGE, INTERRUPTED) == (0, 1, 2, 130)
    assert all(re.search(rf"\b{code}\s", cli_app.root.__doc__ or "") for code in EXIT_CODES)


def test_the_package_runs_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "dmlgpu", "ops", "nonesuch"], capture_output=True, text=True, check=False
    )
    assert done.returncode == USAGE
    assert done.stderr.startswith("dmlgpu: DirectML has no operator 'nonesuch'")


def test_adapter_from_the_environment_and_the_option_wins(monkeypatch):
    taken = []
    module = importlib.import_module("dmlgpu.cli.run")
    monkeypatch.setattr(module, "run", lambda model, output_dir, adapter, **_: taken.append(adapter))
    runner = CliRunner()
    runner.invoke(cli_app.app, ["run", "m.json"], env={"DMLGPU_ADAPTER": "numpy"})
    runner.invoke(cli_app.app, ["run", "m.json", "-a", "0"], env={"DMLGPU_ADAPTER": "numpy"})
    runner.invoke(cli_app.app, ["run", "m.json"], env={"DMLGPU_ADAPTER": None})
    assert taken == ["numpy", "0", None]
