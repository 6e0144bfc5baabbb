"""How fast a CPU adapter can multiply one row by 4-bit weights: dmlgpu's product and kernels that do less.

    python benchmarks/quantized_reading.py --adapter llvmpipe

All times are CPU time of the process, the shortest of interleaved rounds. Each line has the rate at which weights are
read, and the share: the time of a copy that moves (reads and writes) as many bytes, divided by the time of the kernel.

The hand-written kernels read each word of a column once, 16 bytes per load, and hold four columns per invocation:

    read      sums the words: what the adapter can read at all in a kernel
    multiply  masks and converts each weight, and multiplies it by a number in a register: the least arithmetic
    scale     also reads a scale per block and column
    row       as multiply, with the elements of a row, which invocations read in turn and broadcast

Results of the last three are not products: masks leave weights at their places in a word.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import dmlgpu
from dmlgpu.bench.ceilings import copy_kernel
from dmlgpu.runtime.executor import Range, ShaderBackend

BLOCK, LANES, COLUMNS = 32, 8, 4
COPIED = 64 << 20
KINDS = ("read", "multiply", "scale", "row")

HEAD = """@group(0) @binding(0) var<storage, read_write> words: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> results: array<f32>;
@group(0) @binding(2) var<storage, read_write> row: array<f32>;
@group(0) @binding(3) var<storage, read_write> scales: array<f32>;
@compute @workgroup_size({lanes})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) me: u32) {{
    let number = row[0];
"""


def hand_written(kind: str, inner: int) -> str:
    """Return a kernel that reads the words of four columns per invocation."""
    blocks, held, lines = inner // BLOCK, range(COLUMNS), [HEAD.format(lanes=LANES)]
    for column in held:
        place = f"group.x * {COLUMNS * LANES}u + me + {column * LANES}u"
        lines.append(f"let column{column} = {place}; var total{column} = 0.0;")
    lines.append(f"for (var block = 0u; block < {blocks}u; block++) {{")
    lines += [f"let words{column} = words[column{column} * {blocks}u + block];" for column in held]
    if kind == "read":
        lines += [f"total{column} += f32({' ^ '.join(f'words{column}.{part}' for part in 'xyzw')});" for column in held]
    else:
        lines += _multiplied(kind, blocks)
    lines += ["}", *(f"results[column{column}] = total{column};" for column in held), "}"]
    return "\n".join(lines)


def _multiplied(kind: str, blocks: int) -> list[str]:
    """Return the lines that multiply a block of four columns."""
    held = range(COLUMNS)
    lines = [f"var sum{column} = 0.0;" for column in held]
    for first in range(0, BLOCK, LANES):
        if kind == "row":
            lines.append(f"let row{first} = row[block * {BLOCK}u + {first}u + me];")
        for place in range(LANES):
            x = f"subgroupBroadcast(row{first}, {place}u)" if kind == "row" else "number"
            lines.append(f"let x{first + place} = {x};")
            for column in held:
                weight = f"f32(bitcast<i32>(words{column}.{'xyzw'[first // 8]} & {0xF << 4 * place}u))"
                lines.append(f"sum{column} = fma({weight}, x{first + place}, sum{column});")
    for column in held:
        scale = f"scales[column{column} * {blocks}u + block]" if kind == "scale" else "0.5"
        lines.append(f"total{column} = fma(sum{column}, {scale}, total{column});")
    return lines


def write_product(file: Path, inner: int, columns: int) -> None:
    """Write a network of one product with 4-bit weights."""
    random = np.random.default_rng(0)
    codes = random.integers(0, 256, (columns, inner // BLOCK, BLOCK // 2), np.uint8)
    scales = random.random(columns * inner // BLOCK, np.float32)
    attributes: dict[str, Any] = {"K": inner, "N": columns, "bits": 4, "block_size": BLOCK}
    node = helper.make_node("MatMulNBits", ["x", "codes", "scales"], ["y"], domain="com.microsoft", **attributes)
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, size])
        for name, size in (("x", inner), ("y", columns))
    ]
    weights = [numpy_helper.from_array(codes, "codes"), numpy_helper.from_array(scales, "scales")]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "product", values[:1], values[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), file)


def main() -> None:
    """Measure the sizes of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inner", type=int, default=1024)
    parser.add_argument("--columns", type=int, default=22528)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--adapter", default=None)
    options = parser.parse_args()
    device = dmlgpu.Device(options.adapter)
    backend = device.backend
    if not isinstance(backend, ShaderBackend):
        raise SystemExit(f"{device.adapter}: runs no shaders")
    size = options.inner * options.columns // 2
    sizes = {
        "words": size,
        "results": 4 * options.columns,
        "row": 4 * options.inner,
        "scales": size // 4,
        "source": COPIED,
        "target": COPIED,
    }
    ranges = {name: Range(backend.create_buffer(count, name), 0, count) for name, count in sizes.items()}

    def work(wgsl: str, names: tuple[str, ...], groups: int) -> Sequence[Any]:
        shader = backend.compile_shader(wgsl, "main", {}, dict.fromkeys(range(len(names)), "storage"), "reading")
        return shader.bind({number: ranges[name] for number, name in enumerate(names)}, (groups, 1, 1))

    groups = COPIED // (16 * 256 * 4)
    kernels: dict[str, Sequence[Any]] = {"copy": work(copy_kernel(256, 4, groups), ("source", "target"), groups)}
    for kind in KINDS:
        kernel = work(
            hand_written(kind, options.inner),
            ("words", "results", "row", "scales"),
            options.columns // COLUMNS // LANES,
        )
        kernels[kind] = kernel
    with tempfile.TemporaryDirectory(prefix="dmlgpu-") as folder:
        write_product(Path(folder) / "product.onnx", options.inner, options.columns)
        session = dmlgpu.load(Path(folder) / "product.onnx", device)
    row = dmlgpu.Tensor(np.ones((1, options.inner), np.float32), device=device)

    def run(name: str) -> None:
        if name == "product":
            session.run_tensors({"x": row})
        backend.wait(backend.submit(kernels.get(name, ())))

    shortest = dict.fromkeys((*kernels, "product"), float("inf"))
    for number in range(1 + options.rounds):
        for name in shortest:
            start = time.process_time()
            run(name)
            if number:
                shortest[name] = min(shortest[name], time.process_time() - start)
    rate = 2 * COPIED / shortest["copy"]
    print(f"copy: {rate / 1e9:.2f} GB/s, read and written")
    for name in (*KINDS, "product"):
        seconds, count = shortest[name], size * 5 // 4 if name in ("scale", "product") else size
        print(f"{name}: {1e3 * seconds:.2f} ms, {count / seconds / 1e9:.2f} GB/s, {100 * count / rate / seconds:.0f} %")


if __name__ == "__main__":
    main()
