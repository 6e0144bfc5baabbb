"""What becomes of a forked child. Drivers keep threads and locks that do not exist there: whatever calls them hangs or
crashes, the clean-up at exit included."""

from __future__ import annotations

import contextlib
import ctypes
import os
import weakref
from typing import Protocol

from wgpu.backends.wgpu_native import _api

from dmlgpu.common.errors import InvalidState


class Inherited(Protocol):
    """An object that a child inherits from its parent and may not use."""

    def abandon(self) -> None:
        """Be unusable, without a call of the driver. Other threads, which held locks perhaps, are gone."""


MADE_BEFORE_FORK = (
    "made before this process was forked, which drivers do not bear; start processes with multiprocessing's 'spawn' and"
    " make devices there"
)
"""Why an inherited device is of no use."""

_open: weakref.WeakSet[Inherited] = weakref.WeakSet()
_used = False
_forked = False


def use_drivers(what: str) -> None:
    """Note that drivers are loaded from now on: looking for adapters is enough, since some start threads then.

    Raises:
        InvalidState: In a process forked from one that had loaded them.
    """
    global _used  # noqa: PLW0603 - a fact about the process
    if _forked:
        raise InvalidState(
            f"{what}: this process was forked from one that had used a GPU or looked for adapters, which drivers do not"
            " bear; start processes with multiprocessing's 'spawn', or use the adapter 'numpy'"
        )
    _used = True


def abandon_in_children(inherited: Inherited) -> None:
    """Have an object abandoned in every child that is forked from now on."""
    _open.add(inherited)


def _after_fork() -> None:
    global _forked  # noqa: PLW0603 - a fact about the process
    if not _used:
        return
    _forked = True
    for inherited in list(_open):
        inherited.abandon()
    _api.libf = None  # wgpu-py takes this for the interpreter's end: objects that are collected no longer call C
    _skip_exit_handlers()


def _skip_exit_handlers() -> None:
    """Leave out the handlers that drivers registered for the process's end, which wait for threads that are not there.

    Handlers run last in, first out: standard output is flushed, then the process ends with its status.
    """
    with contextlib.suppress(AttributeError, OSError):  # C libraries other than GNU's have no ``on_exit``
        libc = ctypes.CDLL(None)
        libc.on_exit(libc._exit, None)
        libc.on_exit(libc.fcloseall, None)


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_after_fork)
