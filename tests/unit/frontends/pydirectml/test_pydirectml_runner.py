"""``python -m dmlgpu.frontends.pydirectml SCRIPT`` runs a script as ``python SCRIPT`` does."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from dmlgpu.frontends import pydirectml
from dmlgpu.frontends.pydirectml.__main__ import main
from tests.pydirectml_scripts import run_apart, run_python

FACTS = '''"""What a script sees."""
from __future__ import annotations
import pickle, sys
import sibling


class Kept:
    """Pickled by the name of its module."""


number: int = 1
print(sys.argv, sys.path[0], sibling.VALUE)
print(__name__, __doc__, __file__, __package__, __spec__, __cached__, type(__loader__).__name__)
print(sorted(name for name in globals() if name.startswith("__")), __annotations__)
print(sys.modules["__main__"].Kept is Kept, type(pickle.loads(pickle.dumps(Kept()))) is Kept)


def fail(depth):
    if not depth:
        raise LookupError("at last")
    fail(depth - 1)


try:
    fail(0)
except LookupError as error:
    print("once", file=sys.stderr)
    fail(2)
'''


@pytest.fixture(autouse=True)
def process() -> Iterator[None]:
    """Restore the state of the process that a script changes."""
    with (
        mock.patch.dict(os.environ),
        mock.patch.dict(sys.modules),
        mock.patch.object(sys, "argv", ["runner"]),
        mock.patch.object(sys, "path", ["folder of the runner", *sys.path]),
        mock.patch.object(sys, "excepthook", sys.excepthook),
    ):
        yield


def write(folder: Path, text: str, name: str = "script.py") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.slow
def test_a_script_sees_and_raises_what_it_does_under_python(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    write(folder, FACTS)
    write(folder, "VALUE = 7", "sibling.py")
    script = os.path.join("folder", "script.py")
    expected = run_python(script, "-a", "--flag", "a b", directory=tmp_path)
    result = run_apart(script, "-a", "--flag", "a b", directory=tmp_path)
    assert expected.stderr.endswith("LookupError: at last\n")
    assert (result.returncode, result.stdout, result.stderr) == (1, expected.stdout, expected.stderr)


def test_the_module_and_the_adapter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = write(tmp_path, "import os, pydirectml as dml\nprint(dml.Device(), os.environ['DMLGPU_ADAPTER'])")
    os.environ["DMLGPU_ADAPTER"] = "another"
    assert main(["-a", "numpy", str(script)]) == 0
    assert sys.modules["pydirectml"] is pydirectml
    assert main(["--adapter=numpy", str(script), "more"]) == 0
    assert capsys.readouterr().out == "dml.Device on GPU numpy\n" * 2
    assert sys.argv == [str(script), "more"]
    assert sys.path[0] == str(tmp_path)


def test_without_an_option_the_environment_names_the_adapter(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.environ["DMLGPU_ADAPTER"] = "no such adapter"
    script = write(
        tmp_path, "import pydirectml\ntry:\n    pydirectml.Device()\nexcept RuntimeError as error:\n    print(error)"
    )
    assert main([str(script)]) == 0
    assert capsys.readouterr().out.startswith("no adapter matches 'no such adapter'")


@pytest.mark.parametrize(("text", "code"), [("raise SystemExit(5)", 5), ("import sys; sys.exit('bye')", "bye")])
def test_exit_codes(tmp_path: Path, text: str, code: object) -> None:
    with pytest.raises(SystemExit) as caught:
        main([str(write(tmp_path, text))])
    assert caught.value.code == code


def test_interrupts(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        main([str(write(tmp_path, "raise KeyboardInterrupt"))])


def test_mistakes_of_syntax(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = write(tmp_path, "x = = 1\n")
    with pytest.raises(SyntaxError) as caught:
        main([str(script)])
    sys.excepthook(SyntaxError, caught.value, caught.value.__traceback__)
    assert capsys.readouterr().err == (
        f'  File "{script}", line 1\n    x = = 1\n        ^\nSyntaxError: invalid syntax\n'
    )


def test_a_hook_of_the_script_sees_its_own_frames(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = write(
        tmp_path,
        "import sys, traceback\n"
        "sys.excepthook = lambda kind, error, trace: print(kind.__name__, traceback.extract_tb(trace)[0].filename)\n"
        "1 / 0\n",
    )
    with pytest.raises(ZeroDivisionError) as caught:
        main([str(script)])
    sys.excepthook(ZeroDivisionError, caught.value, caught.value.__traceback__)
    other = ValueError("of another thread")
    sys.excepthook(ValueError, other, caught.value.__traceback__)
    assert capsys.readouterr().out == f"ZeroDivisionError {script}\nValueError {script}\n"


def test_scripts_that_are_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path, why in ((tmp_path / "none.py", "[Errno 2] No such file"), (tmp_path, "[Errno 21] Is a directory")):
        assert main([str(path)]) == 2
        assert f": can't open file '{path}': {why}" in capsys.readouterr().err
    with pytest.raises(SystemExit) as caught:
        main([])
    assert caught.value.code == 2


def test_sources_in_other_encodings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "script.py"
    script.write_bytes("# -*- coding: latin-1 -*-\nprint('é')\n".encode("latin-1"))
    assert main([str(script)]) == 0
    assert capsys.readouterr().out == "é\n"
