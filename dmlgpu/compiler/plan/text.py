"""Plans as text: equations per step, and the tensors that are read and written.

    1. map gather
         output 0 = gather_nd1(input 0, input 1)
         reads  input 0 FLOAT32 [4, 8]
                input 1 UINT32 [3, 1]
         writes output 0 FLOAT32 [3, 8]

A body is written as a function of its inputs, under the name of its file. A body that is read more than once within a
step becomes a named value, so that equations grow no faster than trees do.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Sequence

from dmlgpu.compiler.plan.parts import read, written
from dmlgpu.compiler.plan.products import (
    Attend,
    Contract,
    Convolve,
    PairedContract,
    Pool,
    Product,
    Recurrence,
    RecurrentLayer,
    RotatedContract,
)
from dmlgpu.compiler.plan.reductions import Compact, Reduce, Rows, Scan
from dmlgpu.compiler.plan.sources import AffineView, Body, PlanTensor, RegisterValue, Sizes, Source, Virtual
from dmlgpu.compiler.plan.steps import Map, Plan, RegionGradient, Repeat, Scatter, Sort, Step, Together


def describe(plan: Plan) -> str:
    """Return the text of a plan."""
    count = len(plan.steps) + len(plan.initialization)
    lines = [f"plan of {plan.operator}: {count} step{'s' if count != 1 else ''}"]
    steps = [("", step) for step in plan.steps] + [("at initialization: ", step) for step in plan.initialization]
    for index, (when, step) in enumerate(steps, start=1):
        lines.append(f"  {index}. {when}{title(step)}")
        lines += [f"       {line}" for line in equations(step)]
        for verb, tensors in (("reads", read(step)), ("writes", written(step))):
            first, *others = tensor_texts(tensors) or ["nothing"]
            lines += [f"       {verb:6} {first}", *(f"              {other}" for other in others)]
    return "\n".join(lines)


def kind_of(step: Step) -> str:
    """Return the kind of a step, the name of its class in lower case: ``map``, ``contract``."""
    return type(step).__name__.lower()


def title(step: Step) -> str:
    """Return the kind of a step and its label, if they differ."""
    return kind_of(step) if step.label in ("", kind_of(step)) else f"{kind_of(step)} {step.label}"


def tensor_texts(tensors: Sequence[PlanTensor]) -> list[str]:
    """Return the unique descriptions of tensors: inputs by index, then tensors without an index."""

    def place(tensor: PlanTensor) -> tuple[str, int, str]:
        index = tensor.binding.index
        return tensor.binding.role, index if isinstance(index, int) else 0, str(tensor)

    return list(dict.fromkeys(map(str, sorted(tensors, key=place))))


# ---- sources


class _Equations:
    """Expressions for sources, and the equations of the values that are read more than once."""

    def __init__(self, *roots: Source):
        self.lines: list[str] = []
        self._names: dict[int, str] = {}
        self._readers: Counter[int] = Counter()
        pending = list(roots)
        while pending:
            source = pending.pop()
            self._readers[id(source)] += 1
            if isinstance(source, Virtual) and self._readers[id(source)] == 1:
                pending.extend(source.children)

    def of(self, source: Source) -> str:
        """Return an expression for a source."""
        if isinstance(source, PlanTensor):
            return str(source.binding)
        if isinstance(source, RegisterValue):
            return source.name
        if id(source) not in self._names:
            text = self._call(source)
            if self._readers[id(source)] > 1 and source.children:
                name = f"v{len(self.lines) + 1}"
                self.lines.append(f"{name} = {text}")
                text = name
            self._names[id(source)] = text
        return self._names[id(source)]

    def _call(self, source: AffineView | Body) -> str:
        arguments = [self.of(child) for child in source.children]
        if isinstance(source, AffineView):
            return f"{arguments[0]} as {list(source.sizes)}"
        numbers = [f"{name}={value!r}" for name, value in source.constants if type(value) in (bool, int, float)]
        return f"{_stem(source.file)}({', '.join([*arguments, *numbers])})"


def _stem(file: str) -> str:
    return file.rpartition("/")[2]


def _by(sizes: Sizes) -> str:
    return " x ".join(map(str, sizes)) or "1"


# ---- steps


@functools.singledispatch
def equations(step: Step) -> list[str]:
    """Return the equations of a step.

    Raises:
        TypeError: for a kind of step that has none.
    """
    raise TypeError(f"no equations for {type(step).__name__}")


@equations.register
def _map(step: Map) -> list[str]:
    return _stored(step.body, step.output)


@equations.register
def _repeat(step: Repeat) -> list[str]:
    inner = [f"  {line}" for inner_step in step.steps for line in equations(inner_step)]
    return [f"{step.turns} times, moving {', '.join(str(binding) for binding, _ in step.advances)}:", *inner]


@equations.register
def _together(step: Together) -> list[str]:
    return [line for inner in step.steps for line in equations(inner)]


@equations.register
def _contract(step: Contract | PairedContract) -> list[str]:
    return [*_product(step.product), *_stored(step.epilogue, step.output)]


@equations.register
def _rotated(step: RotatedContract) -> list[str]:
    partners = f"product.x and product.y = product of a column, and of the one {step.apart} columns from it"
    stored = (line for each in step.ranges for line in equations(each.step))
    return [*_product(step.product), partners, *stored]


def _product(product: Product) -> list[str]:
    expressions = _Equations(product.a, product.b)
    a, b = expressions.of(product.a), expressions.of(product.b)
    if product.norm is not None:
        gain = f" * {product.norm.gain.binding}" if product.norm.gain is not None else ""
        a = f"{a}{gain} / sqrt(mean of {a} ^ 2 + {product.norm.epsilon:g})"
    space = product.space
    batch = f"{_by(space.batch)} times " if math.prod(space.batch) > 1 else ""
    shape = f"{batch}{_by(space.rows)} rows by {_by(space.columns)} columns"
    return [*expressions.lines, f"product = sum over {_by(space.inner)} of {a} * {b}: {shape}"]


@equations.register
def _convolve(step: Convolve) -> list[str]:
    convolution = step.convolution
    expressions = _Equations(convolution.input, convolution.filter)
    source, filters = expressions.of(convolution.input), expressions.of(convolution.filter)
    channels, window = convolution.filter.sizes[2], tuple(axis.size for axis in convolution.windows)
    how = " transposed" if step.transposed else ""
    over = f"{channels} channels and windows of {_by(window)}"
    return [
        *expressions.lines,
        f"product = sum over {over}{how} of {source} * {filters}",
        *_stored(step.epilogue, step.output),
    ]


@equations.register
def _region_gradient(step: RegionGradient) -> list[str]:
    samples = ("largest samples" if step.maximum else "samples") + (f" of {step.input.binding}" if step.input else "")
    by = f"{step.gradient.binding} of {samples} in the regions {step.regions.binding} of images {step.batches.binding}"
    outputs = (("images", step.output), ("regions", step.region_output))
    return [f"{output.binding} = gradient of the {what} from {by}" for what, output in outputs if output is not None]


@equations.register
def _pool(step: Pool) -> list[str]:
    window = _by(tuple(axis.size for axis in step.windows))
    return [f"{step.output.binding} = largest of windows of {window} of {step.input.binding}"]


def _stored(body: Body, output: PlanTensor) -> list[str]:
    expressions = _Equations(body)
    result = expressions.of(body)
    return [*expressions.lines, f"{output.binding} = {result}"]


@equations.register
def _attend(step: Attend) -> list[str]:
    parts = (step.query, step.key, step.value, step.score, *([step.visible] if step.visible else []))
    expressions = _Equations(*parts)
    query, key, value, score, *visible = map(expressions.of, parts)
    seen = f", of the first {visible[0]} keys" if visible else ""
    return [
        *expressions.lines,
        f"product = {query} . {key}: {step.rows} rows by {step.keys} keys, {step.batches} heads",
        f"{step.output.binding} = softmax of {score} along the keys{seen}, times {value}",
    ]


@equations.register
def _recurrence(step: Recurrence) -> list[str]:
    expressions = _Equations(*step.states)
    states = [expressions.of(state) for state in step.states]
    gates = ", ".join(held.name for _, held in step.sums)
    return [
        f"{gates} = {step.hidden.binding} * {step.weights.binding}",
        *expressions.lines,
        *(f"{step.output.binding} state {index} = {state}" for index, state in enumerate(states)),
    ]


@equations.register
def _recurrent_layer(step: RecurrentLayer) -> list[str]:
    expressions = _Equations(*step.sums, *step.initial)
    states = step.states.binding
    sums = [f"product = {step.input.binding} * {step.weights.binding}"]
    sums += [
        f"{step.inputs.binding} direction {index} = {expressions.of(body)}" for index, body in enumerate(step.sums)
    ]
    first = [f"{states} {index} before = {expressions.of(body)}" for index, body in enumerate(step.initial)]
    if step.lasts is not None and step.lengths is not None:
        first.append(f"{step.lasts.binding} = time steps below {step.lengths.binding}")
    inner = [f"  {line}" for _, kernels in step.cells for kernel in kernels for line in equations(kernel)]
    outputs = [] if step.output is None else [f"{step.output.binding} = state 0 of {states} of all time steps"]
    outputs += [
        f"{output.binding} = state {index} of {states} of the last time step"
        for index, (_, output) in enumerate(step.singles)
        if output is not None
    ]
    return [*sums, *expressions.lines, *first, f"{step.time_steps} times:", *inner, *outputs]


@equations.register
def _reduce(step: Reduce) -> list[str]:
    expressions = _Equations(step.source)
    source = expressions.of(step.source)
    result = f"{_stem(step.reduction.file)} of {source} along axes {list(step.axes)}"
    if step.epilogue is None:
        return [*expressions.lines, f"{step.output.binding} = {result}"]
    return [*expressions.lines, f"product = {result}", *_stored(step.epilogue, step.output)]


@equations.register
def _rows(step: Rows) -> list[str]:
    expressions = _Equations(step.source, step.body, *step.statistics)
    source = expressions.of(step.source)
    lines = []
    for stage in step.stages:
        reduced = f"{_stem(stage.prepare)} of {source}" if stage.prepare else source
        lines.append(f"{', '.join(stage.results)} = {_stem(stage.file)} of {reduced} along axes {list(step.axes)}")
    before = len(expressions.lines)
    stored = zip((step.output, *step.statistic_outputs), (step.body, *step.statistics), strict=True)
    results = [f"{output.binding} = {expressions.of(body)}" for output, body in stored]
    return [*expressions.lines[:before], *lines, *expressions.lines[before:], *results]


@equations.register
def _scan(step: Scan) -> list[str]:
    order = "from the last" if step.scanning.decreasing else "up to each"
    what = f"{_stem(step.scanning.file)} of {step.source.binding} {order} element along axis {step.axis}"
    return [f"{step.output.binding} = {what}{', exclusive' if step.scanning.exclusive else ''}"]


@equations.register
def _compact(step: Compact) -> list[str]:
    chosen = f"{_stem(step.advance)} of the elements of {step.source.binding} that are {_stem(step.predicate)}"
    return [f"{step.output.binding}, {step.count.binding} = {chosen}"]


@equations.register
def _sort(step: Sort) -> list[str]:
    order = "largest" if step.decreasing else "smallest"
    count = f"the first {step.output.sizes[-1]} records of {step.source.binding} along axis {step.axis}"
    return [f"{step.output.binding} = {count}, {order} first"]


@equations.register
def _scatter(step: Scatter) -> list[str]:
    where = ", ".join(str(tensor.binding) for _, tensor in step.inputs)
    expressions = _Equations(step.source)
    moved = expressions.of(step.source)
    return [*expressions.lines, f"{step.output.binding} = {moved} at {_stem(step.file)}({where})"]
