"""Compiles kernels for AMD GPUs without one, by RADV's null device (Mesa), in one child process per GPU family.

RADV reads the family from the environment when Vulkan is loaded. wgpu opens the null device only through a Vulkan
layer (``radv_layer.c``), which is built at first use and kept in the user's cache folder. Nothing is dispatched.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from dmlgpu.bench.compiled import CompiledKernel, parse_statistics
from dmlgpu.bench.validators import missing_tools, validate
from dmlgpu.bench.worker import Child, pack
from dmlgpu.bench.workload import Workload
from dmlgpu.common.errors import DmlError, NotSupported
from dmlgpu.common.files import whole_file
from dmlgpu.common.folders import cache_folder
from dmlgpu.common.processes import RequestServer, answer_stream, exit_with_parent, python_command
from dmlgpu.compiler import programs
from dmlgpu.compiler.explain import check
from dmlgpu.compiler.graph.description import GraphDesc
from dmlgpu.compiler.graph.resolve import resolve
from dmlgpu.compiler.program import Program, RenderedKernel
from dmlgpu.conformance.drivers.discovery import machine_manifests
from dmlgpu.runtime.device import Device
from dmlgpu.tensors.kernels import Kernel

FAMILIES = ("navi31", "navi21", "gfx1201", "vega10")
"""Default GPU families: RX 7900, RX 6800 and 6900, RX 9070, Vega 56 and 64."""

LAYER = "VK_LAYER_DMLGPU_radv"

OLDEST_VULKAN = (1, 4)
"""Vulkan version of Mesa 25, the oldest version that was tested."""

TIME_LIMIT = 300.0
"""Timeout of compiling a workload, in seconds."""

SPIRV_VARIABLE = "MESA_SPIRV_DUMP_PATH"
"""Environment variable of Mesa: folder for the SPIR-V of every shader that is compiled."""

_SOURCE = Path(__file__).with_name("radv_layer.c")
_INSTALL = "on Debian and Ubuntu: apt-get install mesa-vulkan-drivers gcc"

# ---- in the parent ---------------------------------------------------------------------------------------------------


def missing_parts() -> tuple[str, ...]:
    """Return the missing requirements for compiling for AMD GPUs; empty if all are installed."""
    if not sys.platform.startswith("linux"):
        return ("Linux",)
    manifest_file = _manifest()
    manifest = [] if manifest_file else ["RADV's manifest, radeon_icd.json, of Mesa's Vulkan drivers"]
    if manifest_file and _vulkan_version(manifest_file) < OLDEST_VULKAN:
        manifest = [f"Mesa 25 or newer, not the one of {manifest_file}"]
    compiler = [] if _layer().is_file() or _c_compiler() else ["a C compiler, gcc or cc"]
    return (*manifest, *compiler)


def environment_of(family: str) -> dict[str, str]:
    """Return the environment variables under which a process gets RADV's null device, building the layer if necessary.

    Args:
        family: A GPU family.

    Raises:
        NotSupported: If something is not installed; the message names it and how to install it.
        DmlError: If the layer cannot be built.
        OSError: If the cache folder cannot be written.
    """
    missing = missing_parts()
    if missing:
        raise NotSupported(f"compiling for AMD GPUs needs {' and '.join(missing)}; {_INSTALL}")
    manifest = str(_manifest())
    return {
        "RADV_FORCE_FAMILY": family,
        "RADV_DEBUG": "shaderstats,asm,nocache",
        "VK_DRIVER_FILES": manifest,
        "VK_ICD_FILENAMES": manifest,
        "VK_LAYER_PATH": str(build_layer()),
        "VK_INSTANCE_LAYERS": LAYER,
        "__EGL_VENDOR_LIBRARY_FILENAMES": os.devnull,
        "DMLGPU_TUNED": "off",  # the same kernels on every machine
        # Nothing can be measured. RADV's pack2x16float rounds towards zero, its quotients are not exact, it limits
        # accesses of buffers, and its subgroups are full.
        "DMLGPU_FLOAT16": "f16",
        "DMLGPU_DIVISION": "fused",
        "DMLGPU_CHECKS": os.environ.get("DMLGPU_CHECKS") or "never",
        "DMLGPU_SUBGROUPS": os.environ.get("DMLGPU_SUBGROUPS") or "always",
    }


def build_layer() -> Path:
    """Return the folder with the layer and its manifest, which is built once per version of its source.

    Raises:
        DmlError: If the compiler fails; the message is the compiler's.
        OSError: If the cache folder cannot be written.
    """
    library = _layer()
    folder = library.parent
    if not library.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        partial = library.with_suffix(f".{os.getpid()}.part")
        # Neither libraries nor headers: the packages of the C library need not be installed.
        flags = ("-shared", "-fPIC", "-O1", "-nostdlib", "-fno-builtin", "-fno-stack-protector")
        compiler = _c_compiler() or "cc"
        done = subprocess.run(
            [compiler, *flags, "-o", str(partial), str(_SOURCE)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise DmlError(f"{compiler} cannot build {_SOURCE}: {done.stderr.strip() or f'code {done.returncode}'}")
        manifest = {
            "file_format_version": "1.2.0",
            "layer": {
                "name": LAYER,
                "type": "GLOBAL",
                "library_path": str(library),
                "api_version": "1.4.0",
                "implementation_version": "1",
                "description": "lets wgpu open RADV's null device",
            },
        }
        with whole_file(folder / "radv_layer.json") as file:
            file.write(json.dumps(manifest).encode())
        partial.replace(library)  # last: its presence means that both files are complete
    return folder


def _layer() -> Path:
    digest = hashlib.sha256(_SOURCE.read_bytes()).hexdigest()[:16]
    return cache_folder() / "radv" / digest / "libradv_layer.so"


def _c_compiler() -> str | None:
    return shutil.which("gcc") or shutil.which("cc")


def _manifest() -> Path | None:
    """Return RADV's manifest for this process's architecture."""
    manifests = [path for path in machine_manifests() if path.name.startswith("radeon_icd.")]
    foreign = ("i686", "i386", "x86") if sys.maxsize > 1 << 32 else ("x86_64",)
    return next((path for path in manifests if path.suffixes[0].strip(".") not in foreign), None)


def _vulkan_version(manifest: Path) -> tuple[int, ...]:
    """Return the Vulkan version in a driver's manifest; empty if there is none."""
    try:
        version = json.loads(manifest.read_bytes())["ICD"]["api_version"]
        return tuple(map(int, version.split(".")))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return ()


def compile_workloads(
    workloads: Sequence[Workload],
    families: Sequence[str] = FAMILIES,
    *,
    listings: bool = False,
    validation: bool = False,
    progress: Callable[[int, str, str], None] = lambda index, name, text: None,
    time_limit: float = TIME_LIMIT,
) -> tuple[dict[str, str], tuple[CompiledKernel, ...]]:
    """Compile the kernels of workloads for GPU families, as many families at a time as there are CPU cores.

    Args:
        workloads: Workloads to compile.
        families: GPU families, as RADV names them.
        listings: Whether kernels come with listing and WGSL.
        validation: Whether kernels of the first family are validated; the others get the same SPIR-V.
        progress: Called with the index and the name of each workload, and the family, when it starts.
        time_limit: Timeout of a workload, in seconds.

    Returns:
        The adapter and driver of each family, and the kernels, by workload and then by family.

    Raises:
        NotSupported: If something is not installed.
        DmlError: If the layer cannot be built, or RADV does not know a family.
        OSError: If the cache folder cannot be written.
    """
    if validation and (missing := missing_tools()):
        packages = " ".join(missing)
        raise NotSupported(f"validating kernels needs {packages}; on Debian and Ubuntu: apt-get install {packages}")
    with tempfile.TemporaryDirectory(prefix="dmlgpu-spirv-") as folder:
        dumps = {family: {SPIRV_VARIABLE: folder} for family in families[:1] if validation}
        children = {
            family: Child(
                python_command(__name__, family), {**environment_of(family), **dumps.get(family, {})}, time_limit
            )
            for family in families
        }
        return _compile_in(children, workloads, listings, progress)


def _compile_in(
    children: Mapping[str, Child],
    workloads: Sequence[Workload],
    listings: bool,
    progress: Callable[[int, str, str], None],
) -> tuple[dict[str, str], tuple[CompiledKernel, ...]]:
    """Compile workloads in the child of each family."""

    def compile_family(family: str, child: Child) -> tuple[str, list[list[CompiledKernel]]]:
        try:
            driver: str = child.ask({"do": "describe"})["adapter"]
            rows = []
            for index, workload in enumerate(workloads):
                progress(index, workload.name, family)
                rows.append(_compile(child, workload, family, listings))
            return driver, rows
        except DmlError as error:
            if "Unknown family" not in str(error):
                raise
            names = ", ".join(FAMILIES)
            raise DmlError(f"--family must be a GPU family that RADV knows, such as {names}, got {family!r}") from None
        finally:
            child.close()

    with ThreadPoolExecutor(max(1, min(len(children), os.cpu_count() or 1))) as pool:
        futures = {family: pool.submit(compile_family, family, child) for family, child in children.items()}
        try:
            results = {family: future.result() for family, future in futures.items()}
        except BaseException:  # else the pool would wait for all other families
            for child in children.values():
                child.interrupt()
            raise
    drivers = {family: driver for family, (driver, _) in results.items()}
    kernels = (kernel for index in range(len(workloads)) for _, rows in results.values() for kernel in rows[index])
    return drivers, tuple(kernels)


def _compile(child: Child, workload: Workload, family: str, listings: bool) -> list[CompiledKernel]:
    """Compile a workload in a child; if that fails, return one kernel without a label."""
    try:
        answer = child.ask({"do": "compile", "workload": pack(workload), "listings": listings})
    except NotSupported as error:
        return [CompiledKernel(workload.name, 0, "", family, "refused", str(error))]
    except DmlError as error:
        return [CompiledKernel(workload.name, 0, "", family, "failed", str(error))]
    return [CompiledKernel(**record) for record in answer["kernels"]]


# ---- in the child ----------------------------------------------------------------------------------------------------


class KernelCompiler(RequestServer):
    """Compiles workloads on RADV's null device.

    Args:
        device: The null device.
        family: Its GPU family.
        errors: File descriptor of standard error, which must be a file: RADV prints to it.
        spirv: Folder to which Mesa writes SPIR-V, if kernels are to be validated.
    """

    refusals, failures = (NotSupported,), (DmlError,)

    def __init__(self, device: Device, family: str, errors: int = 2, spirv: Path | None = None):
        self._device, self._family, self._errors, self._spirv = device, family, errors, spirv
        # Lives as long as the process, which compiles the workloads of ``compile_workloads``.
        self._compiled_before: dict[str, CompiledKernel] = {}

    def handle(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if request["do"] == "describe":
            return {"adapter": str(self._device.adapter)}
        workload = pickle.loads(base64.b64decode(request["workload"]))
        return {"kernels": [asdict(kernel) for kernel in self._kernels(workload, request["listings"])]}

    def _kernels(self, workload: Workload, listings: bool) -> Iterator[CompiledKernel]:
        from dmlgpu.runtime.wgpu import GpuBackend  # noqa: PLC0415 - loads drivers, which the parent does without

        if workload.kernel is not None:
            own = workload.kernel
            shader = Kernel(own.source, own.entry_point or None, constants=own.constants)
            plain = CompiledKernel(workload.name, 0, shader.entry_point, self._family, wgsl=shader.source)
            yield self._compiled(plain, partial(shader.compile, self._device), listings)
            return
        rendered: dict[str, tuple[Program, RenderedKernel]] = {}
        for program in self._programs(workload):
            for kernel in (*program.initialization, *program.kernels):
                rendered.setdefault(kernel.wgsl, (program, kernel))
        backend = self._device.backend
        assert isinstance(backend, GpuBackend)
        for index, (program, kernel) in enumerate(rendered.values()):
            plain = CompiledKernel(workload.name, index, kernel.label, self._family)
            before = self._compiled_before.get(kernel.wgsl)
            if before is not None and before.statistics:
                yield replace(plain, statistics=before.statistics, validation=before.validation)
                continue
            compile_kernel = partial(backend.compile_kernel, program, kernel)
            compiled = self._compiled(replace(plain, wgsl=kernel.wgsl), compile_kernel, listings)
            self._compiled_before[kernel.wgsl] = replace(compiled, listing="", wgsl="")
            yield compiled

    def _compiled(self, kernel: CompiledKernel, function: Callable[[], object], listings: bool) -> CompiledKernel:
        """Return a kernel with its statistics, and without its sources unless they are requested."""
        try:
            statistics, listing = parse_statistics(self._printed_by(function), self._family)
            validation = self._validation()
        except (DmlError, ValueError) as error:
            return replace(kernel, status="failed", message=str(error), wgsl="")
        compiled = replace(kernel, statistics=statistics, validation=validation)
        return replace(compiled, listing=listing) if listings else replace(compiled, wgsl="")

    def _validation(self) -> dict[str, str]:
        """Validate the module that was compiled last, and remove Mesa's files."""
        if self._spirv is None:
            return {}
        files = sorted(self._spirv.iterdir(), key=lambda file: file.stat().st_mtime_ns)
        if not files:
            raise ValueError("Mesa wrote no SPIR-V; Mesa 25 does")
        spirv = files[-1].read_bytes()
        for file in files:
            file.unlink()
        return validate(spirv)

    def _printed_by(self, function: Callable[[], object]) -> str:
        """Return the output of a call on standard error, which is truncated afterwards: the output of a run can be
        large."""
        start = os.lseek(self._errors, 0, os.SEEK_END)
        function()
        size = os.lseek(self._errors, 0, os.SEEK_END) - start
        printed = os.pread(self._errors, size, start).decode(errors="replace")
        os.ftruncate(self._errors, start)
        os.lseek(self._errors, start, os.SEEK_SET)
        return printed

    def _programs(self, workload: Workload) -> list[Program]:
        if workload.model:
            from dmlgpu.frontends.onnx.preview import preview  # noqa: PLC0415  an extra

            model = preview(workload.model, self._device, workload.shapes)
            if model.unsupported or model.fails:
                raise NotSupported(model.stopped or f"{workload.name} has operators that are not supported")
            explanations = [segment.kernels.explanation for segment in model.segments]
            return [explanation.program for explanation in explanations if explanation is not None]
        assert workload.desc is not None
        check(workload.desc)
        target = self._device.backend.target.for_operators(workload.half_precision)
        target = target.with_overrides(schedule=workload.schedule)
        if isinstance(workload.desc, GraphDesc):
            return [programs.of_network(resolve(workload.desc), target)]
        return [programs.of_operator(workload.desc, target)]


def main() -> int:
    """Serve RADV's null device of a GPU family."""
    from dmlgpu.runtime.wgpu import adapters  # noqa: PLC0415 - Dawn's are not listed: it aborts for unknown families

    (family,) = sys.argv[1:]
    exit_with_parent()
    with answer_stream() as answers:
        info = next((info for info in adapters() if "RADV" in info.name), None)
        if info is None:
            print("RADV lists no null device; Mesa 25 does", file=sys.stderr)
            return 1
        folder = os.environ.get(SPIRV_VARIABLE)
        spirv = Path(folder) if folder else None
        KernelCompiler(Device(info, specialize="always"), family, spirv=spirv).serve(sys.stdin, answers)
    return 0
