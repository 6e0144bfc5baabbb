"""Networks on ncnn's Vulkan backend, for side-by-side measurements. Needs ``pip install .[peers]``."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import ncnn
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]


class NcnnVulkan:
    """A network of layers in ncnn's own text format, in float32, on the first Vulkan device.

    Args:
        layers: lines ``Type name inputs outputs bottoms.. tops.. key=value..`` behind that of the input ``x``.
        blobs: how many different bottoms and tops there are, ``x`` among them.
        weights: of the layers that have any, in order.
    """

    def __init__(self, layers: Sequence[str], blobs: int, weights: Sequence[Array]):
        self._net = ncnn.Net()
        options = self._net.opt
        options.use_vulkan_compute = True
        options.use_fp16_packed = options.use_fp16_storage = options.use_fp16_arithmetic = False
        lines = ["7767517", f"{len(layers) + 1} {blobs}", "Input x 0 1 x", *layers]
        raw = np.zeros(1, np.uint32).tobytes()  # what follows is float32
        with tempfile.TemporaryDirectory() as folder:
            param, model = Path(folder, "net.param"), Path(folder, "net.bin")
            param.write_text("\n".join(lines) + "\n", encoding="utf-8")
            model.write_bytes(b"".join(raw + np.ascontiguousarray(one).tobytes() for one in weights))
            if self._net.load_param(str(param)) or self._net.load_model(str(model)):
                raise RuntimeError("ncnn does not take the network")

    def run(self, image: Array, output: str) -> Array:
        """Return a blob for an image of {channels, height, width}."""
        extractor = self._net.create_extractor()
        extractor.input("x", ncnn.Mat(image).clone())
        status, found = extractor.extract(output)
        if status:
            raise RuntimeError(f"ncnn fails with {status}")
        return np.array(found)

    def call(self, images: Sequence[Array], output: str) -> Callable[[int], object]:
        """A call that computes a blob of the n-th image, modulo their number."""
        return lambda number: self.run(images[number % len(images)], output)
