"""Eight convolutions with relu and residual adds, for the suite ``peers``."""

from dmlgpu import Graph
from dmlgpu.tensors import directml
from dmlgpu.tensors.tensor import Tensor

CHANNELS, SIDE, CONVOLUTIONS = 64, 56, 8


def _convolution(x: Tensor, taps: Tensor) -> Tensor:
    return directml.convolution(x, taps, start_padding=(1, 1), end_padding=(1, 1))


_graph = Graph()
_last = _graph.input((1, CHANNELS, SIDE, SIDE))
_filters = [_graph.input((CHANNELS, CHANNELS, 3, 3), owned=True) for _ in range(CONVOLUTIONS)]
for _first, _second in zip(_filters[::2], _filters[1::2], strict=True):
    _inner = directml.activation_relu(_convolution(_last, _first))
    _last = directml.activation_relu(_convolution(_inner, _second) + _last)
outputs = [_last]
