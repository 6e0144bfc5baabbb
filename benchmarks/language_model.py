"""Tokens per second of a language model with 4-bit weights, on dmlgpu and on onnxruntime's WebGPU provider.

    python benchmarks/language_model.py --hidden 512 --layers 4 --adapter llvmpipe
    python benchmarks/language_model.py --hidden 1024 --layers 8 --clock cpu
    python benchmarks/language_model.py --adapter llvmpipe --against FOLDER

The model is the decoder with random weights of dmlgpu/demo/language_model.py. Prompts and single tokens are timed,
interleaved, including the choice of the most likely token. Caches stay on the device. The decoder computes the logits
of the last token of a prompt only, which dmlgpu would do by itself.

Two more lines say where the time of a token goes: how much the weights that it reads would take at the rate of a copy,
and how much CPU time the main thread takes, which is Python's and that of recording and submitting work.

With ``--against``, prompts and tokens are compared with those of another checkout instead, in CPU time.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime  # type: ignore[import-untyped]
from checkouts import compare, serve
from onnx import helper, numpy_helper

import dmlgpu
from dmlgpu.bench.ratios import ratio
from dmlgpu.demo.language_model import DecoderSizes, write
from dmlgpu.frontends.generation.generator import Generator
from dmlgpu.tensors.tensor import Tensor

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}

SERVE = "--serve"
"""Argument of the process that ``--against`` starts in each checkout, followed by the folder of the decoder, the
adapter, the context, and the length of prompts, or 0 for tokens."""


def write_decoder(folder: Path, sizes: DecoderSizes) -> None:
    """Write a decoder that computes the logits of the last token only."""
    write(folder, sizes)
    model = onnx.load(folder / "model.onnx", load_external_data=False)
    (logits,) = (node for node in model.graph.node if node.output[0] == "logits")
    model.graph.initializer.append(numpy_helper.from_array(np.array([-1]), "last.index"))
    last = helper.make_node("Gather", [logits.input[0], "last.index"], ["last"], "last", axis=1)
    model.graph.node.insert(list(model.graph.node).index(logits), last)
    logits.input[0] = "last"
    onnx.save(model, folder / "model.onnx")


class Provider:
    """The decoder on the provider, its caches bound to the device."""

    def __init__(self, folder: Path, sizes: DecoderSizes, rows: int):
        from dmlgpu.bench.peers.programs.webgpu_provider import devices  # noqa: PLC0415 - comparisons need no provider

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.add_provider_for_devices(devices(), {})
        self._session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options)
        zeros = np.zeros((1, sizes.kv_heads, rows, sizes.head_size), np.float32)
        names = [f"{layer}.{part}" for layer in range(sizes.layers) for part in ("key", "value")]
        self._caches = {name: onnxruntime.OrtValue.ortvalue_from_numpy(zeros, "webgpu", 0) for name in names}

    def run(self, tokens: Sequence[int], past: int) -> int:
        """Return the most likely token after others, which follow those of the caches."""
        binding = self._session.io_binding()
        binding.bind_cpu_input("input_ids", np.array([tokens], np.int64))
        binding.bind_cpu_input("attention_mask", np.ones((1, past + len(tokens)), np.int64))
        for name, cache in self._caches.items():
            binding.bind_ortvalue_input(f"past_key_values.{name}", cache)
            binding.bind_output(f"present.{name}", "webgpu")
        binding.bind_output("logits", "cpu")
        self._session.run_with_iobinding(binding)
        *caches, logits = binding.get_outputs()
        self._caches = dict(zip(self._caches, caches, strict=True))
        return int(logits.numpy()[0, -1].argmax())

    def tokens(self, prompt: Sequence[int]) -> Iterator[int]:
        """Return an iterator over the tokens after a prompt."""
        token, past = self.run(prompt, 0), len(prompt)
        while True:
            yield token
            token, past = self.run([token], past), past + 1


def read_by_a_token(sizes: DecoderSizes) -> int:
    """Return the bytes of the weights that a token reads: the codes of 4 bits, and a scale per 32 of them."""
    hidden, shared = sizes.hidden, 2 * sizes.kv_heads * sizes.head_size
    matrices = sizes.layers * (2 * hidden + shared + 3 * sizes.feed_forward) + sizes.vocabulary
    return matrices * hidden * 5 // 8


def print_shares(generator: Generator, tokens: Iterator[int], size: int, rounds: int, clock: str) -> None:
    """Print which part of a token's time reads weights, and which the main thread takes."""
    device = generator.device
    values = Tensor(np.zeros(size // 8, np.float32), device=device)
    negated = dmlgpu.compile(lambda x: -x)

    def copy(_: int) -> None:  # as many bytes are read and written
        negated(values)
        fence = device.create_fence()
        device.queue.signal(fence, 1)
        fence.wait(1)

    times = ratio(copy, lambda _: next(tokens), rounds, calls=3, clock=CLOCKS[clock])
    print(f"weights of {size / 2**20:.1f} MiB at the rate of a copy / token {times}", flush=True)
    shares = []
    for _ in range(rounds):
        start = time.thread_time(), time.process_time()
        for _ in range(5):
            next(tokens)
        shares.append(((time.thread_time() - start[0]) / 5, (time.process_time() - start[1]) / 5))
    main, whole = np.median(shares, axis=0)
    print(
        f"main thread {1e3 * main:.2f} ms of {1e3 * whole:.1f} ms of CPU time, {100 * main / whole:.1f} %", flush=True
    )


def prompt_of(length: int, number: int) -> list[int]:
    """Return a prompt of a length; those of different numbers differ from the first token on."""
    return [5 + number % 50, *((7 * place + 3) % 500 + 60 for place in range(length - 1))]


def serve_decoder(folder: str, adapter: str, context: int, length: int) -> None:
    """Run prompts of a length, or the next token of one if it is 0, as often as the standard input requests."""
    generator = Generator.load(folder, adapter or None, context=context, chunk=max(256, length))
    tokens = generator.generate_tokens(prompt_of(8, 0))

    def run(number: int) -> int:
        return next(generator.generate_tokens(prompt_of(length, number), max_tokens=1) if length else tokens)

    serve(run)


def print_ratios(folder: str, options: argparse.Namespace, context: int) -> None:
    """Compare prompts and tokens with those of another checkout."""
    for length in (*options.prompts, 0):
        arguments = [__file__, SERVE, folder, options.adapter or "", str(context), str(length)]
        times = compare(options.against, arguments, rounds=options.rounds, calls=1 if length else 5)
        work = f"prompt of {length} tokens" if length else "token"
        print(f"{work}: this checkout / {options.against.name} {times}", flush=True)


def main() -> None:
    """Measure the model of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hidden", type=int, default=512, help="a multiple of 64")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--prompts", type=int, nargs="*", default=[64, 512], help="their lengths")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--adapter", default=None)
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="cpu: for CPU adapters on a busy machine")
    parser.add_argument("--against", metavar="FOLDER", type=Path, help="compare with the checkout in this folder")
    options = parser.parse_args()
    wide = -(-options.hidden * 11 // 4 // 32) * 32
    sizes = DecoderSizes(options.layers, options.hidden // 64, feed_forward=wide)
    rows, clock = max(256, *(2 * length for length in options.prompts)), CLOCKS[options.clock]
    with tempfile.TemporaryDirectory(prefix="dmlgpu-") as name:
        write_decoder(Path(name), sizes)
        if options.against is not None:
            print_ratios(name, options, rows)
            return
        generator = Generator.load(name, options.adapter, context=rows, chunk=max(256, *options.prompts))
        provider = Provider(Path(name), sizes, rows)
        for length in options.prompts:
            times = ratio(
                lambda number, length=length: provider.run(prompt_of(length, number), 0),  # type: ignore[misc]
                lambda number, length=length: next(  # type: ignore[misc]
                    generator.generate_tokens(prompt_of(length, number), max_tokens=1)
                ),
                options.rounds,
                clock=clock,
            )
            print(f"prompt of {length} tokens: provider / dmlgpu {times}", flush=True)
        ours, theirs = generator.generate_tokens(prompt_of(8, 0)), provider.tokens(prompt_of(8, 0))
        tokens: list[tuple[int, int]] = []
        calls = (lambda _: next(theirs), lambda _: next(ours))
        tokens.append((calls[0](0), calls[1](0)))
        times = ratio(*calls, options.rounds, calls=3, clock=clock)
        print(f"token: provider / dmlgpu {times}", flush=True)
        print_shares(generator, ours, read_by_a_token(sizes), options.rounds, options.clock)


if __name__ == "__main__":
    if sys.argv[1:2] == [SERVE]:
        serve_decoder(sys.argv[2], sys.argv[3], *map(int, sys.argv[4:]))
    else:
        main()
