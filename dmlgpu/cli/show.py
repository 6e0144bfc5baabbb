"""``dmlgpu show``: how an operator or a graph compiles, from the description to the kernels."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dmlgpu import reference
from dmlgpu.bench.radv import compile_workloads
from dmlgpu.bench.specs import BenchSpec, KernelOptions, is_kernel_file
from dmlgpu.catalog.enums import ExecutionFlags
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import TensorDesc, packed_strides
from dmlgpu.cli import tables
from dmlgpu.cli.devices import choose_adapter
from dmlgpu.cli.generate import show_language_model
from dmlgpu.cli.run import frontend
from dmlgpu.cli.show_kernel import show_kernel
from dmlgpu.cli.subjects import Subject, compiled_workloads, find_subjects, subject_workload
from dmlgpu.common.errors import DmlError, InvalidArgument, NotSupported, counted
from dmlgpu.common.files import file_stem, is_gguf, whole_file
from dmlgpu.common.timings import Timings
from dmlgpu.compiler.explain import (
    ExplainedKernel,
    Explanation,
    as_json,
    check,
    choices_json,
    description,
    explain_graph,
    explain_operator,
    multiplications,
)
from dmlgpu.compiler.graph.description import GraphDesc, OperatorNode
from dmlgpu.compiler.program import RenderedKernel
from dmlgpu.compiler.program_cache import without_files
from dmlgpu.compiler.sizes.recordings import failures
from dmlgpu.compiler.target import SCHEDULES, AdapterInfo, Policies, Target
from dmlgpu.runtime.adapters import environment_choice, target_of
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.numpy import NUMPY_ADAPTER

if TYPE_CHECKING:
    from dmlgpu.frontends.onnx.preview import Preview


def show(
    what: str,
    adapter: str | None,
    *,
    as_text: bool = True,
    wgsl: bool = False,
    why: bool = False,
    isa: str | None = None,
    entry_point: str = "",
    defines: Sequence[str] = (),
    dump: Path | None = None,
    timings: bool = False,
    full: bool = False,
    schedules: str | None = None,
    schedule: str = "",
    precise: bool = False,
    without: Sequence[str] = (),
    shapes: Sequence[str] = (),
) -> None:
    """Print how a case, an operator or a model compiles.

    Args:
        what: See ``subjects.find_subjects``.
        adapter: Part of an adapter's name, or its index; None selects the default.
        as_text: Print text; else JSON.
        wgsl: Print only the source of the kernels.
        why: Print only the schedules of each step, with why each was taken or not; add them to JSON.
        isa: Print only the instructions for an AMD GPU family (see ``radv.compile_workloads``).
        entry_point: Of a kernel in WGSL; empty for all.
        defines: Values of the overrides of a kernel in WGSL, each ``NAME=VALUE``.
        dump: Folder for plan, schedule, program, kernels and JSON.
        timings: Also compile on a device, and print the time of each stage.
        full: For graphs, also print plan, schedule and program.
        schedules: ``cpu`` or ``gpu``, instead of the adapter's own schedules.
        schedule: Name of the schedule that steps take if their list has it; empty for the usual choice.
        precise: As on ``Device(precise=True)``.
        without: Disabled passes of the graph compiler.
        shapes: Shapes of an ONNX model's inputs, each ``name=1x3``.

    Raises:
        InvalidArgument, ModelError: If `what` names nothing, or is malformed; or if `schedule` does, or cannot compute
            a step.
        AdapterNotFound: If no adapter matches.
        NotSupported: If the adapter lacks a feature, or kernels are requested of an adapter that runs none.
        OSError: If a file cannot be read or written.
    """
    if schedules is not None and schedules not in SCHEDULES:
        raise InvalidArgument(f"--schedules must be one of {', '.join(SCHEDULES)}, got {schedules!r}")
    _reject(wgsl and (timings or not as_text), "--wgsl cannot be combined with --json or --timings")
    _reject(why and (wgsl or timings), "--why cannot be combined with --wgsl or --timings")
    _reject(schedule and timings, "--schedule cannot be combined with --timings")
    others = bool(wgsl or dump or timings or full or schedules or schedule or without)
    of_kernel = KernelOptions(defines=tuple(defines), entry_point=entry_point)
    if isa is not None:
        _reject(
            others or why or precise or not as_text or (adapter and adapter != environment_choice()),
            "--isa can be combined with --shape, --entry-point and --define only; it compiles with the schedules of a "
            "discrete GPU",
        )
        show_isa(what, isa, shapes, of_kernel)
        return
    _reject(
        of_kernel != KernelOptions() and not is_kernel_file(what),
        "--entry-point and --define are for kernels in WGSL (FILE.wgsl)",
    )
    if what.lower().endswith(".onnx"):
        _reject(others, "for an ONNX model, show takes only --adapter, --precise, --shape, --why and --json")
        show_onnx(Path(what), adapter, shapes, as_text=as_text, precise=precise, why=why)
        return
    _reject(shapes, "--shape needs an ONNX model")
    others = others or why
    if _shown_language_model(what, adapter, bool(others or precise), as_text=as_text):
        return
    if is_kernel_file(what):
        _reject(
            others or precise, "for a WGSL kernel, show takes only --adapter, --entry-point, --define, --isa and --json"
        )
        show_kernel(Path(what), adapter, of_kernel, as_text=as_text)
        return
    subjects = find_subjects(what)
    info = choose_adapter(adapter)
    if _target(info, schedules, schedule, half_precision=False, precise=precise) is None:
        if wgsl or why or schedule or dump is not None or timings:
            raise NotSupported(
                f"{info} runs no kernels; --schedules {'|'.join(SCHEDULES)} shows kernels of other adapters"
            )
        _show_reference(subjects, info, as_text=as_text)
        return
    explained = [_explained(subject, info, schedules, schedule, without, precise=precise) for subject in subjects]
    _check_taken(schedule, explained)
    taken = [_timings(subject, info, without, precise=precise) if timings else {} for subject in subjects]
    if dump is not None:
        _dump(explained, dump)
    if wgsl:
        print("\n".join(map(_wgsl, explained)), end="")
    elif as_text:
        for index, (explanation, times) in enumerate(zip(explained, taken, strict=True)):
            print(end="\n" if index else "")
            _print_choices(explanation) if why else _print(explanation, times, full=full)
    else:
        pairs = zip(explained, taken, strict=True)
        _print_json(
            info,
            [
                as_json(explanation)
                | ({"choices": choices_json(explanation)} if why else {})
                | ({"timings": times} if times else {})
                for explanation, times in pairs
            ],
        )


def show_isa(what: str, family: str, shapes: Sequence[str] = (), of_kernel: KernelOptions | None = None) -> None:
    """Print the instructions of each kernel for an AMD GPU family, below a line with its name and registers.

    Args:
        what: See ``subjects.find_subjects``; also an ONNX model or a kernel in WGSL.
        family: The family, as RADV names it.
        shapes: Shapes of an ONNX model's inputs, each ``name=1x3``.
        of_kernel: Entry point and overrides of a kernel in WGSL; None for all entry points.

    Raises:
        InvalidArgument, ModelError: If `what` names nothing, or is malformed.
        NotSupported: If RADV or a C compiler is not installed, or a kernel needs a feature that the GPU lacks.
        DmlError: If RADV does not know the family, or a kernel does not compile.
    """
    if is_kernel_file(what) or what.lower().endswith(".onnx"):
        shaped = dict(map(parse_shape, shapes))
        workloads = compiled_workloads([BenchSpec(what, shapes=shaped, kernel=of_kernel or KernelOptions())])
    else:
        _reject(shapes, "--shape needs an ONNX model")
        workloads = tuple(map(subject_workload, find_subjects(what)))
    _, kernels = compile_workloads(workloads, (family,), listings=True)
    for index, kernel in enumerate(kernels):
        if kernel.status != "compiled":
            raise (NotSupported if kernel.status == "refused" else DmlError)(f"{kernel.name}: {kernel.message}")
        share = kernel.multiply_add_share
        loop = f", {100 * share:.0f} % multiply-adds in the busiest loop" if share is not None else ""
        print(end="\n" if index else "")
        print(
            f"// ==== {kernel.name} for {family}: {kernel.statistics['vgprs']} VGPRs,"
            f" {kernel.statistics['waves']} waves, {kernel.statistics['instructions']} instructions{loop}"
        )
        print(kernel.listing or "// the same WGSL as a kernel above", end="" if kernel.listing else "\n")


def _reject(options: object, text: str) -> None:
    if options:
        raise InvalidArgument(text)


def _target(
    info: AdapterInfo, schedules: str | None, schedule: str, *, half_precision: bool, precise: bool
) -> Target | None:
    """Return the target to compile for; None if the adapter runs no kernels."""
    target = target_of(info, half_precision, precise)
    if schedules is not None:
        target = target or Target("an adapter with WebGPU's default limits", policies=Policies(precise=precise))
        target = replace(target, profile=SCHEDULES[schedules])
    return target and target.with_overrides(schedule=schedule)


def _check_taken(schedule: str, explained: Sequence[Explanation]) -> None:
    """Raise InvalidArgument if a schedule is requested, and no step has one of this name."""
    if not schedule:
        return
    choices = [choice for explanation in explained for _, choice in explanation.choices]
    kinds = {choice.kind: [tried.name for tried in choice.tried] for choice in choices}
    if not any(schedule in (name, f"{kind}/{name}") for kind, names in kinds.items() for name in names):
        lists = "; ".join(f"{', '.join(names)} ({kind})" for kind, names in kinds.items())
        raise InvalidArgument(f"no step has the schedule {schedule!r}; the steps have {lists or 'none'}")


def _explained(
    subject: Subject, info: AdapterInfo, schedules: str | None, schedule: str, without: Sequence[str], *, precise: bool
) -> Explanation:
    target = _target(info, schedules, schedule, half_precision=subject.half_precision, precise=precise)
    assert target is not None
    if isinstance(subject.desc, GraphDesc):
        return explain_graph(subject.title, subject.desc, target, without)
    return explain_operator(subject.title, subject.desc, target)


# ---- text


def _print_choices(explained: Explanation) -> None:
    """Print the schedules of each step, below the title."""
    tables.text(f"{explained.title} for {explained.target.name!r} ({explained.target.profile})")
    for _, choice in explained.choices:
        print(f"\n{choice}")


def _print(explained: Explanation, times: Mapping[str, float], *, full: bool) -> None:
    if explained.graph is None:
        assert isinstance(explained.desc, OperatorDesc)
        tables.facts(explained.title, [*_description(explained.desc), ("work", _work(explained))])
    else:
        _print_graph(explained)
    if full or explained.graph is None:
        for stage in (explained.plan, explained.schedule, explained.program):
            print()
            tables.text(str(stage))
    if times:
        print()
        rows = [(part, f"{seconds * 1e3:.1f}") for part, seconds in times.items()]
        tables.table(("compiling", "ms"), rows, right=(1,))
    if times and failures:
        print()
        rows = [(reason, str(count)) for reason, count in sorted(failures.items())]
        tables.table(("sizes were not recorded", "times"), rows, right=(1,))


def _description(desc: OperatorDesc) -> list[tuple[str, str]]:
    """Return the fields of a description, and the bindings of its tensors."""
    pairs = []
    for kind, slots in (("input", desc.inputs), ("output", desc.outputs)):
        for index, slot in enumerate(slots):
            if slot.tensor is not None:
                pairs.append((slot.label, f"{kind} {index}: {_tensor(slot.tensor)}"))
    tensors = {*desc.input_fields, *desc.output_fields}
    attributes = {name: value for name, value in description(desc)["fields"].items() if name not in tensors}
    pairs += [(name, _attribute(value)) for name, value in attributes.items() if value is not None]
    return pairs


def _work(explained: Explanation) -> str:
    """Return the multiplications and bytes of an execution, if the plan states them."""
    counted = [count for step in explained.plan.steps if (count := multiplications(step)) is not None]
    products = f"{sum(counted):,} multiplications, " if counted else ""
    return f"{products}{explained.traffic.read:,} bytes read, {explained.traffic.written:,} written"


def _tensor(tensor: TensorDesc) -> str:
    strides = tensor.element_strides
    laid_out = f" strides {list(strides)}" if strides != packed_strides(tensor.sizes) else ""
    owned = ", owned by the device" if tensor.owned_by_dml else ""
    return f"{tensor.data_type.name} {list(tensor.sizes)}{laid_out}, {tensor.byte_size:,} bytes{owned}"


def _attribute(value: Any) -> str:
    """Return the text of an attribute; for a fused activation, its name and parameters."""
    if isinstance(value, list):
        return f"[{', '.join(map(_attribute, value))}]"
    if isinstance(value, dict):
        parts = value["fields"] if "operator" in value else value
        arguments = ", ".join(f"{name}={_attribute(part)}" for name, part in parts.items() if part is not None)
        return f"{value.get('operator', '')}({arguments})"
    return str(value)


def _print_graph(explained: Explanation) -> None:
    assert explained.graph is not None and isinstance(explained.desc, GraphDesc)
    program, fused, plain = explained.program, explained.traffic, explained.unfused_traffic
    operators = sum(isinstance(node, OperatorNode) for node in explained.desc.nodes)
    constants = len(explained.desc.nodes) - operators
    data = sum(map(len, program.constants))
    tables.facts(
        f"{explained.title} for {explained.target.name!r} ({explained.target.profile})",
        [
            ("nodes in", f"{counted(operators, 'operator')}, {counted(constants, 'constant')}"),
            ("kernels out", f"{len(program.kernels)} ({explained.unfused_kernels} without fusion)"),
            ("bytes read", f"{fused.read:,} ({plain.read:,} without fusion)"),
            ("bytes written", f"{fused.written:,} ({plain.written:,} without fusion)"),
            ("peak memory", f"{program.temporary_size:,} bytes temporary (minimum {program.least_temporary_size:,})"),
            ("persistent", f"{program.persistent_size:,} bytes, and {data:,} bytes of constants"),
        ],
    )
    print()
    rows, before = [], None
    for index, kernel in enumerate(explained.kernels, start=1):
        *row, nodes = _row(explained, kernel, str(index))
        rows.append((*row, "the same" if kernel.step == before else nodes))
        before = kernel.step
    rows += [_row(explained, run_once, "once") for run_once in explained.initialization]
    tables.table(("", "kernel", "workgroups", "bytes bound", "nodes"), rows, right=(0, 3))
    if explained.graph.notes:
        print()
        subjects: dict[tuple[str, str], list[str]] = {}
        for note in explained.graph.notes:
            subjects.setdefault((note.pass_name, note.text), []).append(note.subject)
        rows = [(*note, ", ".join(of)) for note, of in subjects.items()]
        tables.table(("pass", "result", "nodes"), rows)


def _row(explained: Explanation, explained_kernel: ExplainedKernel, index: str) -> tuple[str, ...]:
    """Return the row of a kernel in the table of a graph; kernels of the initialization run once."""
    kernel = explained_kernel.kernel
    label = kernel.label if explained_kernel.scheduled is None else explained_kernel.scheduled.label
    times = f" {explained_kernel.times} times" if explained_kernel.times > 1 else ""
    grid = f"{' x '.join(str(size) for size in kernel.grid)} of {kernel.workgroup}"
    bound = sum(slot.size for slot in kernel.slots)
    nodes = () if explained_kernel.step is None else explained.nodes[explained_kernel.step]
    names = [node.name if node.desc.stem in node.name else f"{node.name} {node.desc.stem}" for node in nodes]
    return index, f"{label}{times}", grid, f"{bound:,}", ", ".join(names) or "a copy"


def _timings(subject: Subject, info: AdapterInfo, without: Sequence[str], *, precise: bool) -> dict[str, float]:
    """Compile on a device; return the seconds per stage."""
    device = Device(info, precise=precise)
    half = ExecutionFlags.ALLOW_HALF_PRECISION_COMPUTATION if subject.half_precision else ExecutionFlags.NONE
    with without_files():  # measure compilation, not cache hits
        if isinstance(subject.desc, GraphDesc):
            compiled = device.compile_graph(subject.desc, half, disabled_passes=without)
        else:
            compiled = device.compile_operator(device.create_operator(subject.desc), half)
    taken = compiled.timings
    device.remove()
    if taken is None:
        raise NotSupported(f"{info} reports no compile times")
    return {stage: getattr(taken, stage) for stage in Timings.STAGES}


# ---- the reference


def _show_reference(subjects: Sequence[Subject], info: AdapterInfo, *, as_text: bool) -> None:
    """Print the functions of the reference that compute an operator, or the nodes of a graph."""
    for subject in subjects:
        check(subject.desc)
    if not as_text:
        records = [
            {
                "title": subject.title,
                "description": description(subject.desc),
                "target": None,
                "functions": _functions(subject.desc),
            }
            for subject in subjects
        ]
        _print_json(info, records)
        return
    for shown in subjects:
        if isinstance(shown.desc, OperatorDesc):
            tables.facts(shown.title, _description(shown.desc))
            print(f"{NUMPY_ADAPTER.name} runs it without kernels, by {_function(shown.desc)}")
        else:
            nodes = [node for node in shown.desc.nodes if isinstance(node, OperatorNode)]
            tables.text(f"{shown.title}: {NUMPY_ADAPTER.name} runs the nodes one by one, without kernels")
            rows = [(node.name or "", node.desc.operator, _function(node.desc)) for node in nodes]
            tables.table(("node", "operator", "function"), rows)


def _functions(desc: OperatorDesc | GraphDesc) -> list[str]:
    if isinstance(desc, OperatorDesc):
        return [_function(desc)]
    return [_function(node.desc) for node in desc.nodes if isinstance(node, OperatorNode)]


def _function(desc: OperatorDesc) -> str:
    """Return the name of the function of the reference that computes an operator."""
    function = reference.find(desc.operator)
    assert function is not None
    return f"{function.__module__}.{function.__name__}"


# ---- JSON and files


def _print_json(info: AdapterInfo, shown: list[dict[str, Any]]) -> None:
    print(json.dumps({"adapter": str(info), "shown": shown}, indent=2, ensure_ascii=False))


def _wgsl(explained: Explanation) -> str:
    """Return the source of all kernels, below a line with its name if there are several."""
    kernels = _files(explained)
    if len(kernels) == 1:
        return next(iter(kernels.values())).wgsl
    return "\n".join(f"// ==== {name}: {kernel.label}\n{kernel.wgsl}" for name, kernel in kernels.items())


def _files(explained: Explanation) -> dict[str, RenderedKernel]:
    """Return the kernels by file name, in order, those of the initialization first."""
    once = [("initialize-", explained_kernel.kernel) for explained_kernel in explained.initialization]
    kernels = once + [("", kernel.kernel) for kernel in explained.kernels]
    return {
        f"{index:02}-{when}{file_stem(kernel.label)}.wgsl": kernel
        for index, (when, kernel) in enumerate(kernels, start=1)
    }


def _dump(explained: Sequence[Explanation], folder: Path) -> None:
    """Write everything into a folder; for several subjects, into one subfolder each."""
    for index, explanation in enumerate(explained, start=1):
        own = folder if len(explained) == 1 else folder / f"{index:02}-{file_stem(explanation.title) or 'graph'}"
        own.mkdir(parents=True, exist_ok=True)
        texts = {
            "plan.txt": f"{explanation.plan}\n",
            "schedule.txt": f"{explanation.schedule}\n",
            "program.txt": f"{explanation.program}\n",
            "show.json": json.dumps(as_json(explanation), indent=2, ensure_ascii=False) + "\n",
            **{name: kernel.wgsl for name, kernel in _files(explanation).items()},
        }
        for name, text in texts.items():
            with whole_file(own / name) as stream:
                stream.write(text.encode())


def _shown_language_model(what: str, adapter: str | None, has_others: bool, *, as_text: bool) -> bool:
    """Show the language model of this name, if it exists; return whether it does."""
    if not (Path(what).is_dir() or is_gguf(Path(what))):
        return False
    _reject(has_others, "for a language model, show takes only --adapter and --json")
    show_language_model(Path(what), adapter, as_text=as_text)
    return True


def show_onnx(
    path: Path,
    adapter: str | None,
    shapes: Sequence[str],
    *,
    as_text: bool,
    precise: bool = False,
    why: bool = False,
) -> None:
    """Print inputs, outputs, operators, unsupported nodes, and where each node will run.

    Args:
        path: Path of the model.
        adapter: Part of an adapter's name, or its index; None selects the default.
        shapes: Shapes of inputs, each ``name=1x3``. Free dimensions default to 1.
        as_text: Print text; else JSON.
        precise: As on ``Device(precise=True)``.
        why: As for ``show``.

    Raises:
        ModelError, InvalidArgument: If the model or a shape is malformed.
        AdapterNotFound: If no adapter matches.
    """
    frontend()
    from dmlgpu.frontends.onnx.preview import preview  # noqa: PLC0415  an extra

    device = Device(choose_adapter(adapter), precise=precise)
    model = preview(path, device, dict(map(parse_shape, shapes)))
    if why and target_of(device.adapter) is None:
        raise NotSupported(f"{device.adapter} runs no kernels, so that no schedule is chosen")
    if why and as_text:
        for explained in _explained_segments(model):
            _print_choices(explained)
    elif as_text:
        _print_preview(model, device)
    else:
        choices = [choice for each in _explained_segments(model) for choice in choices_json(each)] if why else []
        facts = _preview_json(model, device) | ({"choices": choices} if why else {})
        print(json.dumps(facts, indent=2, ensure_ascii=False))


def parse_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """Return name and sizes of ``name=1x3``.

    Raises:
        InvalidArgument: If the text is malformed.
    """
    name, _, sizes = text.rpartition("=")
    try:
        return name, tuple(int(size) for size in sizes.split("x") if sizes)
    except ValueError:
        raise InvalidArgument(f"--shape must be name=1x3x48x192, got {text!r}") from None


def _explained_segments(model: Preview) -> list[Explanation]:
    """Return the graphs that run first; none on ``numpy``, which runs no kernels."""
    explained = (segment.kernels.explanation for segment in model.segments)
    return [explanation for explanation in explained if explanation is not None]


def _preview_facts(model: Preview) -> dict[str, Any]:
    """Return facts of the graphs that run first; empty if there are none."""
    explained = _explained_segments(model)
    if not explained:
        return {}
    counted = [
        count
        for explanation in explained
        for step in explanation.plan.steps
        if (count := multiplications(step)) is not None
    ]
    return {
        "kernels": sum(len(explanation.program.kernels) for explanation in explained),
        "multiplications": sum(counted),
        "bytes_read": sum(explanation.traffic.read for explanation in explained),
        "bytes_written": sum(explanation.traffic.written for explanation in explained),
        "temporary_bytes": max(explanation.program.temporary_size for explanation in explained),
        "persistent_bytes": sum(explanation.program.persistent_size for explanation in explained),
    }


def _preview_json(model: Preview, device: Device) -> dict[str, Any]:
    return {
        "model": model.name,
        "adapter": str(device.adapter),
        "inputs": {name: list(shape) for name, shape in model.shapes.items()},
        "outputs": [output.name for output in model.outputs],
        "weight_bytes": model.weight_bytes,
        "unsupported": {name: list(nodes) for name, nodes in model.unsupported.items()},
        "stopped": model.stopped,
        **_preview_facts(model),
        "nodes": [placement.__dict__ for placement in model.placement],
    }


def _counted(operators: Sequence[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in Counter(operators).most_common())


def _print_preview(model: Preview, device: Device) -> None:
    facts = {name.replace("_", " "): f"{count:,}" for name, count in _preview_facts(model).items()}
    tables.facts(
        f"{model.name} on '{device.adapter}'",
        [
            ("inputs", "\n".join(f"{name} {list(shape)}" for name, shape in model.shapes.items())),
            ("outputs", "\n".join(f"{output.name} {output.shape_text}" for output in model.outputs)),
            ("operator sets", ", ".join(f"{name or 'ai.onnx'} {version}" for name, version in model.versions.items())),
            ("weights", f"{model.weight_bytes:,} bytes"),
            ("nodes", _counted(model.operators)),
            *([("in subgraphs", _counted(model.in_bodies))] if model.in_bodies else []),
            *facts.items(),
        ],
    )
    if model.unsupported:
        print()
        rows = [(name, str(len(nodes)), nodes[0]) for name, nodes in sorted(model.unsupported.items())]
        tables.table(("unsupported", "nodes", "first"), rows, right=(1,))
    if model.placement:
        print()
        nodes = [
            (
                placement.where,
                placement.op_type,
                placement.node,
                ", ".join(placement.kernels or placement.operators) or placement.why,
            )
            for placement in model.placement
            if placement.op_type != "Constant"
        ]
        tables.table(("where", "operator", "node", "kernels, or reason"), nodes)
    if model.stopped:
        print(f"\n{model.stopped}")
    if model.guessed and model.fails:
        print(f"free dimensions default to 1 ({', '.join(model.guessed)}); set them with --shape")
