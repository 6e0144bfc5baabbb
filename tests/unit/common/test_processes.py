"""Child processes: their imports, their descendants, and their end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import dmlgpu
from dmlgpu.common.processes import ChildLost, ChildProcess, NoAnswer, python_command

ANSWERS = (
    "import json, os, sys; answers = os.fdopen(int(os.environ['DMLGPU_ANSWERS']), 'w'); "
    "print('\"ready\"', file=answers, flush=True)"
)


def test_a_child_of_a_killed_process_ends():
    child = "from dmlgpu.common.processes import exit_with_parent; exit_with_parent(0.1); print(1, flush=True)"
    forever = "import time; time.sleep(1000)"
    start = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {f'{child}; {forever}'!r}]); {forever}"
    with subprocess.Popen([sys.executable, "-c", start], stdout=subprocess.PIPE) as parent:
        assert parent.stdout.readline() == b"1\n"
        parent.kill()
        assert parent.stdout.read() == b""  # the pipe closes when the last process that holds it has ended


def test_a_child_that_hangs_after_its_answers_is_killed(monkeypatch):
    monkeypatch.setattr("dmlgpu.common.processes.EXIT_LIMIT", 0.2)
    child = ChildProcess([sys.executable, "-c", f"{ANSWERS}; import time; answers.close(); time.sleep(1000)"])
    try:
        with pytest.raises(ChildLost, match=r"^the process ended with signal 9$|exit code 1$"):
            next(child.ask("request", 60))
    finally:
        child.close()


def test_output_of_a_child_is_no_answer_but_reported_if_it_crashes():
    code = f"print('hello', flush=True); {ANSWERS}; print(1, file=answers, flush=True); sys.stdin.read(10); sys.exit(3)"
    child = ChildProcess([sys.executable, "-c", code])
    try:
        answers = child.ask("request", 60)
        assert next(answers) == 1
        with pytest.raises(ChildLost, match=r"exit code 3\nhello$") as caught:
            next(answers)
        assert caught.value.code == 3
    finally:
        child.close()


def test_the_limit_of_a_request_begins_when_the_child_is_ready():
    start = "import time; time.sleep(0.4)"
    child = ChildProcess([sys.executable, "-c", f"{start}; {ANSWERS}; sys.stdin.readline(); time.sleep(1000)"])
    try:
        with pytest.raises(NoAnswer, match=r"no answer after 0\.2 s"):
            next(child.ask("request", 0.2))
        assert child.requests == 1
    finally:
        child.close()


def test_a_child_that_is_never_ready_is_ended():
    child = ChildProcess([sys.executable, "-c", "import time; time.sleep(1000)"], startup_limit=0.2)
    try:
        with pytest.raises(NoAnswer, match=r"no answer after 0\.2 s"):
            next(child.ask("request", 60))
    finally:
        child.close()


@pytest.mark.skipif(sys.platform == "win32", reason="process groups are POSIX's")
def test_descendants_are_killed_with_a_child():
    forever = "import time; time.sleep(1000)"
    code = (
        f"{ANSWERS}; import subprocess; grandchild = subprocess.Popen([sys.executable, '-c', {forever!r}]);"
        f" print(grandchild.pid, file=answers, flush=True); {forever}"
    )
    child = ChildProcess([sys.executable, "-c", code])
    pid = next(child.ask("request", 60))
    assert is_running(pid)
    child.close()
    deadline = time.monotonic() + 30
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_running(pid)


def is_running(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_children_import_the_package_of_their_parent(tmp_path):
    (tmp_path / "where.py").write_text(
        "import sys, dmlgpu\nfrom dmlgpu.common.processes import answer_stream, send_answer, tell_ready\n"
        "def main():\n    with answer_stream() as answers:\n"
        "        tell_ready(answers)\n        send_answer(answers, [dmlgpu.__file__, sys.argv[1:], '' in sys.path])\n"
    )
    other = tmp_path / "dmlgpu"
    other.mkdir()
    (other / "__init__.py").write_text("raise ImportError('the wrong one')")
    child = ChildProcess(python_command("where", "a", "b"), {"PYTHONPATH": str(tmp_path)})
    try:
        assert next(child.ask(None, 60)) == [dmlgpu.__file__, ["a", "b"], False]
    finally:
        child.close()


# ---- a folder full of modules that are called like those of Python's library and of others ---------------------------

TRAPS = (
    *("json", "logging", "numpy", "onnx", "queue", "random", "rich", "signal", "socket", "string", "subprocess"),
    *("tempfile", "threading", "typer", "dmlgpu"),
)


@pytest.fixture
def folder_of_traps(tmp_path):
    for name in TRAPS:
        (tmp_path / f"{name}.py").write_text(f"raise ImportError('{name} of the current folder was imported')")
    return tmp_path


def run_there(folder, *arguments):
    """Run the command as its script does: the first entry of ``sys.path`` is not the current folder."""
    start = "import sys; from dmlgpu.cli.main import main; sys.exit(main())"
    package = str(Path(dmlgpu.__file__).parents[1])
    environment = {name: value for name, value in os.environ.items() if name != "DMLGPU_ADAPTER"}
    return subprocess.run(
        [sys.executable, "-P", "-c", start, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=environment | {"PYTHONPATH": package},
    )


@pytest.mark.slow
def test_doctor_imports_nothing_from_the_current_folder(folder_of_traps):
    done = run_there(folder_of_traps, "doctor", "--json")
    assert "of the current folder" not in done.stdout + done.stderr
    record = json.loads(done.stdout)
    assert any(adapter["name"] == "numpy" for adapter in record["adapters"]), done.stdout


@pytest.mark.slow
def test_cases_run_in_a_folder_of_traps(folder_of_traps):
    done = run_there(folder_of_traps, "test", "-a", "numpy", "-k", "activation_relu", "-p", "quick", "-n", "1")
    assert "of the current folder" not in done.stdout + done.stderr
    assert done.returncode == 0, done.stdout + done.stderr
