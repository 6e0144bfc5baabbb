"""Run rows in child processes, one for each client."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import queue
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from dmlgpu.common.processes import ProcessGroup, exit_with_parent
from torch_clients.rows import Result, Row, load, run

COMFYUI = "DMLGPU_COMFYUI"
"""Environment variable that passes the folder of ComfyUI to child processes."""

_FOLDERS = Path(__file__).parents[1], Path(__file__).parents[2]


def run_apart(rows: Sequence[Row], adapter: str, patience: float, comfyui: Path | None = None) -> Iterator[Result]:
    """Yield the results of rows on an adapter.

    A process that ends or exceeds the time limit makes its row wrong; another process runs the remaining ones. No
    process, nor its children, outlives this one.

    Args:
        rows: Rows.
        adapter: Part of an adapter's name.
        patience: Seconds for a row, with the imports of the first one.
        comfyui: Folder of ComfyUI.
    """
    for _, group in itertools.groupby(rows, lambda row: row.client):
        remaining = list(group)
        while remaining:
            done = 0
            for result in _run_in_process(remaining, adapter, patience, comfyui):
                done += 1
                yield result
            remaining = remaining[done:]


def _run_in_process(rows: Sequence[Row], adapter: str, patience: float, comfyui: Path | None) -> Iterator[Result]:
    environment = {
        **os.environ,
        "DMLGPU_ADAPTER": adapter,
        "PYTHONPATH": os.pathsep.join((*map(str, _FOLDERS), os.environ.get("PYTHONPATH", ""))),
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    if comfyui is not None:
        environment[COMFYUI] = str(comfyui.resolve())
    command = [sys.executable, "-m", "torch_clients.running", adapter]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with (
        ProcessGroup(command, **pipes, text=True, env=environment, process_group=0) as process,
        contextlib.ExitStack() as stack,
    ):
        stack.callback(process.kill)
        assert process.stdin and process.stdout and process.stderr
        lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        errors: list[str] = []

        def read(stream: Iterator[str]) -> None:
            for line in stream:
                if line.startswith(_MARK):
                    lines.put(line.removeprefix(_MARK))
            lines.put(None)

        threading.Thread(target=read, args=(process.stdout,), daemon=True).start()
        reader = threading.Thread(target=errors.extend, args=(process.stderr,), daemon=True)
        reader.start()
        process.stdin.write(json.dumps([[row.client, row.name] for row in rows]))
        process.stdin.close()
        for row in rows:
            try:
                line = lines.get(timeout=patience)
            except queue.Empty:
                yield Result(row.client, row.name, adapter, "wrong", reason=f"more than {patience:g} s")
                return
            if line is None:
                process.wait()
                reader.join(5)
                reason = f"exit code {process.returncode}: {' '.join(errors[-1:]).strip()}"
                yield Result(row.client, row.name, adapter, "wrong", reason=reason)
                return
            yield Result(**json.loads(line))
        process.wait()


_MARK = "torch_clients result: "
"""Begins lines with results; clients print lines of their own."""


def main() -> None:
    """Run the rows that standard input names, in a child process, which ends with its parent."""
    exit_with_parent()
    by_name = {(row.client, row.name): row for row in load()}
    for client, name in json.load(sys.stdin):
        result = asdict(run(by_name[client, name], sys.argv[1]))
        result["reason"] = re.sub(r"0x[0-9a-f]+", "0x...", result["reason"])[:400]
        print(f"\n{_MARK}{json.dumps(result)}", flush=True)


if __name__ == "__main__":
    main()
