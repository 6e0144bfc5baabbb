"""User-defined kernels from WGSL files: bindings from the source and the command line."""

from __future__ import annotations

import ast
import builtins
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dmlgpu.bench.specs import KernelOptions, parse_number, short_size
from dmlgpu.bench.workload import Array, KernelBuffer, OwnKernel, Workload
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.runtime import shader_source
from dmlgpu.runtime.shader_source import ShaderBinding
from dmlgpu.tensors.kernels import Kernel, check_callable

MAX_GROUPS = 65535
"""Maximum workgroups along an axis guaranteed by WebGPU."""

MAX_OPERATIONS = 1e18
"""Operations of a dispatch that no device computes in an hour."""

_SHORT_TYPES = {"f32": "float32", "f16": "float16", "i32": "int32", "u32": "uint32"}
_NAMED = re.compile(r"\s*([A-Za-z_]\w*)\s*=(?!=)(.*)", re.DOTALL)
_LITERAL = re.compile(r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)([uifh]?)")
_SUFFIX_TYPES = {"u": np.uint32, "i": np.int32, "f": np.float32, "h": np.float16}
_VECTOR = re.compile(r"vec[234]<(\w+)>|vec[234]([fiuh])")


def read_kernel_source(path: Path) -> str:
    """Return the source of a kernel.

    Raises:
        InvalidArgument: If the file does not exist or is not text.
    """
    if not path.is_file():
        raise InvalidArgument(f"there is no file {str(path)!r}")
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"{path} cannot be read as text: {error}") from None


def kernel_workload(path: Path, options: KernelOptions) -> Workload:
    """Return a user-defined kernel as a workload.

    Args:
        path: A WGSL file.
        options: Its bindings.

    Raises:
        InvalidArgument: If an option is missing, superfluous or malformed; the message names the option.
    """
    name, source = path.name, read_kernel_source(path)
    kernel = _kernel(name, source, options.entry_point, options)
    check_callable(kernel)
    buffers = _buffers(name, kernel, options)
    outputs = [buffer for buffer in buffers if buffer.is_output]
    if not outputs:
        raise InvalidArgument(f"{name}: {kernel.name} writes no binding: declare one var<storage, read_write>")
    grid = _grid(name, kernel, options.grid, outputs[0].tensor.element_count)
    uniforms = _uniforms(name, kernel, options.uniforms)
    known = {buffer.name for buffer in buffers} | set(uniforms) | set(kernel.constants)
    shapes = [[_shape(buffer) for buffer in buffers if buffer.is_output is kind] for kind in (False, True)]
    settings = [*options.defines, *options.uniforms, *([f"grid={options.grid}"] if options.grid else ())]
    words = [name, *([options.entry_point] if options.entry_point else ()), *shapes[0], "->", *shapes[1], *settings]
    return Workload(
        " ".join(words),
        "KERNEL",
        data_type=outputs[0].tensor.data_type.name.lower(),
        kernel=OwnKernel(
            source,
            kernel.entry_point,
            kernel.constants,
            tuple(buffers),
            uniforms,
            grid,
            _references(name, options.references, [buffer.name for buffer in outputs], known),
            options.tolerance,
            _operations(name, options.flops, {**kernel.constants, **uniforms}, buffers) if options.flops else 0,
        ),
    )


def _operations(name: str, text: str, numbers: Mapping[str, Any], buffers: Sequence[KernelBuffer]) -> int:
    """Return the value of an expression of overrides, uniforms and bindings, which have sizes but no elements."""
    arrays = {buffer.name: np.broadcast_to(np.float32(0), buffer.tensor.sizes) for buffer in buffers}
    try:
        value = float(eval(text, {"np": np, **arrays, **numbers}))
    except Exception as error:
        known = ", ".join(sorted({*arrays, *numbers}))
        raise InvalidArgument(f"{name}: --flops {text!r} fails: {error}; the names are np, {known}") from None
    if not 0 < value < MAX_OPERATIONS:
        raise InvalidArgument(f"{name}: --flops {text!r} must be a positive number of operations, got {value:g}")
    return round(value)


def kernels_of(path: Path, options: KernelOptions) -> tuple[Kernel, ...]:
    """Return the kernel of each entry point of a file, or of the one that is named.

    Args:
        path: A WGSL file.
        options: Its entry point and the values of overrides.

    Raises:
        InvalidArgument: If the file holds no kernel, or an option is malformed; the message names the option.
    """
    source = read_kernel_source(path)
    names = shader_source.entry_points(shader_source.without_comments(source))
    if not names:
        raise InvalidArgument(f"{path} has no @compute function")
    entries = (options.entry_point,) if options.entry_point else names
    return tuple(_kernel(path.name, source, entry, options) for entry in entries)


def compiled_workloads_of(path: Path, options: KernelOptions) -> tuple[Workload, ...]:
    """Return the kernels of a file as workloads for a compiler, which needs no bindings. Raises as ``kernels_of``."""
    kernels = kernels_of(path, options)
    is_named = len(kernels) > 1 or options.entry_point
    return tuple(
        Workload(
            " ".join([path.name, *([kernel.entry_point] if is_named else ()), *options.defines]),
            "KERNEL",
            kernel=OwnKernel(kernel.source, kernel.entry_point, kernel.constants, (), {}, (1, 1, 1)),
        )
        for kernel in kernels
    )


def _kernel(name: str, source: str, entry_point: str, options: KernelOptions) -> Kernel:
    try:
        return Kernel(source, entry_point or None, constants=_defines(options.defines))
    except InvalidArgument as error:
        raise InvalidArgument(_with_options(f"{name}: {error}")) from None


def _with_options(text: str) -> str:
    """Replace the names of ``Kernel``'s parameters in a message by those of the options."""
    return (
        text.replace("Kernel: ", "")
        .replace("entry_point must", "--entry-point must")
        .replace("constants must", "--define must")
    )


def _defines(texts: Iterable[str]) -> dict[str, float]:
    constants = {}
    for text in texts:
        name, _, value = text.partition("=")
        try:
            constants[name] = float({"true": "1", "false": "0"}.get(value, value))
            valid = name.isidentifier() and math.isfinite(constants[name])
        except ValueError:
            valid = False
        if not valid:
            raise InvalidArgument(f"--define must be NAME=NUMBER, such as --define TILE=16, got {text!r}")
    return constants


def _buffers(name: str, kernel: Kernel, options: KernelOptions) -> list[KernelBuffer]:
    """Return the storage buffers in ascending order of bindings."""
    buffers = []
    for option, verb, kind, texts in (
        ("--input", "reads", "read-only-storage", options.inputs),
        ("--output", "writes", "storage", options.outputs),
    ):
        bindings = [binding for binding in kernel.bindings if binding.kind == kind]
        if len(texts) != len(bindings):
            listed = ", ".join(f"{binding.name}: {binding.type}" for binding in bindings) or "none"
            example = " ".join(f"{option} 1M:{_example_type(binding)}" for binding in bindings)
            cure = f"give one for each, such as {example}" if bindings else f"leave {option} out"
            raise InvalidArgument(
                f"{name} {verb} {len(bindings)} bindings ({listed}), got {len(texts)} {option}; {cure}"
            )
        buffers += [_buffer(option, binding, text) for binding, text in zip(bindings, texts, strict=True)]
    return sorted(buffers, key=lambda buffer: buffer.number)


def _example_type(binding: ShaderBinding) -> str:
    return (Kernel.element_type(binding) or DataType.FLOAT32).name.lower()


def _buffer(option: str, binding: ShaderBinding, text: str) -> KernelBuffer:
    declared = Kernel.element_type(binding)
    is_output = option == "--output"
    if text.lower().endswith(".npy"):
        array = _file(option, Path(text))
        data_type, sizes, file = DataType.from_numpy(array.dtype), array.shape or (1,), str(Path(text).resolve())
    else:
        sizes_text, colon, type_name = text.partition(":")
        type_name = _SHORT_TYPES.get(type_name.lower(), type_name.lower())
        if not colon:
            type_name = _example_type(binding)
        if type_name.upper() not in DataType.__members__ or type_name == "unknown":
            known = ", ".join(member.name.lower() for member in DataType if member.name != "UNKNOWN")
            raise InvalidArgument(f"{option} {text!r}: the type must be one of {known}; such as 1M:float32")
        try:
            sizes = tuple(parse_number(text, size) for size in sizes_text.lower().split("x"))
        except InvalidArgument:
            raise InvalidArgument(
                f"{option} must be SIZES:TYPE, such as 1M:float32 or 1024x1024:float16, or a FILE.npy, got {text!r}"
            ) from None
        data_type, file = DataType[type_name.upper()], ""
    # Elements of other widths are read as words, as in ``Kernel``.
    if declared not in (None, data_type) and not (declared is DataType.UINT32 and data_type.bits != 32):
        raise InvalidArgument(
            f"{option} {text!r}: {binding.name} is {binding.type}, which holds {declared.name.lower()}, "
            f"not {data_type.name.lower()}"
        )
    Kernel.check_rows(f"{option} {text!r}: {binding.name}", binding, tuple(sizes))
    return KernelBuffer(binding.name, binding.number, TensorDesc(data_type, tuple(sizes)), is_output, file)


def _file(option: str, path: Path) -> Array:
    try:
        array: Array = np.load(path, mmap_mode="r", allow_pickle=False)
        DataType.from_numpy(array.dtype)
    except FileNotFoundError:
        raise InvalidArgument(f"{option}: there is no file {str(path)!r}") from None
    except Exception as error:  # of NumPy's, for whatever a file holds
        raise InvalidArgument(f"{option}: {path} is no array in NumPy's format: {error}") from None
    if not array.size:
        raise InvalidArgument(f"{option}: {path} must have at least one element, got shape {list(array.shape)}")
    return array


def _shape(buffer: KernelBuffer) -> str:
    if buffer.file:
        return Path(buffer.file).name
    return f"{'x'.join(map(short_size, buffer.tensor.sizes))}:{buffer.tensor.data_type.name.lower()}"


def _workgroups(text: str, part: str, constants: Mapping[str, float]) -> int:
    """Return a number, or the value of an expression of overrides, rounded up: ``512/TILE``."""
    if not any(constant in part for constant in constants):
        return parse_number(text, part)
    try:
        count = math.ceil(eval(part, {}, dict(constants)))
    except Exception as error:
        raise InvalidArgument(f"--grid {part!r} fails: {error}") from None
    return count if count > 0 else parse_number(text, part)


def _grid(name: str, kernel: Kernel, text: str, elements: int) -> tuple[int, int, int]:
    if text:
        try:
            counts = [_workgroups(text, part, kernel.constants) for part in text.split(",")]
        except InvalidArgument:
            counts = []
        if not 1 <= len(counts) <= 3:
            raise InvalidArgument(
                f"--grid must be one to three positive numbers, X,Y,Z, or expressions of overrides, got {text!r}"
            )
    elif kernel.workgroup_size is None:
        raise InvalidArgument(
            f"{name}: --grid X,Y,Z must be given, since the workgroup size of {kernel.name} depends on constants"
        )
    else:
        counts = [-(-elements // math.prod(kernel.workgroup_size))]
    if max(counts) > MAX_GROUPS:
        y = -(-counts[0] // MAX_GROUPS)
        raise InvalidArgument(
            f"{name}: a grid of {', '.join(f'{count:,}' for count in counts)} workgroups exceeds the {MAX_GROUPS:,} "
            f"along an axis that WebGPU allows; --grid {-(-counts[0] // y)},{y} with an index made of x and y helps"
        )
    x, y, z = (*counts, 1, 1)[:3]
    return x, y, z


def _uniforms(name: str, kernel: Kernel, texts: Sequence[str]) -> dict[str, Array]:
    bindings = {binding.name: binding for binding in kernel.bindings if binding.kind == "uniform"}
    values = {}
    for text in texts:
        key, _, numbers = text.partition("=")
        if key not in bindings:
            listed = ", ".join(bindings) or "none"
            raise InvalidArgument(f"--uniform must be NAME=VALUES of a uniform of {name} ({listed}), got {text!r}")
        values[key] = _uniform(bindings[key], text, numbers)
    for key, binding in bindings.items():
        if key not in values:
            number = "VALUE" if _scalar_type(binding) else "VALUES, such as 1024u,0.5f"
            raise InvalidArgument(f"{name} has the uniform {key}: {binding.type}; give --uniform {key}={number}")
    return values


def _scalar_type(binding: ShaderBinding) -> Any:
    """Return the NumPy type of the scalars of a uniform; None for structures."""
    match = _VECTOR.fullmatch(binding.type)
    scalar = (match[1] or match[2]) if match else binding.type
    return (
        _SUFFIX_TYPES.get(scalar[:1])
        if scalar in ("f", "i", "u", "h", "f32", "i32", "u32")
        else (np.float16 if scalar == "f16" else None)
    )


def _uniform(binding: ShaderBinding, text: str, numbers: str) -> Array:
    """Return the value of a uniform: its scalars, or a structure with fields f0, f1 and so on."""
    if numbers.lower().endswith(".npy"):
        return np.ascontiguousarray(_file("--uniform", Path(numbers)))
    scalar, parts = _scalar_type(binding), []
    for part in numbers.split(","):
        match = _LITERAL.fullmatch(part.strip())
        kind = scalar or (match and _SUFFIX_TYPES.get(match[2]))
        try:
            assert match is not None and kind is not None
            number = float(match[1]) if issubclass(kind, np.floating) else int(match[1])
            parts.append(np.array(number, kind))
        except (AssertionError, ValueError, OverflowError):
            expected = (
                f"numbers of {binding.type}"
                if scalar
                else "numbers with the types of its fields, such as 1024u,0.5f,-1i"
            )
            raise InvalidArgument(f"--uniform {text!r}: {binding.name} takes {expected}, got {part!r}") from None
    if scalar:
        return parts[0] if len(parts) == 1 else np.array(parts, scalar)
    return np.array(tuple(parts), [(f"f{index}", part.dtype) for index, part in enumerate(parts)])


def _references(name: str, texts: Sequence[str], outputs: Sequence[str], known: set[str]) -> Mapping[str, str]:
    """Return the expressions by output."""
    references: dict[str, str] = {}
    for text in texts:
        match = _NAMED.fullmatch(text)
        if match is None and len(outputs) > 1:
            raise InvalidArgument(
                f"{name} writes {', '.join(outputs)}: --reference must say which, such as "
                f"--reference {outputs[0]!r}={text!r}"
            )
        output, expression = (match[1], match[2].strip()) if match else (outputs[0], text.strip())
        if output not in outputs:
            raise InvalidArgument(f"--reference {text!r}: {output} is none of the outputs, {', '.join(outputs)}")
        try:
            names = [node for node in ast.walk(ast.parse(expression, mode="eval")) if isinstance(node, ast.Name)]
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise InvalidArgument(f"--reference {text!r} is no expression in Python: {error}") from None
        local = {node.id for node in names if isinstance(node.ctx, ast.Store)}
        for node in names:
            if node.id not in {*known, *local, "np"} and not hasattr(builtins, node.id):
                listed = ", ".join(sorted(known))
                raise InvalidArgument(f"--reference {text!r}: {node.id} is no binding; there are np, {listed}")
        references[output] = expression
    return references
