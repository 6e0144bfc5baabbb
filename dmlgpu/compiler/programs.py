"""Programs for executors: from memory, from files, or from the compiler, which is loaded for that."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.common.collection import collection_paused
from dmlgpu.common.timings import Timings
from dmlgpu.compiler.graph.network import Network
from dmlgpu.compiler.program import Program
from dmlgpu.compiler.program_cache import ProgramFiles, default_folder, memory_of, programs, version_of
from dmlgpu.compiler.sizes.networks import SizedNetwork, program_of
from dmlgpu.compiler.target import Target


def _files() -> ProgramFiles | None:
    """Return the files selected by the environment."""
    package = Path(__file__).parents[1]
    shaders = package.with_name("shaders")  # in a checkout; else they are inside the package
    folder = default_folder()
    version = None if folder is None else version_of([package, shaders] if shaders.is_dir() else [package])
    return None if folder is None or version is None else ProgramFiles(folder, version)


files = _files()
"""Folder of programs shared between processes, if any. Resolved at import, so that a source file that is
edited while the process runs cannot poison the cache."""


def of_operator(desc: OperatorDesc, target: Target) -> Program:
    """Return the program of a checked description; one object while ``program_cache.programs`` keeps it.

    Raises:
        OperatorNotImplemented: when dmlgpu does not implement the operator yet.
        NotSupported: when the adapter lacks a feature or a limit that it needs.
    """

    def make() -> Program:
        from dmlgpu.compiler.stages import stages  # noqa: PLC0415 - slow to import, and not needed for cached programs

        return stages(desc, target).program

    return programs.get_or_make(
        (desc, target), lambda: _found_or_made(lambda: f"{desc!r}\n{target.text}", make), memory_of
    )


def of_network(network: Network, target: Target, disabled: Collection[str] = ()) -> Program:
    """Return the program of a network, compiled without the passes in ``disabled``.

    Raises:
        InvalidArgument: for an unknown pass.
        NotSupported: when the adapter lacks what a node needs.
    """

    def make() -> Program:
        program = program_of(network, target, disabled)
        return _compiled(network, target, disabled) if program is None else program

    return _found_or_made(lambda: _key(network, target, disabled), make)


def of_sized(sized: SizedNetwork, target: Target) -> Program:
    """Return the program of a recorded network for some sizes. Raises as ``of_network``.

    It follows from a plan, which files hold for all sizes. The network itself is only built if it cannot be recorded.
    """
    if target.policies.specialized:
        return of_network(sized.network, target)
    start = time.perf_counter()
    with collection_paused():
        program = sized.recorded.program(sized.values, target, files=files)
    if program is not None:
        return replace(program, timings=Timings(planning=time.perf_counter() - start))
    return _found_or_made(lambda: _key(sized.network, target, ()), lambda: _compiled(sized.network, target, ()))


def _compiled(network: Network, target: Target, disabled: Collection[str]) -> Program:
    from dmlgpu.compiler.graph.compiler import compile_network  # noqa: PLC0415 - as above

    return compile_network(network, target, disabled).program


def _key(network: Network, target: Target, disabled: Collection[str]) -> str:
    """Return the key of a program in files."""
    return f"{_text_of_network(network)}\n{sorted(disabled)}\n{target.text}"


def _found_or_made(key: Callable[[], str], make: Callable[[], Program]) -> Program:
    """Return the program of a key, from the cache or compiled and cached; time not spent rendering counts as
    planning."""
    start = time.perf_counter()
    name = "" if files is None else key()
    program = None if files is None else files.load(name)
    if program is not None:
        return replace(program, timings=Timings(planning=time.perf_counter() - start))
    with collection_paused():
        program = make()
    rendering = program.timings.rendering
    program = replace(program, timings=Timings(time.perf_counter() - start - rendering, rendering))
    if files is not None:
        files.save(name, program)
    return program


def _text_of_network(network: Network) -> str:
    """Return a key that is the same for equal networks in any process; data are hashed."""
    constants = [hashlib.sha256(data).hexdigest() for data in network.constants]
    return f"{replace(network, constants=(), initial=frozenset())!r} {constants} {sorted(network.initial)}"
