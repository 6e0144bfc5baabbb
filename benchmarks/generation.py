"""Tokens per second of an ONNX decoder with a cache, on dmlgpu and on onnxruntime.

    python scripts/export_decoder.py decoder.onnx
    python benchmarks/generation.py decoder.onnx --adapter llvmpipe --rows 128 --tokens 32

The model is one of scripts/export_decoder.py. The prompt's tokens come in one step; what is timed are the steps of one
token each behind it, the choice of the most likely token on the host included. Caches stay on the device.
``--peers`` also runs onnxruntime's CPU provider and, where it is installed, its WebGPU provider.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from dmlgpu.frontends.onnx import load

Step = Callable[[Mapping[str, NDArray[Any]]], NDArray[np.float32]]


def caches_of(path: str, rows: int) -> tuple[dict[str, NDArray[np.float32]], dict[str, str]]:
    """Return empty caches by name, and the output that updates each."""
    model = onnx.load(path, load_external_data=False)
    zeros = {}
    for one in model.graph.input:
        if one.name.startswith("past_"):
            _, heads, _, size = (dimension.dim_value for dimension in one.type.tensor_type.shape.dim)
            zeros[one.name] = np.zeros((1, heads, rows, size), np.float32)
    return zeros, {name: name.replace("past_", "present_") for name in zeros}


def ours(path: str, rows: int, adapter: str) -> Step:
    """Return a step on dmlgpu."""
    session = load(path, adapter)
    zeros, updates = caches_of(path, rows)
    for name, zero in zeros.items():
        session.bind(name, zero, updated_by=updates[name])
    return lambda numbers: session.run(numbers)["logits"][0]


def theirs(path: str, rows: int, provider: str) -> Step:
    """Return a step on a provider of onnxruntime's, its caches bound to its device."""
    import onnxruntime  # type: ignore[import-untyped]  # noqa: PLC0415

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    place = "cpu"
    if provider == "webgpu":
        from webgpu_ep import WebGpuEp  # noqa: PLC0415

        options.add_provider_for_devices(WebGpuEp().devices, {})
        place = "webgpu"
    session = onnxruntime.InferenceSession(path, options)
    zeros, updates = caches_of(path, rows)
    value = onnxruntime.OrtValue
    held = {name: value.ortvalue_from_numpy(zero, place, 0) for name, zero in zeros.items()}

    def step(numbers: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        binding = session.io_binding()
        for name, array in numbers.items():
            binding.bind_cpu_input(name, array)
        for name, one in held.items():
            binding.bind_ortvalue_input(name, one)
            binding.bind_output(updates[name], place)
        binding.bind_output("logits", "cpu")
        session.run_with_iobinding(binding)
        bound = dict(zip([*updates.values(), "logits"], binding.get_outputs(), strict=True))
        held.update({name: bound[output] for name, output in updates.items()})
        scores: NDArray[np.float32] = bound["logits"].numpy()[0]
        return scores

    return step


def timed(step: Step, prompt: Sequence[int], count: int) -> tuple[list[int], float, float, list[float]]:
    """Generate, and return the tokens, the seconds of the prompt and of the first step, and those of each later one."""
    new, before = list(prompt), 0
    tokens, seconds = [], []
    for _ in range(count + 2):
        last = before + len(new) - 1
        numbers: dict[str, NDArray[Any]] = {
            "input_ids": np.array([new], np.int64),
            "seqlens_k": np.array([last], np.int32),
            "total_sequence_length": np.array(last + 1, np.int32),
        }
        start = time.perf_counter()
        token = int(step(numbers).argmax())
        seconds.append(time.perf_counter() - start)
        before, new = last + 1, [token]
        tokens.append(token)
    return tokens, seconds[0], seconds[1], seconds[2:]


def report(name: str, make: Callable[[], Step], prompt: Sequence[int], count: int) -> list[int]:
    """Measure one way to run the model, and print it."""
    start = time.perf_counter()
    step = make()
    loaded = time.perf_counter() - start
    tokens, first, second, later = timed(step, prompt, count)
    median = float(np.median(later))
    print(
        f"{name}: {1 / median:.2f} tokens/s (median step {median * 1e3:.1f} ms, fastest {min(later) * 1e3:.1f} ms); "
        f"load {loaded:.1f} s, prompt of {len(prompt)} {first:.2f} s, first step {second:.2f} s",
        flush=True,
    )
    return tokens


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--adapter", default=None)
    parser.add_argument("--rows", type=int, default=128, help="of the caches")
    parser.add_argument("--prompt", type=int, default=8, help="how many tokens it has")
    parser.add_argument("--tokens", type=int, default=32, help="how many are timed")
    parser.add_argument("--peers", action="store_true")
    given = parser.parse_args()
    prompt = [(7 * number + 3) % 50 for number in range(given.prompt)]
    if given.prompt + given.tokens + 2 > given.rows:
        parser.error("the caches have too few rows")
    makes = {"dmlgpu": lambda: ours(given.model, given.rows, given.adapter)}
    if given.peers:
        makes["onnxruntime, CPU"] = lambda: theirs(given.model, given.rows, "cpu")
        makes["onnxruntime, WebGPU"] = lambda: theirs(given.model, given.rows, "webgpu")
    found = [report(name, make, prompt, given.tokens) for name, make in makes.items()]
    print("tokens:", "equal" if all(one == found[0] for one in found) else found)


if __name__ == "__main__":
    main()
