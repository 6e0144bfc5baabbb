"""The child process in which ``Session.map`` runs a model on an adapter, so that a crash fails only the batches in
flight.

Its arguments are MODEL ADAPTER TEXT STRICT PRECISE EXCHANGE: the file of a pickled ``OnnxModel``, an index of ``dmlgpu
devices`` and that adapter's name, ``strict`` and ``precise`` or empty, and a path. The answer to the
first request says whether the model was loaded. Each other request lists the names of inputs, whose arrays are in
EXCHANGE.in; the answer lists the outputs in EXCHANGE.out.
"""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path
from typing import Any

from dmlgpu.common.errors import DeviceRemoved, InvalidState
from dmlgpu.common.processes import answer_stream, exit_with_parent, send_answer, tell_ready
from dmlgpu.frontends.onnx.mapping import failure, read_arrays, write_arrays
from dmlgpu.frontends.onnx.session import Session
from dmlgpu.runtime.adapters import choose
from dmlgpu.runtime.device import Device


def main() -> int:
    """Run the child process."""
    model, index, text, strict, precise, exchange = sys.argv[1:]
    exit_with_parent()
    loaded: dict[str, Any] = {}
    with answer_stream() as answers:
        try:
            info = choose(int(index))
            if str(info) != text:
                raise InvalidState(f"adapter {index} is {info} in the child process, not {text}")
            session = Session(pickle.loads(Path(model).read_bytes()), Device(info, precise=bool(precise)), bool(strict))
        except Exception as error:
            loaded = failure(error)
        tell_ready(answers)
        sys.stdin.readline()
        send_answer(answers, loaded)
        if loaded:
            return 0
        for line in sys.stdin:
            answer: dict[str, Any]
            try:
                outputs = session.run(read_arrays(Path(f"{exchange}.in"), json.loads(line)))
                answer = {"outputs": write_arrays(Path(f"{exchange}.out"), outputs)}
            except DeviceRemoved as error:
                send_answer(answers, {"lost": str(error)})
                return 0
            except Exception as error:
                answer = failure(error)
            send_answer(answers, answer)
    return 0
