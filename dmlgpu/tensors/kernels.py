"""User-defined kernels: WGSL that runs on tensors, modeled on CuPy's RawKernel and ElementwiseKernel."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog.enums import DataType
from dmlgpu.common.errors import InvalidArgument, InvalidState, NotSupported, shown
from dmlgpu.runtime import shader_source
from dmlgpu.runtime.device import Device, as_device, other_device
from dmlgpu.runtime.executor import CustomShader, Range, ShaderBackend
from dmlgpu.runtime.shader_source import ShaderBinding
from dmlgpu.tensors.calls import Array, Operand
from dmlgpu.tensors.memory import recorder
from dmlgpu.tensors.recorded_call import refuse_repetition
from dmlgpu.tensors.session import session_of
from dmlgpu.tensors.tensor import Tensor
from dmlgpu.tensors.types import TypeLike, as_data_type

Grid: TypeAlias = int | Sequence[int]
Output: TypeAlias = tuple[Sequence[int], TypeLike]
"""Shape and dtype of an output."""

_ARRAY = re.compile(r"array<(?:vec[234]<(\w+)>|vec[234](\w)|atomic<(\w+)>|(\w+))(?:,\w+)?>")
_ROWS_OF_3 = re.compile(r"array<vec3(<\w+>|\w)(?:,\w+)?>")
_SCALARS = {
    "f32": DataType.FLOAT32,
    "f16": DataType.FLOAT16,
    "i32": DataType.INT32,
    "u32": DataType.UINT32,
    "f": DataType.FLOAT32,
    "h": DataType.FLOAT16,
    "i": DataType.INT32,
    "u": DataType.UINT32,
}
_UNIFORM_BYTES = 16


class _OutputSpec(NamedTuple):
    shape: Sequence[int]
    dtype: TypeLike


class Kernel:
    """A compute shader in WGSL that runs on tensors and arrays.

        double = dmlgpu.Kernel('''
            @group(0) @binding(0) var<storage, read> x: array<f32>;
            @group(0) @binding(1) var<storage, read_write> y: array<f32>;

            @compute @workgroup_size(64)
            fn main(@builtin(global_invocation_id) id: vec3<u32>) {
                if (id.x < arrayLength(&y)) { y[id.x] = 2.0 * x[id.x]; }
            }
        ''')
        y = double(x, outputs={"y": (x.shape, "float32")})

    Bindings are buffers of group 0, read from the source: ``var<storage, read>``, ``var<storage, read_write>`` and
    ``var<uniform>``. A call returns a tensor per ``read_write`` binding; its arguments are never changed.

    Args:
        source: WGSL.
        entry_point: The ``@compute`` function; may be omitted if there is one.
        constants: Values of ``override`` declarations by name.
        name: The kernel's name in messages; defaults to the entry point.

    Raises:
        InvalidArgument: If the source declares no such entry point, or a binding that is no buffer of group 0.
    """

    def __init__(
        self,
        source: str,
        entry_point: str | None = None,
        *,
        constants: Mapping[str, float] | None = None,
        name: str | None = None,
    ):
        if not isinstance(source, str):
            raise InvalidArgument(f"Kernel: source must be WGSL in a string, got {shown(source, typed=True)}")
        if len(source) > shader_source.LONGEST:
            raise InvalidArgument(f"Kernel: source must have at most {shader_source.LONGEST:,} characters")
        plain = shader_source.without_comments(source)
        self.source = source
        self.entry_point = self._entry_point(plain, entry_point)
        self.name = name or self.entry_point
        try:
            self.bindings = tuple(sorted(shader_source.bindings(plain), key=lambda binding: binding.number))
        except ValueError as error:
            raise InvalidArgument(f"Kernel {self.name!r}: {error}") from None
        self.constants = dict(constants or {})
        known = shader_source.overrides(plain)
        for constant in self.constants:
            if constant not in known:
                listed = ", ".join(known) or "none"
                raise InvalidArgument(
                    f"Kernel {self.name!r}: constants must be among the overrides of the source ({listed}), "
                    f"got {shown(constant)}"
                )
        self.workgroup_size = shader_source.workgroup_size(plain, self.entry_point)
        self._immediates = shader_source.immediates(plain)
        self._shaders: WeakKeyDictionary[Device, CustomShader] = WeakKeyDictionary()

    def __repr__(self) -> str:
        bindings = ", ".join(f"{binding.name}: {binding.type}" for binding in self.bindings)
        return f"<Kernel {self.name}({bindings})>"

    @property
    def inputs(self) -> tuple[ShaderBinding, ...]:
        """Bindings that the kernel only reads: storage buffers and uniforms."""
        return tuple(binding for binding in self.bindings if binding.kind != "storage")

    @property
    def outputs(self) -> tuple[ShaderBinding, ...]:
        """Bindings that the kernel may write."""
        return tuple(binding for binding in self.bindings if binding.kind == "storage")

    def __call__(
        self,
        *arguments: Operand,
        outputs: Mapping[str, Output] | None = None,
        grid: Grid | None = None,
        device: Device | str | None = None,
        **named: Operand,
    ) -> Array:
        """Run the kernel.

        Args:
            arguments: Tensors, arrays or numbers for the bindings without an entry in ``outputs`` or ``named``, in
                ascending order of binding numbers. One given for a ``read_write`` binding is the initial content of
                that output. Uniforms take arrays (structured ones included) or numbers.
            outputs: Shape and dtype of ``read_write`` bindings by name; their elements are zero at first.
            grid: Number of workgroups: an integer, or up to three. Defaults to one thread per element of the first
                output, along x.
            device: Device for arrays: a device, an adapter's name, or None for that of the tensors, else
                ``default_device()``.
            named: Arguments by the names of their bindings.

        Returns:
            A tensor for the output, or a tuple for several; arrays if all arguments are arrays.

        Raises:
            InvalidArgument: If an argument is missing, superfluous, or of a dtype that the binding does not hold.
            ShaderError: If the source does not compile on the adapter.
            NotSupported: If the adapter runs no shaders, binds fewer storage buffers, or the grid exceeds its limit.
            OutOfMemory: If the device has no room.
        """
        check_callable(self)
        if recorder() is not None:
            raise InvalidState(f"{self.name}: kernels cannot run inside a function that dmlgpu.compile traces")
        values = self._assigned(arguments, outputs or {}, named)
        tensors = [value for value in values.values() if isinstance(value, Tensor)]
        target = tensors[0].device if tensors else as_device(self.name, device)
        shader = self.compile(target)
        refuse_repetition()
        session = session_of(target)
        ranges: dict[int, Range[Any]] = {}
        results: list[Tensor] = []
        bound: list[Tensor] = []  # until the kernel is submitted
        for binding in self.bindings:
            tensor = self._placed(binding, values[binding.name], target)
            size = -(-tensor.desc.byte_size // 4) * 4
            if binding.kind == "uniform":
                size = -(-size // _UNIFORM_BYTES) * _UNIFORM_BYTES
            ranges[binding.number] = Range(tensor.buffer.memory, 0, size)
            bound.append(tensor)
            if binding.kind == "storage":
                results.append(tensor)
        session.submit(shader.bind(ranges, self.workgroups(grid, results)))
        if tensors or not any(isinstance(value, np.ndarray) for value in values.values()):
            return results[0] if len(results) == 1 else tuple(results)
        arrays = [result.numpy() for result in results]
        return arrays[0] if len(arrays) == 1 else tuple(arrays)

    def compile(self, device: Device | str | None = None) -> CustomShader:
        """Compile the kernel for a device, once.

        Raises:
            ShaderError: If the source does not compile; the message is the compiler's.
            NotSupported: If the adapter runs no shaders, or binds fewer storage buffers.
        """
        target = as_device(self.name, device)
        shader = self._shaders.get(target)
        if shader is None:
            backend = target.backend
            if not isinstance(backend, ShaderBackend):
                raise NotSupported(f"{self.name}: {target.adapter} runs no shaders; kernels in WGSL need a GPU adapter")
            kinds = {binding.number: binding.kind for binding in self.bindings}
            most = backend.target.max_storage_buffers
            count = sum(binding.kind != "uniform" for binding in self.bindings)
            if count > most:
                raise NotSupported(
                    f"{self.name}: {target.adapter} binds up to {most} storage buffers to a kernel, the source has "
                    f"{count}; put some of their contents into one buffer"
                )
            is_page = target.adapter.backend == "Browser"
            wgsl = self.source if is_page else shader_source.for_naga(self.source)
            shader = backend.compile_shader(wgsl, self.entry_point, self.constants, kinds, self.name)
            self._shaders[target] = shader
        return shader

    def workgroups(self, grid: Grid | None, results: Sequence[Tensor]) -> tuple[int, int, int]:
        """Return the grid of a call, given its outputs.

        Raises:
            InvalidArgument: If the grid is not one to three positive integers, or cannot be derived.
        """
        if grid is None:
            if self.workgroup_size is None or not results:
                raise InvalidArgument(f"{self.name}: grid must be given, since it cannot be derived from the source")
            return max(1, -(-results[0].size // math.prod(self.workgroup_size))), 1, 1
        counts = (grid,) if isinstance(grid, int) else tuple(grid)
        is_valid = all(isinstance(count, int | np.integer) and count > 0 for count in counts)
        if not is_valid or not 1 <= len(counts) <= 3:
            raise InvalidArgument(f"{self.name}: grid must be one to three positive integers, got {shown(grid)}")
        x, y, z = (*map(int, counts), 1, 1)[:3]
        return x, y, z

    def _entry_point(self, plain: str, name: str | None) -> str:
        known = shader_source.entry_points(plain)
        if name is None and len(known) == 1:
            return known[0]
        if name not in known:
            listed = ", ".join(known) or "none"
            raise InvalidArgument(
                f"Kernel: entry_point must be one of the @compute functions of the source ({listed}), got {shown(name)}"
            )
        return name

    def _assigned(
        self, arguments: Sequence[Any], outputs: Mapping[str, Output], named: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the argument, or shape and dtype, of each binding."""
        names = [binding.name for binding in self.bindings]
        writable = [binding.name for binding in self.outputs]
        for name in named:
            if name not in names:
                raise InvalidArgument(f"{self.name}: the bindings are {', '.join(names)}, got an argument {name!r}")
        for name in outputs:
            if name not in writable or name in named:
                listed = ", ".join(writable) or "none"
                raise InvalidArgument(f"{self.name}: outputs must be among {listed}, got {shown(name)}")
        values: dict[str, Any] = {**named, **{name: _OutputSpec(*output) for name, output in outputs.items()}}
        positional = [name for name in names if name not in values]
        if len(arguments) != len(positional):
            listed = ", ".join(positional) or "none"
            raise InvalidArgument(
                f"{self.name}: {len(positional)} positional arguments are needed ({listed}), got {len(arguments)}"
            )
        return {**values, **dict(zip(positional, arguments, strict=True))}

    def _placed(self, binding: ShaderBinding, value: Any, device: Device) -> Tensor:
        """Return a packed tensor at the start of its memory, as a binding needs it."""
        caller = f"{self.name}: {binding.name}"
        if isinstance(value, _OutputSpec):
            data_type = as_data_type(self.name, binding.name, value.dtype)
            tensor = Tensor(np.zeros(tuple(value.shape), data_type.numpy), data_type, device=device)
        elif binding.kind == "uniform":
            return Tensor(self._uniform(binding, value), device=device)
        elif isinstance(value, Tensor):
            if value.device is not device:
                raise InvalidArgument(
                    f"{caller} must be on the device of the other arguments, '{device.adapter}', got one on "
                    f"{other_device(device, value.device)}; x.to(device) copies it"
                )
            tensor = value
        elif isinstance(value, np.ndarray | int | float):
            tensor = Tensor(self._as_declared(binding, value), device=device)
        else:
            raise InvalidArgument(f"{caller} must be a Tensor, an array or a number, got {shown(value, typed=True)}")
        if tensor.size == 0:
            raise InvalidArgument(f"{caller} must have at least one element, got shape {list(tensor.shape)}")
        declared = self.element_type(binding)
        if declared is not None and declared is not tensor.data_type and tensor.data_type is not DataType.UNKNOWN:
            is_raw = declared is DataType.UINT32 and tensor.data_type.bits != 32
            if not is_raw:
                raise InvalidArgument(
                    f"{caller} must be of {declared.name.lower()}, as {binding.type} says, "
                    f"got {tensor.data_type.name.lower()}; x.astype({declared.name.lower()!r}) converts it"
                )
        self.check_rows(caller, binding, tensor.shape)
        is_argument = binding.kind == "storage" and tensor is value
        return tensor.copy() if is_argument or tensor.is_view else tensor

    def _as_declared(self, binding: ShaderBinding, value: Any) -> NDArray[Any]:
        """Return an array; a number becomes one element of the type that the binding declares."""
        if isinstance(value, np.ndarray):
            return value
        declared = self.element_type(binding) or DataType.FLOAT32
        return np.array([value], declared.numpy)

    def _uniform(self, binding: ShaderBinding, value: Any) -> NDArray[np.uint8]:
        """Return the bytes of a uniform, padded to a multiple of 16."""
        if isinstance(value, Tensor):
            array = value.numpy()
        elif isinstance(value, np.ndarray | np.generic):
            array = np.asarray(value)
        elif binding.type in _SCALARS:
            array = np.array([value], _SCALARS[binding.type].numpy)
        else:
            raise InvalidArgument(
                f"{self.name}: {binding.name} must be an array with the bytes of {binding.type}, "
                f"got {shown(value, typed=True)}"
            )
        raw = np.frombuffer(array.tobytes(), np.uint8)
        return np.concatenate([raw, np.zeros(-raw.size % _UNIFORM_BYTES, np.uint8)])

    @staticmethod
    def check_rows(caller: str, binding: ShaderBinding, shape: Sequence[int]) -> None:
        """Check the shape of an array for a binding of vectors of three elements, which WGSL aligns as those of four.

        Args:
            caller: Names the binding in the message.
            binding: The binding.
            shape: Shape of its array.

        Raises:
            InvalidArgument: If the array's last dimension is not 4.
        """
        if _ROWS_OF_3.fullmatch(binding.type) and (not shape or shape[-1] != 4):
            expected = [*shape[:-1], 4] if shape and shape[-1] == 3 else ["...", 4]
            raise InvalidArgument(
                f"{caller} must have the shape [{', '.join(map(str, expected))}], got {list(shape)}: each vector of "
                f"{binding.type} takes 4 elements in WGSL, the last of them unused; pad the last dimension, or declare "
                "an array of scalars"
            )

    @staticmethod
    def element_type(binding: ShaderBinding) -> DataType | None:
        """Return the data type of the scalars of a binding's array; None for structures and other types."""
        match = _ARRAY.fullmatch(binding.type)
        scalar = next(filter(None, match.groups()), "") if match else binding.type
        return _SCALARS.get(scalar)


_PARAMETER = re.compile(r"(\w+)\s+(\w+)")
_WGSL_TYPES = {"float32": "f32", "float16": "f16", "int32": "i32", "uint32": "u32"}
_ELEMENTWISE = """\
{enable}{declarations}
{preamble}
@compute @workgroup_size(64)
fn {name}(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {{
    let i = id.x + id.y * groups.x * 64u;
    if (i >= arrayLength(&{first}_elements)) {{ return; }}
{loads}
    {operation};
{stores}
}}
"""
_MAX_GROUPS = 65535


class ElementwiseKernel:
    """A statement in WGSL that is applied to each element, after broadcasting.

        squared_difference = dmlgpu.ElementwiseKernel("float32 x, float32 y", "float32 z", "z = (x - y) * (x - y)")
        z = squared_difference(a, b)

    The statement reads the inputs and assigns the outputs by their names; ``i`` is the element's index.

    Args:
        inputs: Parameters, each a dtype and a name, separated by commas: float32, float16, int32, uint32, or a capital
            letter such as ``T`` for the dtype of the argument.
        outputs: The same; a letter must be one of an input.
        operation: One or more WGSL statements.
        name: The kernel's name.
        preamble: WGSL before the kernel: functions and constants.

    Raises:
        InvalidArgument: If a parameter is malformed.
    """

    def __init__(self, inputs: str, outputs: str, operation: str, name: str = "kernel", preamble: str = ""):
        self.name, self.operation, self.preamble = name, operation.rstrip().rstrip(";"), preamble
        self.inputs, self.outputs = self._parameters("inputs", inputs), self._parameters("outputs", outputs)
        if not self.inputs or not self.outputs:
            raise InvalidArgument(f"{name}: inputs and outputs must have at least one parameter each")
        letters = {dtype for dtype, _ in self.inputs}
        for dtype, parameter in self.outputs:
            if dtype not in _WGSL_TYPES and dtype not in letters:
                raise InvalidArgument(f"{name}: the dtype {dtype} of output {parameter} must be one of an input")
        self._kernels: dict[tuple[tuple[str, bool], ...], Kernel] = {}  # bounded: dtypes and which are single elements

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(map(" ".join, pairs)) for pairs in (self.inputs, self.outputs))
        return f"<ElementwiseKernel {self.name}({inputs}) -> {outputs}>"

    def __call__(self, *arguments: Operand, device: Device | str | None = None) -> Array:
        """Apply the kernel.

        Args:
            arguments: Tensors, arrays or numbers, one per input; they broadcast.
            device: Device for arrays: a device, an adapter's name, or None for that of the tensors, else
                ``default_device()``.

        Returns:
            A tensor for the output, or a tuple for several; arrays if all arguments are arrays or numbers.

        Raises:
            InvalidArgument: If shapes do not broadcast, or a dtype is not the parameter's.
            ShaderError: If the statement does not compile.
        """
        if len(arguments) != len(self.inputs):
            raise InvalidArgument(f"{self.name}: {len(self.inputs)} arguments are needed, got {len(arguments)}")
        tensors = [argument for argument in arguments if isinstance(argument, Tensor)]
        target = tensors[0].device if tensors else as_device(self.name, device)
        dtypes = self._dtypes(arguments)
        operands = [
            argument
            if isinstance(argument, Tensor)
            else Tensor(
                np.asarray(argument, None if isinstance(argument, np.ndarray) else dtypes[letter]), device=target
            )
            for argument, (letter, _) in zip(arguments, self.inputs, strict=True)
        ]
        try:
            shape = np.broadcast_shapes(*(operand.shape for operand in operands))
        except ValueError:
            listed = ", ".join(str(list(operand.shape)) for operand in operands)
            raise InvalidArgument(f"{self.name}: arguments must broadcast, got shapes {listed}") from None
        single = [operand.size == 1 for operand in operands]
        operands = [
            operand if is_single or operand.shape == shape else operand.broadcast_to(shape)
            for operand, is_single in zip(operands, single, strict=True)
        ]
        kernel = self._kernel(dtypes, single)
        groups = max(1, -(-math.prod(shape) // 64))
        grid = min(groups, _MAX_GROUPS), -(-groups // _MAX_GROUPS)
        outputs = {f"{parameter}_elements": (shape, dtypes.get(dtype, dtype)) for dtype, parameter in self.outputs}
        results = kernel(*operands, outputs=outputs, grid=grid)
        if tensors:
            return results
        return tuple(map(np.asarray, results)) if isinstance(results, tuple) else results.numpy()

    def _parameters(self, which: str, text: str) -> tuple[tuple[str, str], ...]:
        parameters = []
        for entry in filter(None, map(str.strip, text.split(","))):
            match = _PARAMETER.fullmatch(entry)
            is_letter = match is not None and len(match[1]) == 1 and match[1].isupper()
            if match is None or (match[1] not in _WGSL_TYPES and not is_letter):
                listed = ", ".join(_WGSL_TYPES)
                raise InvalidArgument(
                    f"{self.name}: {which} must be dtypes ({listed}, or a capital letter) with names, got {entry!r}"
                )
            parameters.append((match[1], match[2]))
        return tuple(parameters)

    def _dtypes(self, arguments: Sequence[Any]) -> dict[str, str]:
        """Return the dtype of each parameter, letters resolved."""
        dtypes = {word: word for word, _ in (*self.inputs, *self.outputs) if word in _WGSL_TYPES}
        for argument, (word, parameter) in zip(arguments, self.inputs, strict=True):
            if not isinstance(argument, Tensor | np.ndarray):
                continue
            dtype = argument.data_type.name.lower() if isinstance(argument, Tensor) else str(argument.dtype)
            expected = dtypes.setdefault(word, dtype)
            if dtype != expected or dtype not in _WGSL_TYPES:
                expected = expected if expected in _WGSL_TYPES else ", ".join(_WGSL_TYPES)
                cure = f"x.astype({expected.partition(',')[0]!r}) converts it"
                raise InvalidArgument(f"{self.name}: {parameter} must be of {expected}, got {dtype}; {cure}")
        for word, parameter in self.inputs:
            if word not in dtypes:
                raise InvalidArgument(
                    f"{self.name}: {parameter} must be a Tensor or an array, since {word} is its dtype"
                )
        return dtypes

    def _kernel(self, dtypes: Mapping[str, str], single: Sequence[bool]) -> Kernel:
        key = tuple((dtypes[word], is_single) for (word, _), is_single in zip(self.inputs, single, strict=True))
        if key not in self._kernels:
            self._kernels[key] = Kernel(self._source(dtypes, single), name=self.name)
        return self._kernels[key]

    def _source(self, dtypes: Mapping[str, str], single: Sequence[bool]) -> str:
        types = [(_WGSL_TYPES[dtypes[word]], name) for word, name in (*self.inputs, *self.outputs)]
        count = len(self.inputs)
        return _ELEMENTWISE.format(
            enable="enable f16;\n" if any(wgsl == "f16" for wgsl, _ in types) else "",
            declarations="\n".join(
                f"@group(0) @binding({index}) var<storage, {'read' if index < count else 'read_write'}> "
                f"{name}_elements: array<{wgsl}>;"
                for index, (wgsl, name) in enumerate(types)
            ),
            preamble=self.preamble,
            name=self.name,
            first=self.outputs[0][1],
            loads="\n".join(
                [
                    f"    let {name} = {name}_elements[{'0' if is_single else 'i'}];"
                    for (_, name), is_single in zip(types, single, strict=False)
                ]
                + [f"    var {name}: {wgsl};" for wgsl, name in types[count:]]
            ),
            operation=self.operation,
            stores="\n".join(f"    {name}_elements[i] = {name};" for _, name in types[count:]),
        )


def check_callable(kernel: Kernel) -> None:
    """Raise InvalidArgument if the source of a kernel has variables in ``var<immediate>``: nothing would fill them."""
    if kernel._immediates:
        (first, *_) = kernel._immediates
        raise InvalidArgument(
            f"{kernel.name}: the variable {first!r} is in var<immediate>, which a call cannot fill; declare it as a "
            f"uniform, such as @group(0) @binding({len(kernel.bindings)}) var<uniform> {first}"
        )
