#!/usr/bin/env python
"""Run PyTorch's own operator samples (OpInfo) on the dml device, against the CPU.

    scripts/torch_operators.py                                all operators in the scope, forward and gradients
    scripts/torch_operators.py --operators add mul            some of them; "nn.functional.*" is a pattern
    scripts/torch_operators.py --adapter numpy --dtype float16 --no-gradients
    scripts/torch_operators.py --table docs/pytorch-operators.md
    scripts/torch_operators.py --operators igamma --table docs/pytorch-operators.md    updates a row

Prints a line per operator that is not right, and the counts. An operator is *right* if all samples agree with the CPU,
*rejected* if the others raise NotImplementedError (or a TypeError that names a dtype), *untested* if no sample runs on
the CPU, else *wrong*. The scope excludes linalg, sparse, special and nested operators. Results of bfloat16 are compared
with those of the same operands in float32: they may err by a rounding, and by twice the largest error of the CPU's
bfloat16. Those of `matrix_exp` are compared with float64 by the same rule.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import fnmatch
import functools
import os
import re
import signal
import sys
import textwrap
import time
import warnings
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

OUTSIDE = re.compile(
    r"linalg|sparse|special|nested|masked\.|_refs|jiterator|torch\.ops|signal\.|"
    r"^(cholesky|lu|qr|svd|geqrf|ormqr|eig|logdet|pinverse|triangular_solve|cdist_complex|histogramdd)"
)
RANDOM = re.compile(
    r"rand|dropout|bernoulli|multinomial|normal|^empty|new_empty|uniform|exponential|cauchy|geometric|fractional|rrelu"
)
ORDERING = {"argsort", "mode", "msort", "sort", "topk"}
"""Operators that may order equal elements, or choose among them, in any way: samples whose elements become equal in a
dtype are excluded."""

HOST_ARGUMENTS = {"tensor_split"}
"""Operators whose tensors other than the input are on the CPU for any device."""

INEXACT = {"matrix_exp"}
"""Operators whose float32 results are inexact on the CPU as well: their errors depend on the largest element."""

DTYPES = ("float32", "int64", "bool", "float16", "complex64")
STATUSES = ("wrong", "rejected", "untested", "right")
TIMEOUT = 120  # seconds of CPU time per operator, whatever else the machine does


def main() -> int:
    """Run the samples; 0 if nothing is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operators", nargs="+", default=["*"], metavar="NAME", help="names or patterns; default all")
    parser.add_argument("--adapter", default="numpy", help="adapter; default numpy")
    parser.add_argument("--dtype", help="dtype of the samples; default float32, else the first that an operator has")
    parser.add_argument("--gradients", action=argparse.BooleanOptionalAction, default=True, help="also gradients")
    parser.add_argument("--samples", type=int, default=0, metavar="N", help="at most N samples per operator")
    parser.add_argument("--repeats", type=int, default=2, metavar="N", help="calls per sample; default 2")
    parser.add_argument("--table", type=Path, metavar="FILE", help="write a table in Markdown")
    parser.add_argument("--verbose", action="store_true", help="print every reason, not the first")
    options = parser.parse_args()
    os.environ["DMLGPU_ADAPTER"] = options.adapter
    warnings.simplefilter("ignore")
    results = [run(info, options) for info in chosen(options.operators)]
    counts = collections.Counter(result["status"] for result in results)
    total = len(results)
    for status in STATUSES:
        print(f"{status:8}{counts[status]:5} of {total} ({100 * counts[status] / max(total, 1):.1f} %)")
    if options.table:
        write_table(options.table, results, options)
    return 1 if counts["wrong"] else 0


def chosen(patterns: list[str]) -> list[Any]:
    """The operators of the scope whose name matches a pattern."""
    from torch.testing._internal.common_methods_invocations import op_db  # noqa: PLC0415

    return [
        info
        for info in op_db
        if not OUTSIDE.search(info.name) and any(fnmatch.fnmatchcase(info.name, pattern) for pattern in patterns)
    ]


def run(info: Any, options: Any) -> dict[str, Any]:
    """Run all samples of an operator, and print what is not right."""
    name = f"{info.name}.{info.variant_test_name}" if info.variant_test_name else info.name
    start = time.perf_counter()
    forward, gradient = collections.Counter[str](), collections.Counter[str]()
    reasons: list[str] = []
    signal.signal(signal.SIGPROF, _expire)
    signal.setitimer(signal.ITIMER_PROF, TIMEOUT)
    try:
        for sample in samples_of(info, options):
            for kind, counter, reason in try_sample(info, sample, options):
                (forward if kind == "forward" else gradient)[counter] += 1
                if reason:
                    reasons.append(f"{kind}: {counter}: {reason}")
    except Exception as error:  # the CPU's, or the samples' own
        forward["wrong"] += 1
        reasons.append(f"samples: {type(error).__name__}: {error}")
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    both = forward + gradient
    status = next((status for status in ("wrong", "rejected", "right") if both[status]), "untested")
    worst = [reason for reason in reasons if ": wrong:" in reason] + reasons
    if status != "right":
        for reason in worst if options.verbose else worst[:1]:
            print(f"{status:8}{name:40} {' '.join(reason.split())[:300]}", flush=True)
    return {
        "name": name,
        "status": status,
        "forward": forward,
        "gradient": gradient,
        "reason": worst[0] if worst else "",
        "seconds": time.perf_counter() - start,
    }


def _expire(*_: Any) -> None:
    raise TimeoutError(f"more than {TIMEOUT} s of CPU time")


def samples_of(info: Any, options: Any) -> list[Any]:
    """The operator's samples on the CPU."""
    import torch  # noqa: PLC0415

    supported = info.supported_dtypes("cpu")
    names = (options.dtype,) if options.dtype else DTYPES
    dtype = next((getattr(torch, name) for name in names if getattr(torch, name) in supported), None)
    if dtype is None:
        return []
    has_gradients = dtype.is_floating_point or dtype.is_complex
    differentiable = options.gradients and has_gradients and info.supports_autograd
    torch.manual_seed(0)
    samples = list(info.sample_inputs("cpu", dtype, requires_grad=differentiable))
    if info.name in ORDERING and options.dtype:
        samples = [sample for sample in samples if len(sample.input.unique()) == sample.input.numel()]
    if info.name == "nn.functional.linear_cross_entropy" and options.dtype:
        # by default, PyTorch sums its chunks in float32 on a CPU, and in the input's dtype on a device it does not know
        for sample in samples:
            if "options" in sample.kwargs:
                sums = {"acc_policy": "accurate", "acc_dtype": torch.float32}
                sample.kwargs["options"] = dataclasses.replace(sample.kwargs["options"], **sums)
    return samples[: options.samples] if options.samples else samples


def try_sample(info: Any, sample: Any, options: Any) -> list[tuple[str, str, str]]:
    """Run a sample on both devices: a list of (forward or gradient, right, wrong or refused, reason)."""
    import torch  # noqa: PLC0415

    import dmlgpu.torch  # noqa: F401, PLC0415

    try:
        expected_inputs = sample.transform(_copied)
        expected = info(expected_inputs.input, *expected_inputs.args, **expected_inputs.kwargs)
        dtypes = dtypes_of(sample)
        narrow = torch.bfloat16 if torch.bfloat16 in dtypes else torch.float32 if info.name in INEXACT else None
        wide_inputs = sample.transform(functools.partial(_widened, narrow=narrow))
        wide = expected
        if narrow in dtypes:
            wide = info(wide_inputs.input, *wide_inputs.args, **wide_inputs.kwargs)
        inputs = moved(sample, info)
        if tensors(expected) and not tensors(inputs):
            inputs.kwargs["device"] = "dml"  # some samples of functions that create tensors do not name a device
    except TypeError as error:
        return [("forward", "rejected", str(error))] if "dml device" in str(error) else []
    except (RuntimeError, NotImplementedError):
        return []  # the CPU rejects it as well
    results: list[tuple[str, str, str]] = []
    drops = "attention" in info.name and (inputs.kwargs.get("dropout_p") or inputs.kwargs.get("training"))
    is_random = bool(RANDOM.search(info.name) or drops)
    try:
        for _ in range(options.repeats):  # later calls repeat what the first one executed
            actual = info(inputs.input, *inputs.args, **inputs.kwargs)
        compare(actual, expected, wide, is_random)
        results.append(("forward", "right", ""))
    except Exception as error:
        return [("forward", *_verdict(error))]
    leaves = [x for x in tensors(inputs) if x.requires_grad and x.is_leaf]
    outputs = [x for x in tensors(actual) if x.requires_grad]
    if not leaves or not outputs or is_random or not options.gradients:
        return results
    generator = torch.Generator().manual_seed(1)
    cotangents = [torch.randn(x.shape, generator=generator).to(x.dtype) for x in outputs]
    try:
        expected_gradients = gradients_of(expected, expected_inputs, cotangents)
        wide_gradients = expected_gradients if wide is expected else gradients_of(wide, wide_inputs, cotangents)
    except RuntimeError:
        return results
    try:
        gradients = torch.autograd.grad(outputs, leaves, [x.to("dml") for x in cotangents], allow_unused=True)
        compare(gradients, expected_gradients, wide_gradients, False)
        results.append(("gradient", "right", ""))
    except Exception as error:
        results.append(("gradient", *_verdict(error)))
    return results


def gradients_of(outputs: Any, inputs: Any, cotangents: list[Any]) -> Any:
    """The gradients of an operator's inputs on the CPU."""
    import torch  # noqa: PLC0415

    results = [x for x in tensors(outputs) if x.requires_grad]
    return torch.autograd.grad(
        results,
        [x for x in tensors(inputs) if x.requires_grad and x.is_leaf],
        [cotangent.to(x.dtype) for cotangent, x in zip(cotangents, results, strict=True)],
        allow_unused=True,
    )


def _widened(value: Any, narrow: Any) -> Any:
    """A leaf of its own on the CPU, in float32 instead of bfloat16, or in float64 instead of float32; so is a dtype."""
    import torch  # noqa: PLC0415

    copy, wide = _copied(value), torch.float32 if narrow is torch.bfloat16 else torch.float64
    if isinstance(value, torch.Tensor) and value.dtype is narrow:
        return copy.detach().to(wide).requires_grad_(value.requires_grad)
    if value is narrow and narrow is not None:
        return wide
    return copy


def moved(sample: Any, info: Any) -> Any:
    """The sample on the device."""
    import torch  # noqa: PLC0415

    def on_device(value: Any) -> Any:
        return "dml" if value == "cpu" or value == torch.device("cpu") else value

    inputs = sample.transform(lambda value: _copied(value, "dml"))
    args = sample.transform(_copied).args if info.name in HOST_ARGUMENTS else inputs.args
    inputs.args = tuple(on_device(value) if isinstance(value, str | torch.device) else value for value in args)
    inputs.kwargs = {name: "dml" if name == "device" else value for name, value in inputs.kwargs.items()}
    return inputs


def _copied(value: Any, device: str = "cpu") -> Any:
    """A leaf of its own on a device; the device's name for devices."""
    import torch  # noqa: PLC0415

    if isinstance(value, torch.Tensor):
        return value.detach().clone().to(device).requires_grad_(value.requires_grad)
    return torch.device(device) if isinstance(value, torch.device) else value


def _verdict(error: Exception) -> tuple[str, str]:
    if isinstance(error, NotImplementedError) or "the dml device does not support" in str(error):
        return "rejected", str(error)
    return "wrong", f"{type(error).__name__}: {error}"


def tensors(value: Any) -> list[Any]:
    """All tensors in a sample, or in nested results."""
    import torch  # noqa: PLC0415

    return [leaf for leaf in leaves_of(value) if isinstance(leaf, torch.Tensor)]


def dtypes_of(sample: Any) -> set[Any]:
    """The dtypes of a sample's tensors, and those that it passes."""
    import torch  # noqa: PLC0415

    return {x.dtype for x in tensors(sample)} | {x for x in leaves_of(sample) if isinstance(x, torch.dtype)}


def leaves_of(value: Any) -> list[Any]:
    """All values in a sample, or in nested results."""
    from torch.utils._pytree import tree_leaves  # noqa: PLC0415

    if hasattr(value, "kwargs") and hasattr(value, "args"):
        value = (value.input, value.args, value.kwargs)
    return tree_leaves(value)  # type: ignore[no-any-return]


def compare(actual: Any, expected: Any, wide: Any, only_shapes: bool) -> None:
    """Compare nested results: number, dtype, shape, device and values; those that differ in `wide` with it."""
    import torch  # noqa: PLC0415
    from torch.utils._pytree import tree_leaves  # noqa: PLC0415

    for ours, theirs, exact in zip(*map(tree_leaves, (actual, expected, wide)), strict=True):
        if not isinstance(theirs, torch.Tensor):
            if not only_shapes and not isinstance(theirs, torch.device):
                assert type(ours) is type(theirs) and (ours == theirs or ours != ours), f"{ours} instead of {theirs}"  # noqa: PLR0124
            continue
        assert ours.device.type == "dml", f"the result is on {ours.device}"
        assert ours.dtype == theirs.dtype, f"dtype {ours.dtype} instead of {theirs.dtype}"
        assert ours.shape == theirs.shape, f"shape {list(ours.shape)} instead of {list(theirs.shape)}"
        if only_shapes:
            continue
        if wide is not expected:
            compare_rounded(ours.detach().cpu(), theirs.detach(), exact.detach())
            continue
        half = ours.dtype in {torch.float16, torch.bfloat16}
        torch.testing.assert_close(
            ours.detach().cpu(),
            theirs.detach(),
            rtol=2e-2 if half else 1e-4,
            atol=1e-2 if half else 1e-4,
            equal_nan=True,
        )


def compare_rounded(ours: Any, theirs: Any, exact: Any) -> None:
    """Check that a result errs by a rounding, and twice the largest error of the CPU's, at most."""
    import torch  # noqa: PLC0415

    rounding = 2.0**-7 if theirs.dtype is torch.bfloat16 else 1e-4
    ours, theirs, exact = (x.double() for x in (ours, theirs, exact.to(theirs.dtype)))
    errors, others = (torch.where(x == exact, 0, x - exact).abs() for x in (ours, theirs))
    finite = others[others.isfinite()]
    allowed = rounding * exact.abs() + 1e-4 + (2 * finite.max() if finite.numel() else 0)
    is_right = (errors <= allowed) | (ours.isnan() & exact.isnan()) | (ours == theirs) | (ours.isnan() & theirs.isnan())
    if not is_right.all():
        place = torch.where(is_right, 0, errors.nan_to_num()).argmax()
        got, cpu, best = (x.reshape(-1)[place].item() for x in (ours, theirs, exact))
        raise AssertionError(f"{got} instead of {best}, the CPU has {cpu}, of {list(ours.shape)}")


def write_table(path: Path, results: list[dict[str, Any]], options: Any) -> None:
    """Write a row per operator; a run of some operators updates their rows in a table that exists."""
    rows: dict[str, str] = {}
    if options.operators != ["*"] and path.exists():
        lines = path.read_text(encoding="utf-8").splitlines()
        rows = {line.split("`")[1]: line for line in lines if line.startswith("| `")}
    for result in results:
        forward, gradient = result["forward"], result["gradient"]
        cells = [f"`{result['name']}`", str(sum(forward.values())), _cell(forward), _cell(gradient)]
        if result["status"] != "right":
            cells.insert(1, _reason(result["reason"]))
        rows[result["name"]] = f"| {' | '.join(cells)} |"
    path.write_text(page(rows, options.adapter), encoding="utf-8")


def page(rows: dict[str, str], adapter: str) -> str:
    """Return the page of these rows by operator: the right ones last, and folded."""
    by_status: dict[str, list[str]] = {status: [] for status in STATUSES}
    for row in rows.values():
        by_status[_status(row)].append(row)
    wrong, rejected, untested, right = by_status.values()
    lines = [
        "# PyTorch's operator tests",
        "",
        "PyTorch tests its operators on samples (OpInfo). `scripts/torch_operators.py` runs them on the device "
        f"`dml` and on the CPU, forward and gradients, and writes this page. Adapter: `{adapter}`. The scope "
        "excludes linalg, sparse, special and nested operators.",
        "",
        f"Of {len(rows)} operators, {len(right)} are right in all samples, {len(rejected)} are rejected in some with "
        f"NotImplementedError, and {len(wrong)} are wrong in some, or take more than {TIMEOUT} s of CPU time. "
        f"{len(untested)} have no sample that runs on the CPU.",
        "",
    ]
    for title, listed in (("Wrong", wrong), ("Rejected", rejected), ("Untested", untested)):
        if listed:
            columns = "| operator | first reason | samples | forward | gradient |", "|---|---|--:|---|---|"
            lines += [f"## {title}", "", *columns, *listed, ""]
    lines += ["## Right", "", '<details markdown="1">', f"<summary>{len(right)} operators</summary>", ""]
    lines += ["| operator | samples | forward | gradient |", "|---|--:|---|---|", *right, "", "</details>"]
    return "\n".join(lines) + "\n"


def _reason(text: str) -> str:
    """Return a reason for a table, without what its row and all rows say."""
    text = re.sub(r"^(forward|gradient): rejected: |; (DMLGPU_TORCH_FALLBACK|x\.to\().*", "", " ".join(text.split()))
    return textwrap.shorten(text, 160, placeholder=" ...").replace("|", "\\|") or "no sample runs on the CPU"


def _status(row: str) -> str:
    """Return the status that the last two cells of a row show."""
    text = "".join(row.split("|")[-3:-1])
    return next((status for status in ("wrong", "rejected", "right") if status in text), "untested")


def _cell(counter: collections.Counter[str]) -> str:
    if not counter:
        return "-"
    if set(counter) == {"right"}:
        return "right"
    return ", ".join(f"{count} {status}" for status, count in sorted(counter.items()))


if __name__ == "__main__":
    sys.exit(main())
