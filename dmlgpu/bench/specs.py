"""Arguments of benchmarks: names with sizes, dtypes and layouts; suites, which are TOML files of them."""

from __future__ import annotations

import itertools
import math
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dmlgpu.catalog.enums import DataType
from dmlgpu.common.errors import InvalidArgument, ModelError

if TYPE_CHECKING:  # it loads all samples
    from dmlgpu.conformance.samples import Sizes

_NUMBER = re.compile(r"(?P<digits>[1-9][0-9]{0,11})(?P<unit>[KMG]?)")
_NAMES = re.compile(r"[a-z][a-z_]*(=[a-z][a-z_]*)*")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_MAX_SIZE = 1 << 40
MAX_COMBINATIONS = 1000
"""Maximum combinations of sizes, types and layouts of one argument."""


def parse_sizes(options: Iterable[str]) -> list[tuple[tuple[str, ...], tuple[int, ...]]]:
    """Return names with their values; names joined by ``=`` share values.

    Args:
        options: Strings ``name=numbers`` or ``name=name=numbers``. Numbers are separated by commas; ``a..b`` means a,
            2a, 4a and so on up to b. A number may end in K, M or G.

    Raises:
        InvalidArgument: If an option is malformed, or a name occurs twice.
    """
    ranges: list[tuple[tuple[str, ...], tuple[int, ...]]] = []
    for text in options:
        names, _, numbers = text.rpartition("=")
        if not _NAMES.fullmatch(names):
            raise InvalidArgument(f"a size must be NAME=NUMBERS, such as m=64..4096 or m=k=n=512,1024, got {text!r}")
        tied = tuple(names.split("="))
        known = [name for earlier, _ in ranges for name in earlier]
        for index, name in enumerate(tied):
            if name in known or name in tied[:index]:
                raise InvalidArgument(f"the size {name!r} is given twice")
        ranges.append((tied, tuple(_numbers(text, numbers))))
    return ranges


def _numbers(text: str, numbers: str) -> Iterator[int]:
    for part in numbers.split(","):
        first, dots, last = part.partition("..")
        low, high = parse_number(text, first), parse_number(text, last) if dots else parse_number(text, first)
        if low > high:
            raise InvalidArgument(f"the range {part!r} of {text!r} must begin with the smaller number")
        while low <= high:
            yield low
            low *= 2


def parse_number(text: str, number: str) -> int:
    """Return a number that may end in K, M or G; the error message quotes its context.

    Raises:
        InvalidArgument: If it is malformed.
    """
    match = _NUMBER.fullmatch(number.strip().upper())
    value = int(match["digits"]) * _UNITS[match["unit"]] if match else 0
    if not 0 < value <= _MAX_SIZE:
        raise InvalidArgument(
            f"a size must be a number from 1 on, such as 1000, 64K or 4M, a list 64,128 or a range 64..4096,"
            f" got {number!r} in {text!r}"
        )
    return value


def combinations(ranges: Sequence[tuple[tuple[str, ...], tuple[int, ...]]]) -> list[dict[str, int]]:
    """Return every combination of sizes, the last name changing fastest.

    Raises:
        InvalidArgument: If there are more than ``MAX_COMBINATIONS``.
    """
    count = 1
    for _, numbers in ranges:
        count *= len(numbers)
    if count > MAX_COMBINATIONS:
        raise InvalidArgument(f"the sizes have {count:,} combinations; at most {MAX_COMBINATIONS:,} are measured")
    chosen = itertools.product(*(numbers for _, numbers in ranges))
    return [
        {name: value for (names, _), value in zip(ranges, values, strict=True) for name in names} for values in chosen
    ]


def sizes_text(sizes: Sizes) -> str:
    """Format sizes, such as ``m=1024 k=1024``; multiples of 1,048,576 in M."""
    return " ".join(f"{name}={short_size(size)}" for name, size in sizes.items())


def short_size(size: int) -> str:
    """Format a size; multiples of 1,048,576 in M."""
    return f"{size >> 20}M" if size >= 1 << 20 and size % (1 << 20) == 0 else str(size)


SUITES = Path(__file__).with_name("suites")
"""Folder of the suites of dmlgpu, one file each."""

_SUFFIX = ".toml"


KERNEL_SUFFIX = ".wgsl"


def is_kernel_file(what: str) -> bool:
    """Return whether an argument is a WGSL file."""
    return what.lower().endswith(KERNEL_SUFFIX)


def is_kernel_output(what: Sequence[str], text: str) -> bool:
    """Return whether ``--output`` is a buffer of a kernel, not the file for results."""
    return any(map(is_kernel_file, what)) and not text.lower().endswith((".jsonl", ".json"))


@dataclass(frozen=True)
class KernelOptions:
    """Bindings of a user-defined kernel, as on the command line.

    Attributes:
        inputs: ``SIZES:TYPE`` or file of each input binding, in ascending order of binding numbers.
        outputs: The same for output bindings.
        uniforms: ``NAME=VALUES``.
        defines: ``NAME=VALUE`` of overrides.
        references: NumPy expression, or ``NAME=EXPRESSION`` per output.
        grid: ``X,Y,Z`` workgroups; empty for one thread per element of the first output.
        entry_point: Name; empty if there is only one.
        tolerance: See ``OwnKernel``.
        flops: Python expression of the floating-point operations, with names of overrides, uniforms and bindings.
    """

    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    uniforms: tuple[str, ...] = ()
    defines: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    grid: str = ""
    entry_point: str = ""
    tolerance: float | None = None
    flops: str = ""


@dataclass(frozen=True)
class BenchSpec:
    """One subject, for every combination of sizes, types and layouts.

    Attributes:
        what: An operator, a case, a model.
        sizes: Replace defaults.
        types: Data types of the main tensors; empty for the default.
        layouts: Empty for packed tensors.
        schedules: Names; ``all`` for every schedule, empty for the chosen one.
        shapes: Shapes of an ONNX model's inputs, by name.
        desc: Description of an operator, as ``described`` takes it, instead of sizes, types and layouts.
        contents: Contents of such an operator's inputs, as for ``described.contents_of``.
        name: Name in tables; empty for the default.
        more: Further keys of a suite's row.
        kernel: Options of a user-defined kernel.
        cache: As in ``Workload``.
    """

    what: str
    sizes: tuple[Sizes, ...] = ({},)
    types: tuple[DataType, ...] = ()
    layouts: tuple[str, ...] = ()
    schedules: tuple[str, ...] = ()
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    desc: Mapping[str, Any] = field(default_factory=dict)
    contents: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    more: Mapping[str, Any] = field(default_factory=dict)
    kernel: KernelOptions = KernelOptions()
    cache: str = ""


def define_combinations(texts: Sequence[str]) -> list[tuple[str, ...]]:
    """Return every combination of ``NAME=VALUE,VALUE`` as lists of ``NAME=VALUE``, the last name changing fastest.

    Raises:
        InvalidArgument: If there are more than ``MAX_COMBINATIONS``.
    """
    choices = []
    for text in texts:
        name, equals, values = text.partition("=")
        choices.append([f"{name}{equals}{value.strip()}" for value in values.split(",")])
    count = math.prod(map(len, choices))
    if count > MAX_COMBINATIONS:
        raise InvalidArgument(f"--define has {count:,} combinations; at most {MAX_COMBINATIONS:,} are measured")
    return list(itertools.product(*choices))


def parse_types(texts: list[str] | tuple[str, ...]) -> tuple[DataType, ...]:
    """Return data types by name, separated by commas.

    Raises:
        InvalidArgument: If a name is unknown.
    """
    types = []
    for name in (part.strip() for text in texts for part in text.split(",")):
        if name.upper() not in DataType.__members__ or name.upper() == "UNKNOWN":
            known = ", ".join(data_type.name.lower() for data_type in DataType if data_type.name != "UNKNOWN")
            raise InvalidArgument(f"a data type must be one of {known}, got {name!r}")
        types.append(DataType[name.upper()])
    return tuple(dict.fromkeys(types))


def parse_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """Return an input's name and sizes from ``name=1x3x48``.

    Raises:
        InvalidArgument: If it is malformed.
    """
    name, _, sizes = text.rpartition("=")
    if not name or not all(size.isascii() and size.isdecimal() and len(size) < 10 for size in sizes.split("x")):
        raise InvalidArgument(f"a shape must be NAME=1x3x48x192, got {text!r}")
    return name, tuple(map(int, sizes.split("x")))


def split_words(texts: list[str] | tuple[str, ...]) -> tuple[str, ...]:
    """Return the unique words of comma-separated strings, in order."""
    return tuple(dict.fromkeys(part.strip() for text in texts for part in text.split(",") if part.strip()))


def suite_names() -> tuple[str, ...]:
    """Return the names of the suites of dmlgpu."""
    return tuple(sorted(path.stem for path in SUITES.glob(f"*{_SUFFIX}")))


def suite_file(word: str) -> Path | None:
    """Return the file of a suite: one of dmlgpu, or a path that ends in .toml; else None."""
    if word.lower().endswith(_SUFFIX):
        return Path(word)
    return SUITES / f"{word}{_SUFFIX}" if word in suite_names() else None


def suite_rows(word: str) -> tuple[Path, tuple[BenchSpec, ...]] | None:
    """Return a suite and its rows; of ``SUITE:NAMES``, those with these operators or names. None if the word names no
    suite.

    Raises:
        InvalidArgument: If there is no such row.
        ModelError, OSError: As ``read_suite``.
    """
    path, row_names = suite_file(word), ""
    if path is None:
        suite, _, row_names = word.rpartition(":")
        path = suite_file(suite)
    if path is None:
        return None
    rows = read_suite(path)
    if not row_names:
        return path, rows
    matches = _rows_named(rows, row_names)  # a name may have commas itself
    for name in () if matches else split_words((row_names,)):
        named = _rows_named(rows, name)
        if not named:
            known = ", ".join(dict.fromkeys(row.name or row.what for row in rows))
            raise InvalidArgument(f"{path} has no row {name!r}; its rows are {known}")
        matches += named
    return path, matches


def _rows_named(rows: tuple[BenchSpec, ...], name: str) -> tuple[BenchSpec, ...]:
    """Return the rows with a name, or of an operator."""
    return tuple(row for row in rows if name == row.name or name.upper() == row.what.upper())


def read_suite(path: Path) -> tuple[BenchSpec, ...]:
    """Read a suite.

        [[row]]
        what = "GEMM"
        name = "matmul 1024"
        sizes = ["m=k=n=1024"]
        types = ["float32", "float16"]

    Raises:
        ModelError: If it is malformed; the message names the row and the key.
        OSError: If it cannot be read.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ModelError(str(path), f"is not TOML: {error}") from error
    rows = content.get("row")
    if not isinstance(rows, list) or not rows:
        raise ModelError(str(path), "must have rows: [[row]]")
    return tuple(_spec(f"{path}: row {index}", row) for index, row in enumerate(rows, start=1))


def _spec(where: str, row: Any) -> BenchSpec:
    if not isinstance(row, dict) or not isinstance(row.get("what"), str):
        raise ModelError(where, "must have 'what': an operator, a case or a model")
    try:
        return BenchSpec(
            row["what"],
            tuple(combinations(parse_sizes(_texts(where, row, "sizes")))),
            parse_types(_texts(where, row, "types")),
            split_words(_texts(where, row, "layouts")),
            split_words(_texts(where, row, "schedules")),
            dict(map(parse_shape, _texts(where, row, "shapes"))),
            _table(where, row, "desc"),
            _table(where, row, "contents"),
            row.get("name", ""),
            {key: value for key, value in row.items() if key not in _KEYS},
        )
    except InvalidArgument as error:
        raise ModelError(where, str(error)) from error


_KEYS = ("what", "sizes", "types", "layouts", "schedules", "shapes", "desc", "contents", "name")


def _table(where: str, row: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = row.get(key, {})
    if not isinstance(value, dict):
        raise ModelError(f"{where}: {key}", f"must be a table, got {value!r}")
    return value


def _texts(where: str, row: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = row.get(key, [])
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise ModelError(f"{where}: {key}", f"must be a string or a list of strings, got {value!r}")
    return tuple(value)
