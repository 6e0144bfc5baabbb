"""Pipelines in a page, by text and number of bindings, kept within limits."""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

from dmlgpu.common.cache import Cache, CacheLimits
from dmlgpu.common.errors import ShaderError
from dmlgpu.compiler.program import Kernel
from dmlgpu.runtime.browser.link import Link, printable

LIMITS: Final = CacheLimits(entries=1024, size=256 << 20)
_BYTES_PER_CHARACTER = 200
_LINES_AROUND = 3

Key = tuple[str, int]


class Pipeline(int):
    """A pipeline's number in the page. The page forgets it when nothing refers to this object any more."""

    forget: Callable[[int], None]

    def __del__(self) -> None:
        self.forget(int(self))


class Pipelines:
    """The pipelines that a page has made.

    Args:
        link: the page.
        adapter: it, for messages.

    Attributes:
        cache: keeps pipelines that may be asked for again.
        forgotten: numbers of pipelines that the page shall forget.
    """

    def __init__(self, link: Link, adapter: str, forget: Callable[[int], None]):
        self._link, self._adapter, self._forget = link, adapter, forget
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self.cache: Cache[Key, Pipeline] = Cache(LIMITS)

    def size_of(self, wgsl: str) -> int:
        """Estimate the bytes that the pipeline of a text takes."""
        return _BYTES_PER_CHARACTER * len(wgsl)

    def get_all(self, operator: str, kernels: Sequence[Kernel]) -> list[Pipeline]:
        """Return kernels' pipelines. The page makes all that are new at a time, which costs one round trip.

        Raises:
            ShaderError: when a text does not compile; for the first kernel of which that is so.
            DeviceRemoved: when the page is gone.
        """
        self._link.check()
        keys = [(kernel.wgsl, kernel.binding_count) for kernel in kernels]
        found = {key: pipeline for key in dict.fromkeys(keys) if (pipeline := self.cache.get(key)) is not None}
        missing = {key: kernel for key, kernel in zip(keys, kernels, strict=True) if key not in found}
        if missing:
            found |= self._made(operator, missing)
        return [found[key] for key in keys]

    def _made(self, operator: str, missing: dict[Key, Kernel]) -> dict[Key, Pipeline]:
        commands: list[list[Any]] = []
        texts, start = [], 0
        for (text, bindings), kernel in missing.items():
            texts.append(text.encode())
            commands.append(["pipeline", next(self._numbers), start, len(texts[-1]), bindings, kernel.label])
            start += len(texts[-1])
        results, _ = self._link.call(self._link.send(commands, texts))
        made = {}
        for (key, kernel), command, refusal in itertools.zip_longest(missing.items(), commands, results):
            if refusal != "":
                raise ShaderError(compile_error(operator, kernel, self._adapter, refusal))
            pipeline = Pipeline(command[1])
            pipeline.forget = self._forget
            made[key] = pipeline
            self.cache.put(key, pipeline, self.size_of(key[0]))
        return made


def compile_error(operator: str, kernel: Kernel, adapter: str, refusal: object) -> str:
    """Return the text of a ShaderError: what failed and why, then the lines around the fault with their numbers.

    Args:
        operator: whose kernel it is.
        kernel: what does not compile.
        adapter: where.
        refusal: what the page says: the line, from 1, or 0, and the compiler's message.
    """
    line, message = refusal if isinstance(refusal, list) and len(refusal) == 2 else (0, "the page does not say why")
    lines = kernel.wgsl.splitlines()
    reason = " ".join(printable(message).split())
    head = f"{operator}: kernel {kernel.label!r} does not compile on {adapter}: {reason}"
    if type(line) is not int or not 1 <= line <= len(lines):
        return head
    names = re.findall(r"^// ---- (\S+)$", "\n".join(lines[:line]), re.MULTILINE)
    width = len(str(line + _LINES_AROUND))
    around = range(max(line - _LINES_AROUND, 1), min(line + _LINES_AROUND, len(lines)) + 1)
    excerpt = "\n".join(f"{'>' if one == line else ' '} {one:{width}} | {lines[one - 1]}".rstrip() for one in around)
    return f"{head}{f' (in {names[-1]})' if names else ''}\n{excerpt}"
