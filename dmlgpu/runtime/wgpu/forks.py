"""Forked child processes. Driver threads and locks do not exist there: any call of a driver hangs or crashes,
including cleanup at exit."""

from __future__ import annotations

import contextlib
import ctypes
import os
import weakref
from typing import Any, Protocol

from dmlgpu.common.errors import InvalidState


class Inherited(Protocol):
    """An object that a child inherits from its parent and must not use."""

    def abandon(self) -> None:
        """Become unusable without calling the driver. Other threads, which may have held locks, do not exist in the
        child."""


MADE_BEFORE_FORK = (
    "created before this process was forked, but GPU drivers are not fork-safe; start processes with multiprocessing's"
    " 'spawn' and create devices in them"
)
"""Reason why an inherited device cannot be used."""

_open: weakref.WeakSet[Inherited] = weakref.WeakSet()
_apis: list[Any] = []
_used = False
_forked = False


def use_drivers(what: str) -> None:
    """Record that drivers are loaded. Listing adapters counts, since some drivers start threads then.

    Raises:
        InvalidState: In a process forked from one that had loaded drivers.
    """
    global _used  # noqa: PLW0603 - a fact about the process
    if _forked:
        raise InvalidState(
            f"{what}: this process was forked from one that had used a GPU or looked for adapters, but GPU drivers are"
            " not fork-safe; start processes with multiprocessing's 'spawn', or use the adapter 'numpy'"
        )
    _used = True


def disable_in_children(api: Any) -> None:
    """Keep the objects of a WebGPU library from calling C in every child forked from now on.

    Args:
        api: The module of its package with the classes of objects.
    """
    _apis.append(api)


def abandon_in_children(inherited: Inherited) -> None:
    """Abandon an object in every child forked from now on."""
    _open.add(inherited)


def _after_fork() -> None:
    global _forked  # noqa: PLW0603 - a fact about the process
    if not _used:
        return
    _forked = True
    for inherited in list(_open):
        inherited.abandon()
    for api in _apis:  # their packages take this for the interpreter's end: objects that are collected call no C
        api.libf = None
    _skip_exit_handlers()


def _skip_exit_handlers() -> None:
    """Skip the exit handlers that drivers registered, which wait for threads that do not exist.

    Handlers run last in, first out: standard output is flushed, then the process exits with its status.
    """
    with contextlib.suppress(AttributeError, OSError):  # C libraries other than GNU's have no ``on_exit``
        libc = ctypes.CDLL(None)
        libc.on_exit(libc._exit, None)
        libc.on_exit(libc.fcloseall, None)


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_after_fork)
