"""Looking up C types by name without cffi's detour.

For each new text like ``"WGPULimits *"``, cffi has pycparser read a line for every one of the thousand types that
wgpu's header declares: 10 ms each, some fifty times before a process has its first result. Only the types whose names
stand in the text can matter.
"""

from __future__ import annotations

import copy
import re
from typing import Any

from wgpu.backends.wgpu_native._ffi import ffi

_NAME = re.compile(r"\w+")


def read_only_what_is_named(parser: Any) -> None:
    """Have a cffi parser declare to pycparser only the types that a text names. It reads everything as before.

    This is cffi's inside: a parser that lacks what is replaced here stays as it is.
    """
    if not (callable(getattr(parser, "_parse", None)) and isinstance(getattr(parser, "_declarations", None), dict)):
        return
    parse = type(parser)._parse

    def parse_with_few_declarations(text: str) -> Any:
        keys = [f"typedef {name}" for name in set(_NAME.findall(text))]
        reader = copy.copy(parser)
        reader._declarations = {key: parser._declarations[key] for key in keys if key in parser._declarations}
        return parse(reader, text)

    parser._parse = parse_with_few_declarations


read_only_what_is_named(getattr(ffi, "_parser", None))
