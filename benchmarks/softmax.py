"""Softmax against NumPy on the same machine, as interleaved ratios with their intervals.

    python benchmarks/softmax.py [ADAPTER] [-k NAME]

Prints a table of time of ours over time of NumPy and exits with 1 when the target is missed: 4096 rows of 1024 float32
in at most 3 times NumPy's time. The other shapes have no target.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

import numpy as np
from harness import Bench, open_backend
from numpy.typing import NDArray

from dmlgpu import descs
from dmlgpu.bench.ratios import ratio
from dmlgpu.enums import DataType
from dmlgpu.tensor import TensorDesc

Array = NDArray[np.float32]
TARGET = 3.0
SHAPES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "4096x1024": ((4096, 1024), (1,)),
    "4096x1023, odd rows": ((4096, 1023), (1,)),
    "64x1024x64, axis 1": ((64, 1024, 64), (1,)),
    "65536x32, short rows": ((65536, 32), (1,)),
    "1x4M, one row": ((1, 1 << 22), (1,)),
}


def softmax(x: Array, axes: tuple[int, ...]) -> Array:
    """NumPy's way, without needless temporaries."""
    y = x - x.max(axes, keepdims=True)
    np.exp(y, out=y)
    y /= y.sum(axes, keepdims=True)
    return y


def log_softmax(x: Array, axes: tuple[int, ...]) -> Array:
    y = x - x.max(axes, keepdims=True)
    y -= np.log(np.exp(y).sum(axes, keepdims=True))
    return y


def hardmax(x: Array, axes: tuple[int, ...]) -> Array:
    (axis,) = axes
    y = np.zeros_like(x)
    np.put_along_axis(y, x.argmax(axis, keepdims=True), 1, axis)
    return y


OPERATORS: dict[str, tuple[type, Callable[[Array, tuple[int, ...]], Array]]] = {
    "softmax": (descs.ActivationSoftmax1, softmax),
    "log_softmax": (descs.ActivationLogSoftmax1, log_softmax),
    "hardmax": (descs.ActivationHardmax1, hardmax),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("adapter", nargs="?", default="vulkan")
    parser.add_argument("-k", dest="part", default="", help="only lines whose name contains this")
    options = parser.parse_args()
    bench = Bench(open_backend(options.adapter))
    met = True
    for operator, (desc_class, by_numpy) in OPERATORS.items():
        for shape, (sizes, axes) in SHAPES.items():
            name = f"{operator} {shape}"
            if options.part not in name:
                continue
            x = np.random.default_rng(1).standard_normal(sizes, np.float32)
            tensor = TensorDesc(DataType.FLOAT32, sizes)
            ours = bench.operator(desc_class(input_tensor=tensor, output_tensor=tensor, axes=axes), x)
            copies = [x.copy() for _ in range(bench.sets)]
            measured = ratio(ours, lambda number, f=by_numpy, a=axes, c=copies: f(c[number % len(c)], a))
            verdict = ""
            if name == "softmax 4096x1024":
                met = measured.meets(at_most=TARGET)
                verdict = f"{'met' if met else 'MISSED'} <= {TARGET}"
            print(f"{name:<34} {verdict:<12} {measured}", flush=True)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
