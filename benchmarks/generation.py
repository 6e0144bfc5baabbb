"""Tokens per second of an ONNX decoder with a cache, on dmlgpu and on onnxruntime.

    python scripts/export_decoder.py decoder.onnx
    python benchmarks/generation.py decoder.onnx --adapter llvmpipe --rows 128 --peers webgpu

The model is one of scripts/export_decoder.py. The prompt is one step. The following steps of one token each are timed,
interleaved, including the choice of the most likely token on the host. Caches stay on the device.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from dmlgpu.bench.ratios import ratio
from dmlgpu.frontends.onnx import load

Step = Callable[[Mapping[str, NDArray[Any]]], NDArray[np.float32]]


def caches_of(path: str, rows: int) -> tuple[dict[str, NDArray[np.float32]], dict[str, str]]:
    """Return empty caches by name, and the output that updates each."""
    model = onnx.load(path, load_external_data=False)
    zeros = {}
    for value_info in model.graph.input:
        if value_info.name.startswith("past_"):
            _, heads, _, size = (dimension.dim_value for dimension in value_info.type.tensor_type.shape.dim)
            zeros[value_info.name] = np.zeros((1, heads, rows, size), np.float32)
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
        from dmlgpu.bench.peers.programs.webgpu_provider import devices  # noqa: PLC0415

        options.add_provider_for_devices(devices(), {})
        place = "webgpu"
    session = onnxruntime.InferenceSession(path, options)
    zeros, updates = caches_of(path, rows)
    value = onnxruntime.OrtValue
    held = {name: value.ortvalue_from_numpy(zero, place, 0) for name, zero in zeros.items()}

    def step(numbers: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        binding = session.io_binding()
        for name, array in numbers.items():
            binding.bind_cpu_input(name, array)
        for name, value in held.items():
            binding.bind_ortvalue_input(name, value)
            binding.bind_output(updates[name], place)
        binding.bind_output("logits", "cpu")
        session.run_with_iobinding(binding)
        bound = dict(zip([*updates.values(), "logits"], binding.get_outputs(), strict=True))
        held.update({name: bound[output] for name, output in updates.items()})
        scores: NDArray[np.float32] = bound["logits"].numpy()[0]
        return scores

    return step


class Generation:
    """Tokens after a prompt, always the most likely one.

    Args:
        step: what gives the scores of the next token.
        prompt: its tokens come in one step, which is run here.
    """

    def __init__(self, step: Step, prompt: Sequence[int]):
        self.step, self.before = step, 0
        self.tokens: list[int] = []
        start = time.perf_counter()
        self._next(prompt)
        self.seconds = time.perf_counter() - start

    def _next(self, new: Sequence[int]) -> None:
        last = self.before + len(new) - 1
        numbers: dict[str, NDArray[Any]] = {
            "input_ids": np.array([new], np.int64),
            "seqlens_k": np.array([last], np.int32),
            "total_sequence_length": np.array(last + 1, np.int32),
        }
        self.tokens.append(int(self.step(numbers).argmax()))
        self.before = last + 1

    def __call__(self, _: int) -> None:
        """Generate one token."""
        self._next(self.tokens[-1:])


def main() -> None:
    """Measure the model of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--adapter", default=None)
    parser.add_argument("--rows", type=int, default=128, help="of the caches")
    parser.add_argument("--prompt", type=int, default=8, help="how many tokens it has")
    parser.add_argument("--rounds", type=int, default=11, help="pairs of tokens")
    parser.add_argument("--peers", nargs="*", default=["cpu", "webgpu"])
    options = parser.parse_args()
    if options.prompt + options.rounds + 3 > options.rows:
        parser.error("the caches have too few rows")
    prompt = [(7 * number + 3) % 50 for number in range(options.prompt)]
    for provider in options.peers:
        own = Generation(ours(options.model, options.rows, options.adapter), prompt)
        other = Generation(theirs(options.model, options.rows, provider), prompt)
        times = ratio(own, other, options.rounds)
        print(
            f"dmlgpu {1 / times.a_seconds:.2f} tokens/s, onnxruntime {provider} {1 / times.b_seconds:.2f}; "
            f"time of a token {times}; prompt with compiling {own.seconds:.1f} s, {other.seconds:.1f} s; "
            f"tokens {'equal' if own.tokens == other.tokens else f'differ: {own.tokens} {other.tokens}'}",
            flush=True,
        )


if __name__ == "__main__":
    main()
