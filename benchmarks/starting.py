"""How soon a new process has its first result, and what commands cost that compute nothing.

    python benchmarks/starting.py [ADAPTER] [-k PART]

All processes of a part are interleaved; ratios are of CPU time (user and system), which is less affected by other
processes, and of wall-clock time. The driver's cache and dmlgpu's cache of programs, in a separate folder, are warm.
DMLGPU_BEFORE may name another checkout to compare with. The exit code is 1 if a target is missed.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from targets import Part, Result, main

from dmlgpu import Device, TensorDesc, adapters, descs
from dmlgpu.bench.ratios import MINIMUM_ROUNDS, summarize
from dmlgpu.catalog.enums import DataType
from dmlgpu.compiler.stages import compile_operator

SIDE = 512
BEFORE = os.environ.get("DMLGPU_BEFORE")
ROOT = Path(__file__).parents[1]

Start = Callable[[], object]
"""Runs a process to its end."""

OURS = f"""
import sys
import numpy as np
import dmlgpu
square = dmlgpu.TensorDesc(dmlgpu.DataType.FLOAT32, (1, 1, {SIDE}, {SIDE}))
product = dmlgpu.descs.Gemm(a_tensor=square, b_tensor=square, c_tensor=None, output_tensor=square)
ones = np.ones((1, 1, {SIDE}, {SIDE}), np.float32)
(result,) = dmlgpu.evaluate(product, [ones, ones, None], dmlgpu.Device(sys.argv[1]))
assert result[0, 0, 0, 0] == {SIDE}
"""

ONE_BY_ONE = """
from dmlgpu.runtime.wgpu import native
for text in native.C_TYPES:
    del native.ffi._parsed_types[text]
"""

BARE = f"""
import sys
import numpy as np, wgpu
found = wgpu.gpu.enumerate_adapters_sync()
name = sys.argv[1].lower()
adapter = next(one for one in found if name in f"{{one.info['backend_type']}}: {{one.info['device']}}".lower())
device = adapter.request_device_sync(required_features=sys.argv[3].split())
usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC
sizes = [int(size) for size in sys.argv[4].split()]  # of the output, then of the operands
buffers = [device.create_buffer_with_data(data=np.ones(size // 4, np.float32), usage=usage) for size in sizes]
entries = [{{"binding": n, "visibility": 4, "buffer": {{"type": "storage"}}}} for n in range(3)]
layout = device.create_bind_group_layout(entries=entries)
pipeline = device.create_compute_pipeline(
    layout=device.create_pipeline_layout(bind_group_layouts=[layout], immediate_size=48),
    compute={{"module": device.create_shader_module(code=open(sys.argv[2]).read()), "entry_point": "main"}},
)
bound = [{{"binding": n, "resource": {{"buffer": one}}}} for n, one in enumerate(buffers)]
group = device.create_bind_group(layout=layout, entries=bound)
encoder = device.create_command_encoder()
work = encoder.begin_compute_pass()
work.set_pipeline(pipeline)
work.set_bind_group(0, group)
work.set_immediates(0, bytes(48), 0, 48)
work.dispatch_workgroups(*map(int, sys.argv[5].split()))
work.end()
device.queue.submit([encoder.finish()])
assert np.frombuffer(device.queue.read_buffer(buffers[0]), np.float32)[0] == {SIDE}
"""

PROVIDER = f"""
import sys
import numpy as np, onnxruntime, onnxruntime_ep_webgpu
onnxruntime.register_execution_provider_library("webgpu", onnxruntime_ep_webgpu.get_library_path())
devices = [one for one in onnxruntime.get_ep_devices() if one.ep_name == "WebGpuExecutionProvider"]
options = onnxruntime.SessionOptions()
options.add_provider_for_devices(devices, {{}})
options.log_severity_level = 3
session = onnxruntime.InferenceSession(sys.argv[1], options)
ones = np.ones(({SIDE}, {SIDE}), np.float32)
(result,) = session.run(None, {{"a": ones, "b": ones}})
assert result[0, 0] == {SIDE}
"""

COMMAND = "import sys; from dmlgpu.cli.main import main; sys.exit(main(sys.argv[1:]))"

ENUMERATION = """
import wgpu
for adapter in wgpu.gpu.enumerate_adapters_sync():
    adapter.info, adapter.features, adapter.limits
"""

MODEL = """
import sys
import numpy as np
from dmlgpu.frontends.onnx import load
session = load(sys.argv[1], sys.argv[2])
session.run({session.inputs[0].name: np.load(sys.argv[3])})
"""


def process(code: str, *arguments: str, root: str | Path = ROOT, **environment: str) -> Start:
    """A Python process that runs some code with the dmlgpu of a checkout."""
    command = [sys.executable, "-c", code, *arguments]
    variables = {"ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER": "1", **os.environ, **environment, "PYTHONPATH": str(root)}
    variables.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its bytecode
    return lambda: subprocess.run(command, env=variables, stdout=subprocess.DEVNULL, check=True)


def of_children() -> float:
    """The CPU time of all child processes in seconds."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def in_turn(
    starts: Mapping[str, Start], targets: Mapping[str, float], rounds: int = MINIMUM_ROUNDS
) -> Iterator[Result]:
    """Ratios of the first process to each of the others, with their targets."""
    clocks = {"processors": of_children, "wall": time.perf_counter}
    seconds: dict[str, dict[str, list[float]]] = {name: {clock: [] for clock in clocks} for name in starts}
    for start in starts.values():
        start()
    for number in range(MINIMUM_ROUNDS):
        for name in list(starts)[:: 1 if number % 2 else -1]:
            before = {clock: read() for clock, read in clocks.items()}
            starts[name]()
            for clock, read in clocks.items():
                seconds[name][clock].append(read() - before[clock])
    first, *others = starts
    for other in others:
        for clock in clocks:
            measured = summarize(seconds[first][clock], seconds[other][clock])
            yield Result(f"{first} / {other}, {clock}", measured, at_most=targets.get(other))


def product(adapter: str) -> Iterator[Result]:
    """A process to its first product of matrices, of which the bare one has the text already."""
    square = TensorDesc(DataType.FLOAT32, (1, 1, SIDE, SIDE))
    desc = descs.Gemm(a_tensor=square, b_tensor=square, c_tensor=None, output_tensor=square)
    target = Device(adapter).backend.target
    *_, kernel = compile_operator(desc, target.exact).kernels
    sizes = " ".join(str(slot.size) for slot in kernel.slots)
    features, grid = " ".join(target.features), " ".join(map(str, kernel.grid))
    with tempfile.TemporaryDirectory() as folder:
        text, cache = Path(folder, "kernel.wgsl"), str(Path(folder, "programs"))
        text.write_text(kernel.wgsl, encoding="utf-8")
        starts = {
            f"a process to its first product of {SIDE}": process(OURS, adapter, DMLGPU_CACHE=cache),
            "nothing kept in files": process(OURS, adapter, DMLGPU_CACHE="off"),
            "C types one by one": process(ONE_BY_ONE + OURS, adapter, DMLGPU_CACHE=cache),
            "bare wgpu-py": process(BARE, adapter, str(text), features, sizes, grid),
        }
        if BEFORE:
            starts["before"] = process(OURS, adapter, root=BEFORE)
        if (model := _matrix_product(Path(folder))) is not None:
            starts["WebGPU provider"] = process(PROVIDER, str(model))
        yield from in_turn(starts, {"bare wgpu-py": 1.0, "nothing kept in files": 1.0, "C types one by one": 1.0})


def _matrix_product(folder: Path) -> Path | None:
    """A model that multiplies two matrices; None where the provider that would run it is not installed."""
    try:
        import onnx  # noqa: PLC0415 - a peer
        import onnxruntime_ep_webgpu  # type: ignore[import-untyped] # noqa: F401, PLC0415
    except ImportError:
        return None
    values = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [SIDE, SIDE]) for name in "abc"]
    graph = onnx.helper.make_graph([onnx.helper.make_node("MatMul", ["a", "b"], ["c"])], "m", values[:2], values[2:])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
    path = folder / "product.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def libraries(adapter: str) -> Iterator[Result]:
    """A process to its first product on an adapter of Dawn, compared with one of wgpu-native, if Dawn is installed."""
    if not any(info.is_of_dawn for info in adapters()):
        return
    with tempfile.TemporaryDirectory() as folder:
        starts = {name: process(OURS, name, DMLGPU_CACHE=folder) for name in ("dawn", adapter)}
        yield from in_turn(starts, {})


def importing(adapter: str) -> Iterator[Result]:
    """Importing dmlgpu, compared with importing its dependencies."""
    starts = {"import dmlgpu": process("import dmlgpu"), "import wgpu, numpy": process("import wgpu, numpy")}
    yield from in_turn(starts, {})


def commands(adapter: str) -> Iterator[Result]:
    """Commands that compute nothing, compared with their dependencies."""
    for arguments, needed, code in (
        (["devices"], "wgpu-py's enumeration", "import numpy" + ENUMERATION),
        (["ops"], "importing NumPy", "import numpy"),
        (["--help"], "importing typer", "import typer"),
    ):
        starts = {f"dmlgpu {arguments[0]}": process(COMMAND, *arguments), needed: process(code)}
        if BEFORE:
            starts["before"] = process(COMMAND, *arguments, root=BEFORE)
        yield from in_turn(starts, {})


def models(adapter: str) -> Iterator[Result]:
    """Loading an OCR model and running it once."""
    import numpy as np  # noqa: PLC0415
    from models import MODELS, model_file, picture  # noqa: PLC0415 - needs a package with models

    with tempfile.TemporaryDirectory() as folder:
        for label, (file, sides) in MODELS.items():
            image, path = Path(folder, f"{label}.npy"), str(model_file(file))
            np.save(image, picture(*(sides or (480, 640))))
            arguments = path, adapter, str(image)
            starts = {
                f"{label}, loaded and run": process(MODEL, *arguments, DMLGPU_CACHE=str(Path(folder, "programs"))),
                "nothing kept in files": process(MODEL, *arguments, DMLGPU_CACHE="off"),
            }
            if BEFORE:
                starts["before"] = process(MODEL, *arguments, root=BEFORE)
            yield from in_turn(starts, {"nothing kept in files": 1.0})


PARTS: dict[str, Part] = {
    "product": product,
    "libraries": libraries,
    "importing": importing,
    "commands": commands,
    "models": models,
}

if __name__ == "__main__":
    sys.exit(main(__doc__, PARTS))
