"""The adapters that ``--adapter`` and ``--drivers`` name."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from dmlgpu.cli.devices import choose_adapter
from dmlgpu.common.errors import AdapterNotFound, InvalidArgument, NotSupported
from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.conformance.drivers.discovery import Discovery, LocatedAdapter, all_drivers, of_drivers, process_adapters
from dmlgpu.runtime.adapters import adapters, environment_choice, wait_for_pages, why_no_gpu
from dmlgpu.runtime.numpy.adapter import NUMPY_ADAPTER

ALL = "all"


def choose_adapters(requested: Sequence[str], drivers: Sequence[str] = ()) -> tuple[LocatedAdapter, ...]:
    """Adapters and what brings their drivers.

    Args:
        requested: parts of names, or numbers; ``all``. None takes the default adapter, or with drivers all of theirs.
        drivers: ``all``, manifests of Vulkan drivers, folders of such; none takes this process's adapters.

    Raises:
        AdapterNotFound: when nothing matches; the message lists all adapters, and says whether another driver of the
            machine has one that would.
        InvalidArgument: when there is no such driver, or the drivers bring no adapter.
    """
    if drivers:
        known = adapters_of(drivers)
        matches = [adapter for text in requested for adapter in matching(text, known)] if requested else known
        return tuple(dict.fromkeys(matches))
    if list(requested) == [ALL]:
        return process_adapters()
    with _pointing_to_drivers():
        chosen = [
            _choose(adapter) for adapter in requested or (None,)
        ]  # before listing: one may be a page that is waited for
    known, infos = process_adapters(), adapters()
    return tuple(known[infos.index(info)] for info in chosen)


def with_pages(chosen: Sequence[LocatedAdapter], count: int, keep_reference: bool) -> tuple[LocatedAdapter, ...]:
    """Wait for pages of browsers, and return adapters with theirs; without the reference, unless that is asked for.

    Raises:
        AdapterNotFound: when what browsers need is not installed.
        DmlError: when the server of pages does not answer.
    """
    infos = wait_for_pages(count)
    known = process_adapters()
    local = [adapter for adapter in chosen if keep_reference or adapter.info != NUMPY_ADAPTER]
    return tuple(dict.fromkeys([*local, *(adapter for adapter in known if adapter.info in infos)]))


@contextlib.contextmanager
def _pointing_to_drivers() -> Iterator[None]:
    """Have an error about an adapter that this process does not reach say that ``--drivers all`` finds it, if it does.

    Raises:
        AdapterNotFound: as what is done here.
    """
    try:
        yield
    except AdapterNotFound as error:
        requested = str(error.wanted)
        if requested.isdecimal() or why_no_gpu():  # numbers are other adapters' there; without wgpu there is none
            raise
        matches = [adapter for adapter in all_drivers(()).adapters if _is_named(requested, adapter)]
        if not matches:
            raise
        raise AdapterNotFound(requested, error.available, f"--drivers all finds {matches[0].info}") from None


def _choose(requested: str | None) -> AdapterInfo:
    """The adapter; the reference in place of a GPU is not announced, since it is refused in a sentence of its own."""
    info = choose_adapter(requested, announce=False)
    return info if info == NUMPY_ADAPTER else choose_adapter(requested)


def refuse_reference_alone(chosen: Iterable[AdapterInfo], requested: Sequence[str]) -> None:
    """Refuse to compare the reference with itself, which always passes, unless somebody asked for that.

    Args:
        chosen: the adapters to test.
        requested: names, as ``choose_adapters`` takes it. A part of a name asks for the reference if it
            chose it; ``all`` and numbers, which are a GPU's while its driver is there, do not. A part of numpy's name
            in the environment variable DMLGPU_ADAPTER asks for it too.

    Raises:
        NotSupported: when there is no GPU adapter among those that were not asked for by name.
    """
    variable = environment_choice()
    by_variable = variable and variable.lower() in str(NUMPY_ADAPTER).lower()
    names = [*requested, *([variable] if by_variable else [])]
    is_requested = any(text and text != ALL and not text.isdecimal() for text in names)
    if not is_requested and all(info.backend == NUMPY_ADAPTER.backend for info in chosen):
        why = why_no_gpu() or "no GPU adapter was found"
        raise NotSupported(f"{why}, and the reference would only be compared with itself; --adapter numpy does so")


def adapters_of(drivers: Sequence[str]) -> tuple[LocatedAdapter, ...]:
    """All adapters of some drivers. What cannot be listed is said on standard error.

    Raises:
        InvalidArgument: when there is no such driver, or none brings an adapter.
    """
    discovery = _look([Path(driver) for driver in drivers if driver != ALL], everything=ALL in drivers)
    for problem in discovery.problems:
        print(f"dmlgpu: {problem}", file=sys.stderr)
    if not discovery.adapters:
        raise InvalidArgument(f"--drivers {' --drivers '.join(drivers)}: there is no adapter")
    return discovery.adapters


def _look(paths: Sequence[Path], *, everything: bool) -> Discovery:
    return all_drivers(paths) if everything else of_drivers(paths)


def matching(requested: str, known: Sequence[LocatedAdapter]) -> Sequence[LocatedAdapter]:
    """Every adapter whose label or name holds a text, or the one with a number; ``all`` of them.

    Raises:
        AdapterNotFound: when nothing matches; the message lists all adapters.
    """
    if requested == ALL:
        return known
    if requested.isascii() and requested.isdecimal():
        matches = [adapter for number, adapter in enumerate(known) if str(number) == requested]
    else:
        matches = [adapter for adapter in known if _is_named(requested, adapter)]
    if not matches:
        raise AdapterNotFound(requested, [str(adapter.info) for adapter in known], why_no_gpu())
    return matches


def _is_named(text: str, adapter: LocatedAdapter) -> bool:
    """Whether an adapter's label or name holds a text, in any case."""
    return text.lower() in f"{adapter.label}\n{adapter.info}".lower()
