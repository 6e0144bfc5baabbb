"""Local response normalisation: each element is divided by a power of the sum of squares around it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.common.errors import NotSupported
from dmlgpu.compiler.operators.lowering import Lowering, input_tensor, invalid, output_tensor
from dmlgpu.compiler.plan import Body, Constants, Element, Map, Plan, Source, Step, Tensor, apply, constants
from dmlgpu.compiler.rewrites.windows import WINDOW_SUM

FLOAT32 = DataType.FLOAT32

MOST_NEIGHBOURS = 1 << 16
"""Elements of a region along one dimension."""

SQUARE = "normalization/square"


class _LocalResponse(Lowering):
    """What the operator and its gradient share."""

    @classmethod
    def check(cls, desc: Any) -> None:
        if desc.local_size < 1:
            raise invalid(desc, "local_size", f"must be at least 1, got {desc.local_size}")

    @classmethod
    def values(cls, desc: Any, exponent: float, **more: float) -> Constants:
        """Return the constants of a body with a power of ``bias + alpha / local_size * total``."""
        share = float(desc.alpha) / desc.local_size
        return constants(compute=FLOAT32, bias=float(desc.bias), share=share, exponent=float(exponent), **more)


@dataclass
class _Windows:
    """A plan in the making.

    Attributes:
        axes: the dimensions of a region.
        before, after: how many neighbours of an element belong to its region, on either side.
    """

    sizes: tuple[int, ...]
    axes: tuple[int, ...]
    before: int
    after: int
    steps: list[Step]

    @classmethod
    def of(cls, desc: Any) -> _Windows:
        """Read the regions from a description.

        Raises:
            NotSupported: when a region is too long.
        """
        sizes = desc.input_tensor.sizes
        axes = (1,) if desc.cross_channel else (3, 2)
        longest = min(desc.local_size, max(sizes[axis] for axis in axes))
        if longest > MOST_NEIGHBOURS:
            raise NotSupported(
                f"a region of {longest} elements in a row exceeds the {MOST_NEIGHBOURS} that are summed per element"
            )
        return cls(sizes, axes, (desc.local_size - 1) // 2, desc.local_size // 2, [])

    def sum(self, source: Source, *, mirrored: bool = False) -> Body:
        """The sum over each element's region, one dimension after the other; mirrored: over all elements in whose
        region it lies."""
        *first, last = self.axes
        for axis in first:
            source = self.stored(self._along(axis, source, mirrored))
        return self._along(last, source, mirrored)

    def _along(self, axis: int, source: Source, mirrored: bool) -> Body:
        before, after = (self.after, self.before) if mirrored else (self.before, self.after)
        most = self.sizes[axis] - 1
        values = constants(axis=axis, before=min(before, most), after=min(after, most))
        follows = tuple(None if d == axis else d for d in range(len(self.sizes)))
        return Element(WINDOW_SUM, FLOAT32, self.sizes, (("input", source),), values, follows=(follows,), portable=True)

    def stored(self, body: Body) -> Tensor:
        """Add a map into a temporary tensor, for what is read many times, and return that."""
        stored = Tensor.temporary("sums", FLOAT32, self.sizes)
        self.steps.append(Map(f"map {len(self.steps)}", body, stored))
        return stored

    def squares(self, source: Source) -> Body:
        """Return the sum of squares over each element's region."""
        return self.sum(apply(SQUARE, FLOAT32, self.sizes, portable=True, input=source))

    def plan(self, operator: str, body: Body, output: Tensor) -> Plan:
        """Return the plan that ends with a map into the output."""
        return Plan(operator, (*self.steps, Map("map", body, output)))


class LocalResponseNormalization(_LocalResponse):
    """The region of an element runs across channels where CrossChannel is set (as onnxruntime needs it for ONNX's LRN),
    else across height and width; the two pages contradict each other. Of LocalSize elements (LocalSize - 1) / 2,
    rounded down, lie before it, the others behind it, as in ONNX; what lies outside the tensor is left out. Alpha is
    divided by LocalSize also where the region has two dimensions, as the formula is printed. A region that reaches over
    more than 65536 elements in a row is refused.

    Sums and powers are computed in float32 and rounded once to the output's type.
    """

    desc = descs.LocalResponseNormalization
    shaders = ("normalization/local_response_normalization", WINDOW_SUM, SQUARE)

    @classmethod
    def lower(cls, desc: descs.LocalResponseNormalization) -> Plan:
        """One map; two where the region has two dimensions."""
        windows = _Windows.of(desc)
        source, output = input_tensor(desc, "input_tensor"), output_tensor(desc)
        total = windows.squares(source)
        values = cls.values(desc, -desc.beta)
        body = apply(
            cls.shaders[0], output.data_type, output.sizes, portable=True, values=values, input=source, total=total
        )
        return windows.plan(desc.operator, body, output)


class LocalResponseNormalizationGrad(_LocalResponse):
    """The gradient of LOCAL_RESPONSE_NORMALIZATION, its formula differentiated (the page prints none); regions lie and
    Alpha is divided as there."""

    desc = descs.LocalResponseNormalizationGrad
    shaders = (
        "normalization/local_response_normalization_grad",
        "normalization/local_response_weight",
        WINDOW_SUM,
        SQUARE,
    )

    @classmethod
    def lower(cls, desc: descs.LocalResponseNormalizationGrad) -> Plan:
        """The sums of squares, what every element adds to the gradients of others, and the map that sums that up."""
        file, weight, *_ = cls.shaders
        windows = _Windows.of(desc)
        output = output_tensor(desc, "output_gradient_tensor")
        total = windows.stored(windows.squares(input_tensor(desc, "input_tensor")))
        given: dict[str, Source] = {
            "gradient": input_tensor(desc, "input_gradient_tensor"),
            "input": input_tensor(desc, "input_tensor"),
            "total": total,
        }
        values = cls.values(desc, -desc.beta - 1)
        weights = windows.stored(apply(weight, FLOAT32, output.sizes, portable=True, values=values, **given))
        values = cls.values(desc, -desc.beta, twice=2 * float(desc.beta) * desc.alpha / desc.local_size)
        sums = windows.sum(weights, mirrored=True)
        body = apply(file, output.data_type, output.sizes, portable=True, values=values, **given, weights=sums)
        return windows.plan(desc.operator, body, output)
