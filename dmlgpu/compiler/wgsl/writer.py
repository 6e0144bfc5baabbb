"""WGSL source of trees of bodies: accessors for tensors in memory, functions for virtual tensors."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import WORD_BITS
from dmlgpu.common.errors import NotSupported
from dmlgpu.compiler.linker import DOUBLE, BufferInterface
from dmlgpu.compiler.plan import (
    AffineView,
    Apply,
    Body,
    Lookup,
    PlanBinding,
    PlanTensor,
    RegisterValue,
    Source,
    View,
    Virtual,
)
from dmlgpu.compiler.rewrites.packing import is_paired
from dmlgpu.compiler.schedule.steps.base import KernelStep
from dmlgpu.compiler.schedule.steps.quantized import ScheduledQuantizedProduct
from dmlgpu.compiler.schedule.steps.together import ScheduledTogether
from dmlgpu.compiler.sizes.arithmetic import is_many
from dmlgpu.compiler.target import Division, Float16Conversions, Float16Encoding, Target
from dmlgpu.compiler.wgsl import library, matrices, templates
from dmlgpu.compiler.wgsl.expressions import TypedValue
from dmlgpu.compiler.wgsl.names import Names, use
from dmlgpu.compiler.wgsl.parameters import is_size
from dmlgpu.compiler.wgsl.types import (
    LANE_NAMES,
    PAIR,
    Scalar,
    TensorAccess,
    access,
    block_of,
    decode,
    edge,
    encode,
    scalar_of,
    vector,
)

MODULUS = 1 << 32

SLICE = "layout/slice1"

EXTENSIONS = ("f16", *matrices.EXTENSIONS)
"""WGSL extensions that a text must enable if it uses them."""


@dataclass
class BoundBuffer:
    """A buffer of a kernel, and the names by which templates access it.

    Attributes:
        binding: Its resource.
        block: WGSL type of the blocks that are read and written.
        index: Its index among the buffers of the kernel.
        loads, stores: Whether the text reads and writes blocks, other than atomically.
    """

    binding: PlanBinding
    block: str
    index: int
    loads: bool = False
    stores: bool = False

    @property
    def load(self) -> str:
        """Function that reads a block by its index."""
        self.loads = True
        return f"load{self.index}"

    @property
    def store(self) -> str:
        """Function that writes a block by its index."""
        self.stores = True
        return f"store{self.index}"

    @property
    def base(self) -> str:
        """Function that returns the first word of the tensor in the array."""
        return f"base{self.index}"

    @property
    def atomics(self) -> str:
        """Array, of a buffer that is updated atomically."""
        return f"buffer{self.index}"


@dataclass(frozen=True)
class BodyOutput:
    """Properties, for templates, of the tensor that a body defines."""

    data_type: DataType
    portable: bool
    sizes: tuple[int, ...]
    target: Target

    @property
    def kind(self) -> Scalar:
        """Type in which its elements are computed."""
        return scalar_of(self.data_type, self.target, self.portable)

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.sizes)

    def from_u32(self, text: str) -> TypedValue:
        """Return an unsigned expression converted to the tensor's type."""
        return TypedValue(text, Scalar.U32, DataType.UINT32, self.target).to(self.data_type, self.portable)


_ENCODINGS = {Float16Encoding.PACK: "half_of_f32_packed", Float16Encoding.F16: "half_of_f32_by_f16"}


@functools.cache  # bounded by the members
def native_functions(conversions: Float16Conversions, division: Division) -> Mapping[str, str]:
    """Return the library functions that exact hardware operations replace, with their replacements.

    Args:
        conversions: Conversions of float16.
        division: Division of float32.
    """
    decoding = {"f32_of_half": "f32_of_half_unpacked"} if conversions.decodes else {}
    encoding = {"half_of_f32": _ENCODINGS[conversions.encoding]} if conversions.encoding in _ENCODINGS else {}
    is_replaced = division is not Division.SOFTWARE
    exact = {name: f"{name}_{division}" for name in ("divide_f32", "sqrt_f32")} if is_replaced else {}
    return {**decoding, **encoding, **exact}


class ShaderWriter:
    """Builder of the source of one kernel.

    Args:
        target: Features and limits of the adapter.
        names: Names in the kernel, which are ``active`` as long as it is rendered.
        doubles: Whether two words are read and written as one 64-bit number.
    """

    def __init__(self, target: Target, names: Names, doubles: bool = False):
        self.target, self._doubles, self.names = target, doubles, names
        self.buffers: list[BoundBuffer] = []
        self._functions: list[str] = []  # of virtual tensors, each in its own namespace
        self._namespaces: dict[object, str] = {}

    # ---- tensors in memory

    def _buffer(self, tensor: PlanTensor, block: str) -> BoundBuffer:
        for buffer in self.buffers:
            if (buffer.binding, buffer.block) == (tensor.binding, block):
                return buffer
        self.buffers.append(BoundBuffer(tensor.binding, block, len(self.buffers)))
        return self.buffers[-1]

    def _address(self, name: str, tensor: PlanTensor, a: TensorAccess, block: str) -> dict[str, Any]:
        """Return the template values for the offsets of a tensor's units."""
        terms = [
            (dimension, stride % MODULUS, is_many(getattr(stride, "value", stride) % MODULUS))
            for dimension, (size, stride) in enumerate(zip(tensor.sizes, tensor.strides, strict=True))
            if stride and (type(size) is not int or size > 1)  # parameters of value 1 share kernels with all others
        ]
        return {
            "name": self.names.scoped(name),
            "rank": tensor.rank,
            "scalar": a.scalar,
            "unit": a.unit,
            "buffer": self._buffer(tensor, block),
            "shift": a.base_shift,
            "offset": tensor.offset,
            "terms": terms,
            "unit_bits": a.unit_bits,
        }

    def load(self, name: str, tensor: PlanTensor, portable: bool = False) -> str:
        """Return the accessor of an input: ``<name>_load``, which returns two units if they are paired, or
        ``<name>_index`` for indices."""
        a = access(tensor, self.target, portable)
        values = self._address(name, tensor, a, PAIR if is_paired(tensor) else a.block)
        if tensor.view is View.INDEX:
            index_type = tensor.data_type.name.lower().replace("uint", "u").replace("int", "i")
            return templates.render("access/index", index_type=index_type, **values)
        file = "access/load_pair" if is_paired(tensor) else "access/load"
        return templates.render(file, decoded=decode(a), **values)

    def words(self, name: str, tensor: PlanTensor, *counts: int) -> str:
        """Return ``<name>_words<count>``, which read ``count`` words at once, for an input of units below a word with
        an existing accessor."""
        count = WORD_BITS // tensor.unit_bits
        return templates.render(
            "access/words",
            name=self.names.scoped(name),
            buffer=self._buffer(tensor, "u32"),
            count=count,
            counts=sorted(set(counts)),
            last=tensor.reach * 8 // WORD_BITS - 1,
        )

    def doubles(self, name: str, tensor: PlanTensor) -> str:
        """Return ``<name>_doubles``, which reads 16 adjacent bytes, for a tensor of bytes; for adapters with 64-bit
        integers."""
        values = self._address(name, tensor, access(tensor, self.target), "u64") | {"shift": 1}
        return templates.render("access/doubles_at", count=8, last=tensor.reach // 8 - 1, **values)

    def wide_store(self, tensor: PlanTensor) -> tuple[str, dict[str, Any]]:
        """Return the base of an output of bytes that is written in blocks of 16, and the template values that schedules
        need of it; for adapters with 64-bit integers."""
        values = self._address("output", tensor, access(tensor, self.target), "vec2<u64>") | {"shift": 2}
        return templates.render("access/types", **values) + templates.render("access/place", **values), values

    def store(self, tensor: PlanTensor, portable: bool = False, atomic: bool = False) -> tuple[str, dict[str, Any]]:
        """Return the accessor of the output, and the template values that schedules need of it."""
        a = access(tensor, self.target, portable)
        block = PAIR if is_paired(tensor) else a.block
        values = self._address("output", tensor, a, f"atomic<{block}>" if atomic else block)
        text = templates.render("access/store", block=a.block, encoded=encode(a), **values)
        return text + (templates.render("access/store_pair", **values) if is_paired(tensor) else ""), values

    # ---- virtual tensors

    def body(self, body: Body) -> str:
        """Return text that defines ``element`` for the tree's root, with the names of the output accessor."""
        return self._defined(body, body.moves, body.portable)

    def _defined(self, source: Virtual, raw: bool, portable: bool) -> str:
        """Return text that defines ``element`` for a virtual tensor."""
        if isinstance(source, Apply):
            return self._region(source, raw)
        return (
            self._view(source, raw, portable)
            if isinstance(source, AffineView)
            else self._element(source, raw, portable)
        )

    def finish(self, text: str) -> tuple[str, set[str]]:
        """Return the body of the kernel: the library functions that it needs, its virtual tensors, and a text; and all
        identifiers of WGSL and the library that it uses."""
        replaced = native_functions(self.target.float16, self.target.division)
        used = library.with_needs(self.names.used, replaced)
        return library.text_of(used, replaced) + "".join(self._functions) + text, used

    def interface_of(self, buffer: BoundBuffer) -> BufferInterface:
        """Return how the linker binds a buffer, as a whole: ``doubles`` makes 64-bit numbers of pairs of words."""
        stored = DOUBLE.get(buffer.block, buffer.block) if self._doubles else buffer.block
        return BufferInterface(buffer.block, stored, buffer.loads, buffer.stores)

    def source(self, name: str, source: Source, raw: bool, portable: bool) -> str:
        """Return the accessor of a source, in memory or virtual."""
        if isinstance(source, PlanTensor):
            return self.load(name, source, portable)
        if isinstance(source, RegisterValue):
            raise TypeError(f"{source.name} is held in registers, where only element-wise bodies find it")
        own = (isinstance(source, Body) and source.portable) or (portable and not isinstance(source, Apply))
        value = f"{self._virtual(source, raw, own)}element(at)"
        scalar, unit = self._types(source, raw, portable)
        if not raw:
            kind, requested = (scalar_of(source.data_type, self.target, choice) for choice in (own, portable))
            value = self.between(edge(source.data_type, kind, source.lanes, value), kind, requested, source.lanes)
        values = {"name": self.names.scoped(name), "rank": len(source.sizes), "scalar": scalar, "unit": unit}
        return templates.render("access/virtual", value=value, **values)

    def _types(self, body: Virtual, raw: bool, portable: bool) -> tuple[str, str]:
        """Return the WGSL types of an element and of a unit of a virtual tensor."""
        if raw:
            return (block_of(body.data_type.bits * body.lanes),) * 2
        kind = scalar_of(body.data_type, self.target, portable)
        return kind.wgsl, vector(kind, body.lanes)

    def _namespace(self, key: object, letter: str) -> tuple[str, bool]:
        """Return a prefix for an object, and whether it is new."""
        if key in self._namespaces:
            return self._namespaces[key], False
        self._namespaces[key] = f"{letter}{len(self._namespaces)}_"
        return self._namespaces[key], True

    def _virtual(self, body: Virtual, raw: bool, portable: bool) -> str:
        """Return the namespace of a virtual tensor's ``element``, which is written once.

        Element bodies pass on their inputs, so they represent 64-bit elements like their reader.
        """
        namespace, new = self._namespace((id(body), portable), "virtual")
        if new:
            scalar, unit = self._types(body, raw, portable)
            with self.names.within(namespace):
                types = templates.render(
                    "access/types", name=self.names.scoped("output"), rank=len(body.sizes), scalar=scalar, unit=unit
                )
                self._functions.append(types + self._defined(body, raw, portable))
        return namespace

    def _element(self, body: Body, raw: bool, portable: bool) -> str:
        """Return an element body with the accessors of its inputs."""
        accessors = [self.source(name, source, raw, portable) for name, source in body.inputs]
        values = {**dict(body.inputs), **dict(body.constants)}
        text = "".join(accessors) + templates.render(body.file, output=body, **values)
        return text + templates.render("access/placed") if isinstance(body, Lookup) else text

    def _view(self, view: AffineView, raw: bool, portable: bool) -> str:
        """Return an affine view with the accessor of its source."""
        text = self.source("input", view.source, raw, portable)
        return text + templates.render(SLICE, start=view.affine.start, steps=view.affine.steps)

    def between(self, expression: str, own: Scalar, requested: Scalar, lanes: int) -> str:
        """Convert a value between the adapter's native type and the portable one."""
        if own is requested:
            return expression
        if Scalar.F16 in (own, requested):
            return f"{vector(requested, lanes)}({expression})"
        if Scalar.F64 in (own, requested) and not self.target.has("shader-int64"):
            raise NotSupported(
                "FLOAT64 arithmetic fused with a conversion needs the adapter feature shader-int64,"
                f" which {self.target.name!r} lacks"
            )
        function = f"words_of_{own}" if requested.is_words else f"{requested}_of_words"
        return f"{use(function)}({expression})"

    # ---- regions of element-wise bodies

    def _region(self, root: Body, raw: bool) -> str:
        """Return straight-line values, each computed once: nested calls would double with every level of sharing."""
        return _RegionWriter(self, raw).rendered("access/region", root, parameters=())

    def epilogue(
        self,
        body: Body,
        held: DataType,
        count: int = 1,
        arguments: Mapping[PlanTensor | RegisterValue, str] | None = None,
    ) -> str:
        """Return text that defines ``finish(at, product)``: an elementwise tree with a ``RegisterValue`` of a type, or
        with several, which are the components of a vector. Variables of the kernel, by these names, hold the units of
        ``arguments``."""
        product = vector(scalar_of(held, self.target, portable=True), body.lanes * count)
        return _RegionWriter(self, raw=False, arguments=arguments).rendered("access/epilogue", body, product=product)

    def element_of(self, body: Body, arguments: Mapping[PlanTensor | RegisterValue, str]) -> str:
        """Return text that defines ``element(at, ...)`` for an element-wise tree, with more arguments: the units, in
        float32, of some of its leaves, under these names."""
        parameters = self._parameters(arguments, body.lanes)
        region = _RegionWriter(self, raw=False, arguments=arguments)
        return region.rendered("access/region", body, parameters=parameters)

    def elements(self, bodies: Sequence[Body], arguments: Mapping[PlanTensor | RegisterValue, str]) -> str:
        """Return text that defines ``elements(at, ...)`` for several trees at once, with an array of their units."""
        parameters = self._parameters(arguments, bodies[0].lanes)
        region = _RegionWriter(self, raw=False, arguments=arguments)
        return region.rendered("access/elements", *bodies, parameters=parameters)

    def _parameters(self, arguments: Mapping[PlanTensor | RegisterValue, str], lanes: int) -> list[tuple[str, str]]:
        """Return names and types of the units of ``lanes`` that a region has as arguments."""
        return [
            (name, vector(scalar_of(leaf.data_type, self.target, portable=True), lanes))
            for leaf, name in arguments.items()
        ]

    def apply_function(self, body: Body, kinds: Mapping[str, Scalar]) -> str:
        """Return the name of the function that an ``apply`` body defines for these input types; equal sources share
        one."""
        data_types = {name: source.data_type for name, source in body.inputs}
        arguments = {name: TypedValue(name, kind, data_types[name], self.target) for name, kind in kinds.items()}
        output = BodyOutput(body.data_type, body.portable, (), self.target)
        literals = self._literals(body)
        types = tuple((name, kind, data_types[name]) for name, kind in kinds.items())
        # A size is itself: its text would name it, which the function may not.
        texts = tuple((name, id(value) if is_size(value) else str(value)) for name, value in literals.items())
        key = body.file, types, output.data_type, output.kind, output.portable, texts
        namespace, new = self._namespace(key, "apply")
        if new:
            with self.names.within(namespace):
                aliases = "".join(f"alias {namespace}{name}_s = {kind.wgsl};\n" for name, kind in kinds.items())
                aliases += f"alias {namespace}output_s = {output.kind.wgsl};\n"
                text = templates.render(body.file, output=output, **arguments, **literals)
                self._functions.append(aliases + text)
        return f"{namespace}apply"

    def _literals(self, body: Body) -> dict[str, Any]:
        """Return the template values of a body; floating-point numbers become typed literals."""
        values = dict(body.constants)
        compute = values.get("compute")
        if not isinstance(compute, DataType):
            return dict(values)
        floats = {name: value for name, value in values.items() if isinstance(value, float)}
        return values | {name: TypedValue.attribute(number, compute, self.target) for name, number in floats.items()}


class _RegionWriter:
    """Values of one region, in the order of computation."""

    def __init__(
        self, writer: ShaderWriter, raw: bool, arguments: Mapping[PlanTensor | RegisterValue, str] | None = None
    ):
        self.writer, self.raw, self.arguments = writer, raw, arguments or {}
        self.accessors: list[str] = []
        self.values: list[tuple[str, str]] = []
        self._memo: dict[tuple[int, bool], str] = {}

    def rendered(self, file: str, *roots: Body, **values: Any) -> str:
        """Return a template with the values of trees, after the accessors that they need."""
        results = [self.value(root, root.portable, is_root=True) for root in roots]
        text = templates.render(file, values=self.values, result=results[0], results=results, **values)
        return "".join(self.accessors) + text

    def value(self, source: Source, portable: bool, is_root: bool = False) -> str:
        """Return the name of the variable that holds a source's unit, in a consumer's choice of types."""
        key = (id(source), portable)
        if key not in self._memo:
            if isinstance(source, Apply):
                expression = self._applied(source, is_root)
                own = scalar_of(source.data_type, self.writer.target, source.portable)
                requested = scalar_of(source.data_type, self.writer.target, portable)
                expression = self.writer.between(expression, own, requested, source.lanes)
            else:
                expression = self._loaded(source, portable)
            name = f"v{len(self.values)}"
            self.values.append((name, expression))
            self._memo[key] = name
        return self._memo[key]

    def _loaded(self, source: Source, portable: bool) -> str:
        argument = self.arguments.get(source) if isinstance(source, PlanTensor) else None
        if isinstance(source, RegisterValue):
            argument = source.name
        if argument is not None:
            target = self.writer.target
            own, requested = (scalar_of(source.data_type, target, choice) for choice in (True, portable))
            return self.writer.between(argument, own, requested, source.lanes)
        name = f"i{len(self.accessors)}"
        self.accessors.append(self.writer.source(name, source, self.raw, portable))
        return f"{self.writer.names.scoped(name)}_load(at)"

    def _applied(self, body: Body, is_root: bool) -> str:
        names = [self.value(source, body.portable) for _, source in body.inputs]
        target = self.writer.target
        kinds = {name: scalar_of(source.data_type, target, body.portable) for name, source in body.inputs}
        function = self.writer.apply_function(body, kinds)
        kind = scalar_of(body.data_type, target, body.portable)
        if body.lanes == 1:
            call = f"{function}({', '.join(names)})"
        else:
            lanes = (", ".join(f"{name}.{LANE_NAMES[lane]}" for name in names) for lane in range(body.lanes))
            call = f"{vector(kind, body.lanes)}({', '.join(f'{function}({arguments})' for arguments in lanes)})"
        return call if is_root else edge(body.data_type, kind, body.lanes, call)


def render_step(step: KernelStep, writer: ShaderWriter) -> str:
    """Return a step's kernel as text, without its head: the accessors of its output and of its parts, its own text,
    and its template, which finds the fields and properties of the step by name.

    Raises:
        NotSupported: when the adapter lacks a feature that it needs.
    """
    return _rendered(step, writer, is_part=False)


def _rendered(step: KernelStep, writer: ShaderWriter, *, is_part: bool) -> str:
    """Return the WGSL of a kernel, or of a part of one, which has another function instead of an entry point."""
    text, values = _stores(step, writer)
    values |= {"step": step, "is_part": is_part}
    for name, path in step.reads:
        part = attrgetter(path)(step)
        if name == "element":
            text += writer.body(part)
        elif name == "finish":
            text += writer.epilogue(part, DataType.FLOAT32, getattr(step, "sums", 1))
        elif part is not None:
            text += writer.source(name, part, raw=False, portable=step.portable)
    text += special(step, writer, values)
    return text + templates.render(step.template, **values)


def _stores(step: KernelStep, writer: ShaderWriter) -> tuple[str, dict[str, Any]]:
    """Return the accessor of a step's output with its template values, or the parts of a step, which store."""
    if isinstance(step, ScheduledTogether):
        return _parts("part", step.parts, writer), {}
    if isinstance(step, ScheduledQuantizedProduct) and step.ranges:
        return _parts("range", step.ranges, writer), {}
    if step.wide:
        return writer.wide_store(step.output)
    tree = getattr(step, "epilogue", None) or getattr(step, "body", None)
    return writer.store(step.output, step.portable if tree is None else tree.portable, step.atomic)


def _parts(name: str, parts: Sequence[KernelStep], writer: ShaderWriter) -> str:
    """Return the WGSL of parts of a step, each in the namespace of its index."""
    text = ""
    for index, part in enumerate(parts):
        with writer.names.within(f"{name}{index}_"):
            text += _rendered(part, writer, is_part=True)
    return text


@functools.singledispatch
def special(step: KernelStep, writer: ShaderWriter, values: dict[str, Any]) -> str:
    """Return the text before a step's template, and add to the template's values: all that is special to the step.

    Raises:
        NotSupported: when the adapter lacks a feature that it needs.
    """
    return ""
