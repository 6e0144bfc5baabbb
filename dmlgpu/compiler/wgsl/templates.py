"""Shader files: their folder, and their strict template language.

Templates are WGSL with expressions. When a file is loaded, identifiers that need it are looked up (``names``): library
functions, names that a file declares at module level, and names of accessors, all of which may be in a namespace.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import re
import sys
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import jinja2
from jinja2.bccache import Bucket
from jinja2.ext import Extension
from jinja2.lexer import Token, TokenStream
from jinja2.utils import missing

from dmlgpu.compiler.sizes.arithmetic import settled
from dmlgpu.compiler.wgsl import names, parameters

SUFFIX = ".wgsl"


@functools.cache
def root() -> Traversable:
    """Return the folder ``shaders/``: inside the package when installed, next to it in a checkout."""
    packaged = resources.files("dmlgpu") / "shaders"
    return packaged if packaged.is_dir() else Path(__file__).resolve().parents[3] / "shaders"


def exists(file: str) -> bool:
    """Return whether a shader file with a path (below ``shaders/``, without suffix) exists."""
    return root().joinpath(*f"{file}{SUFFIX}".split("/")).is_file()


@functools.cache  # bounded by the files
def original(file: str) -> str:
    """Return the text of a shader file on disk."""
    return root().joinpath(*f"{file}{SUFFIX}".split("/")).read_text(encoding="utf-8")


_replaced: dict[str, str] = {}


def source(file: str) -> str:
    """Return the text of a shader file."""
    return _replaced.get(file) or original(file)


@contextlib.contextmanager
def replaced(file: str, text: str) -> Iterator[None]:
    """Replace the text of a shader file within the context, by a mutant for tests of tests. Combine it with
    ``program_cache.without_files``: the compiler is not the one on the disk."""
    _replaced[file] = text
    try:
        yield
    finally:
        del _replaced[file]


@functools.cache  # bounded by the folders
def files(folder: str) -> tuple[str, ...]:
    """Return the shader files directly in a folder, by path without suffix."""
    names = (entry.name for entry in root().joinpath(folder).iterdir())
    return tuple(sorted(f"{folder}/{name.removesuffix(SUFFIX)}" for name in names if name.endswith(SUFFIX)))


@functools.cache
def folders() -> tuple[str, ...]:
    """Return the folders of shader files."""
    return tuple(sorted(entry.name for entry in root().iterdir() if entry.is_dir()))


_HEADER = re.compile(r"\A(?://[^\n]*\n)+")


def _load(name: str) -> tuple[str, None, Callable[[], bool]] | None:
    """Return a template without its header comment, which describes the file, not the shader it becomes part of."""
    if not exists(name):
        return None
    text = source(name)
    return _HEADER.sub("", text), None, lambda: source(name) == text


# ---- identifiers

DECLARATION = re.compile(r"(?:^|%\})(?:fn|alias|const|struct|var(?:<\w+>)?)\s+(\w+)(\{\{)?", re.MULTILINE)
"""A declaration at module level; an expression may end its name."""

_ACCESSOR = re.compile(r"\w+_(?:load|at|s|t|unit|base|index|bits|words\d*|doubles|of)")
_OF_BODIES = frozenset(["element", "finish", "place"])
"""Functions that other files declare for those in ``schedules/``."""

_IDENTIFIER = re.compile(r"//[^\n]*|(?<![\w.])[A-Za-z_]\w*")
NOTED = frozenset(["for", "while", "loop", "workgroup", "workgroupBarrier", "storageBarrier", "f16"])
"""Identifiers of WGSL of which the linker has to know that a text uses them."""


def identifiers(text: str) -> frozenset[str]:
    """Return the identifiers in a text without those in its comments."""
    return frozenset(name for name in _IDENTIFIER.findall(text) if not name.startswith("//"))


def declared(file: str) -> frozenset[str]:
    """Return the names that a shader file declares at module level."""
    return frozenset(name for name, _ in DECLARATION.findall(original(file)))


@functools.cache
def library() -> frozenset[str]:
    """Return the names that the files in ``shaders/lib`` declare."""
    return frozenset().union(*map(declared, files("lib")))


_TAKEN_IN = re.compile(r"\{% (?:include|import) ([^%]*)%\}")
_PATH = re.compile(r"\"(\w+/\w+)\"")


@dataclass(frozen=True)
class _Declared:
    """Names that are looked up in a file: those that it may share a namespace with.

    Attributes:
        names: Whole names.
        beginnings: Beginnings of names that end with an expression.
    """

    names: frozenset[str]
    beginnings: tuple[str, ...]

    def has(self, identifier: str) -> bool:
        """Return whether an identifier may be in a namespace, or be a type."""
        is_declared = identifier in self.names or identifier.startswith(self.beginnings)
        return is_declared or bool(_ACCESSOR.fullmatch(identifier))


@functools.cache  # bounded by the files
def _taken_in(file: str) -> frozenset[str]:
    """Return the files that a file includes or imports."""
    return frozenset(_PATH.findall(" ".join(_TAKEN_IN.findall(original(file)))))


@functools.cache  # bounded by the files
def _family(file: str) -> frozenset[str]:
    """Return a file, and all that may be rendered in its namespace: what it takes in, and what takes it in."""
    family, pending = {file}, [file]
    while pending:
        inner = _taken_in(pending.pop()) - family
        family |= inner
        pending += inner
    every = (each for folder in folders() if folder != "lib" for each in files(folder))
    outer = {each for each in every if file in _taken_in(each) and each != file}
    return frozenset(family).union(*(_family(each) for each in outer))


@functools.cache  # bounded by the files
def _names_of(file: str) -> _Declared:
    """Return the names that a file and its family declare."""
    matches = [match for each in _family(file) for match in DECLARATION.findall(original(each))]
    names = frozenset(name for name, is_open in matches if not is_open)
    names |= _OF_BODIES if file.startswith("schedules/") else frozenset()
    return _Declared(names, tuple({name for name, is_open in matches if is_open}))


class _Identifiers(Extension):
    """Marks identifiers of templates."""

    def filter_stream(self, stream: TokenStream) -> Iterable[Token]:
        """Yield the tokens of a template, with calls in place of the identifiers that are looked up."""
        before, declared = "", _names_of(stream.name or "access/types")
        for token in stream:
            if token.type != "data":
                before = token.type
                yield from _with_uses(token)
                continue
            after, text, position = stream.current.type, token.value, 0
            for match in _IDENTIFIER.finditer(text):
                identifier = match[0]
                # of a name that begins with an expression
                is_end = match.start() == 0 and before == "variable_end" and identifier.startswith("_")
                is_begin = match.end() == len(text) and after == "variable_begin"
                function = _function_of(identifier, declared, is_begin=is_begin)
                if is_end or function is None:
                    continue
                yield Token(token.lineno, "data", text[position : match.start()])
                yield from _called(token.lineno, function, identifier)
                position = match.end()
            yield Token(token.lineno, "data", text[position:])
            before = "data"


def _function_of(identifier: str, declared: _Declared, *, is_begin: bool) -> str | None:
    """Return the function that looks an identifier up, if any does; of a beginning, an expression is the rest."""
    if is_begin:
        return "scoped" if identifier in declared.beginnings else None
    if _is_noted(identifier):
        return "use"
    return "resolved" if declared.has(identifier) else None


def _is_noted(identifier: str) -> bool:
    return identifier in NOTED or identifier in library()


def _called(line: int, function: str, identifier: str) -> Iterator[Token]:
    """Yield the tokens of an expression that calls a function with an identifier."""
    yield Token(line, "variable_begin", "")
    yield from _call(line, function, identifier)
    yield Token(line, "variable_end", "")


def _call(line: int, function: str, *arguments: str) -> Iterator[Token]:
    yield Token(line, "name", function)
    yield Token(line, "lparen", "(")
    for index, argument in enumerate(arguments):
        if index:
            yield Token(line, "comma", ",")
        yield Token(line, "string", argument)
    yield Token(line, "rparen", ")")


def _with_uses(token: Token) -> Iterator[Token]:
    """Yield a token of an expression; a string that names functions of the library becomes a call that notes them."""
    used = []
    if token.type == "string":
        used = [name for name in _IDENTIFIER.findall(token.value) if _is_noted(name)]
    if used:
        yield from _call(token.lineno, "using", token.value, *used)
    else:
        yield token


def _using(text: str, *used: str) -> str:
    """Return a text that uses identifiers."""
    for name in used:
        names.use(name)
    return text


_GLOBALS: dict[str, Callable[..., Any]] = {
    "scoped": lambda name: names.current().scoped(name),
    "resolved": lambda name: names.current().resolved(name),
    "use": names.use,
    "using": _using,
    "type_of": lambda name: names.current().type_of(name),
    "name_type": lambda name, wgsl: names.current().name_type(name, wgsl),
    "div": parameters.quotient,
    "mod": parameters.remainder,
}
"""Functions of all templates."""

_FILTERS: dict[str, Callable[..., Any]] = {
    "constant": parameters.constant,
    "i32": parameters.as_i32,
    "f32": parameters.as_f32,
}
"""Filters of integers: where WGSL requires a constant, and as numbers of other types than u32."""


# ---- rendering


class _Context(jinja2.runtime.Context):
    """Values of a template: those that it is given, and then the fields and properties of the ``step`` among them."""

    def resolve_or_missing(self, key: str) -> Any:
        """Return the value of a name."""
        value = super().resolve_or_missing(key)
        return getattr(self.parent.get("step"), key, value) if value is missing else value


class _Environment(jinja2.Environment):
    """Context of Jinja2 that is faster for many small templates."""

    context_class = _Context

    def make_globals(self, d: MutableMapping[str, Any] | None) -> MutableMapping[str, Any]:
        """Return a plain dictionary: every rendering copies it, which is slow for Jinja2's chain of maps."""
        return {**self.globals, **(d or {})}


class _Bytecode(jinja2.FileSystemBytecodeCache):
    """Compiled templates in ``__pycache__`` folders next to their files, where Python writes those of modules.

    Compiling templates takes a tenth of Python's time of a first run. Bounded by the files. What a template is compiled
    to depends on the names that other files declare, hence on all files.
    """

    def __init__(self) -> None:
        super().__init__(directory="", pattern="%s")

    @functools.cached_property
    def _version(self) -> str:
        """A hash of all files, and of the modules that compile them."""
        texts = [original(file) for folder in folders() for file in files(folder)]
        code = [Path(module).read_text(encoding="utf-8") for module in (__file__, names.__file__)]
        return hashlib.sha256("\n".join([*code, *texts]).encode()).hexdigest()

    def get_cache_key(self, name: str, filename: str | None = None) -> str:
        """Return the path of a compiled file."""
        return importlib.util.cache_from_source(str(root().joinpath(*f"{name}{SUFFIX}".split("/"))))

    def get_source_checksum(self, source: str) -> str:
        """Return what a compiled file depends on."""
        return super().get_source_checksum(self._version + source)

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Write a compiled file, unless Python would not."""
        if not (sys.dont_write_bytecode or _replaced):
            with contextlib.suppress(OSError):
                Path(bucket.key).parent.mkdir(parents=True, exist_ok=True)
                super().dump_bytecode(bucket)


@functools.cache
def environment() -> jinja2.Environment:
    """Return the environment of all templates, with its tests and filters."""
    environment = _Environment(
        extensions=[_Identifiers],
        loader=jinja2.FunctionLoader(_load),
        bytecode_cache=_Bytecode() if isinstance(root(), Path) else None,
        undefined=jinja2.StrictUndefined,
        autoescape=False,
        optimized=False,  # folding constants takes longer than it saves in templates that are rendered a few times
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        cache_size=-1,  # bounded by the files: no limit, hence no order of use to track
        line_statement_prefix="# ",
    )
    environment.globals.update(_GLOBALS)
    environment.filters.update(_FILTERS)
    return environment


def render(file: str, **values: Any) -> str:
    """Render a shader file with values, after a line with its name.

    Raises:
        jinja2.UndefinedError: when the file uses an undefined value.
    """
    names.current().files[file] = None
    text = settled(environment().get_template(file).render(values))
    return f"// ---- shaders/{file}{SUFFIX}\n{text.strip()}\n"


def header(file: str) -> str:
    """Return a shader file's header comment: name, formula, special properties."""
    match = _HEADER.match(source(file))
    return "\n".join(line.removeprefix("//").strip() for line in match.group(0).splitlines()) if match else ""
