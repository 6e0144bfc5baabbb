"""Runs PyTorch's device on the adapter of DMLGPU_ADAPTER: views, writes at any offset, kernels of calls, training, two
adapters."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

import dmlgpu.torch  # noqa: F401 - registers the device
from dmlgpu.frontends.torch.adapters import all_adapters
from dmlgpu.runtime.adapters import why_unusable
from dmlgpu.tensors.recorded_call import RecordedCall
from tests.unit.frontends.torch import torch_programs as programs

KINDS = ("slice", "select", "transpose", "unsqueeze", "expand", "flatten", "diagonal", "unfold", "narrow")


def check_views(rounds: int) -> None:
    """Views of random tensors, and writes through them, against the CPU."""
    source = random.Random(1)
    for index in range(rounds):
        shape = tuple(source.randint(1, 5) for _ in range(source.randint(1, 4)))
        dtype = programs.DTYPES[index % len(programs.DTYPES)]
        steps = [(source.choice(KINDS), *(source.randrange(8) for _ in range(4))) for _ in range(3)]
        host = programs.numbers(shape, dtype)
        base = host.to("dml")
        theirs, ours = programs.views(host, steps), programs.views(base, steps)
        assert torch.equal(ours.cpu(), theirs), (shape, dtype, steps)
        if programs.may_overlap(theirs):
            continue
        values = programs.numbers(tuple(theirs.shape), dtype, seed=1)
        theirs.copy_(values)
        ours.copy_(values.to("dml"))
        assert torch.equal(base.cpu(), host), (shape, dtype, steps)


def _fill(x: torch.Tensor, index: Any) -> None:
    x[index] = 2.0


CALLS_OF_ONE_KERNEL: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "layer_norm": lambda x, w: functional.layer_norm(x, (4,), w, w),
    "group_norm": lambda x, w: functional.group_norm(x, 2, w, w),
    "rms_norm": lambda x, w: functional.rms_norm(x, (4,), w),
    "scaled_dot_product_attention": lambda x, w: functional.scaled_dot_product_attention(*[x[None, None]] * 3),
    "full": lambda x, w: torch.full((4, 4), 2.5, device="dml"),
    "a number into a view": lambda x, w: _fill(x, 0),
    "fill_ of a view": lambda x, w: x[:2].fill_(2.0),
    "zero_ of a view": lambda x, w: x[:2].zero_(),
}


def check_kernels() -> None:
    """Repeated calls of one kernel, by their names: also with 16 bits, and normalizations with gradients."""
    kernels = 0
    run = RecordedCall.run

    def counted(call: RecordedCall, *args: Any, **kwargs: Any) -> Any:
        nonlocal kernels
        kernels += sum(len(prepared.executable.program.kernels) for prepared, _ in call.steps)
        return run(call, *args, **kwargs)

    RecordedCall.run = counted  # type: ignore[method-assign]
    for name, call in CALLS_OF_ONE_KERNEL.items():
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            for needs_gradient in (False, dtype is torch.float32 and name in {"layer_norm", "group_norm"}):
                x, weight = (torch.rand(shape).to("dml", dtype) for shape in ((4, 4), (4,)))
                weight.requires_grad_(needs_gradient)
                for _ in range(2):
                    call(x, weight)
                kernels = 0
                call(x, weight)
                assert kernels == 1, (name, dtype, needs_gradient, kernels)
    RecordedCall.run = run  # type: ignore[method-assign]


def losses(device: str) -> list[float]:
    """Losses of a small network's first steps."""
    torch.manual_seed(0)
    model: Any = torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.LayerNorm(8), torch.nn.Linear(8, 3)
    )
    x, y = torch.randn(16, 4), torch.randint(0, 3, (16,))
    model, x, y = model.to(device), x.to(device), y.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    results = []
    for _ in range(12):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        results.append(loss.detach())
    return [loss.item() for loss in results]


def check_two_adapters() -> None:
    """A tensor goes to each adapter on which a device can be created, and back."""
    x = torch.arange(6.0).reshape(2, 3)
    known = all_adapters()
    assert len(known) == torch.dml.device_count()
    for index in [index for index, info in enumerate(known) if not why_unusable(info)]:
        y = x.to("dml:0").to(f"dml:{index}")
        y[:, 1] += 2
        assert y.device.index == index and torch.equal(y.cpu(), x + torch.tensor([0.0, 2.0, 0.0]))


def check_fork() -> None:
    """A forked process gets an exception, and its parent continues."""
    x = torch.ones(2, device="dml")
    child = os.fork()
    if not child:
        refused = 0
        for call in (lambda: x + x, lambda: torch.ones(2, device="dml")):
            try:
                call()
            except torch.AcceleratorError as error:
                refused += "fork" in str(error)
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
    assert (x + x).tolist() == [2, 2]


class Batches(torch.utils.data.Dataset[torch.Tensor]):
    """Four numbers, each of which goes through a device."""

    def __init__(self, device: str):
        self.device = device

    def __len__(self) -> int:
        return 4

    def __getitem__(self, number: int) -> torch.Tensor:
        return torch.tensor(float(number)).to(self.device).cpu()


def check_workers() -> None:
    """Forked workers of a DataLoader prepare batches on the CPU, and cannot use the parent's device."""
    options: dict[str, Any] = {"batch_size": 2, "num_workers": 1, "multiprocessing_context": "fork", "timeout": 300}
    batches = list(torch.utils.data.DataLoader(Batches("cpu"), **options))
    assert [batch.to("dml").tolist() for batch in batches] == [[0, 1], [2, 3]]
    try:
        list(torch.utils.data.DataLoader(Batches("dml"), **options))
    except torch.AcceleratorError as error:
        assert "GPU drivers are not fork-safe" in str(error)
    else:
        raise AssertionError("a forked worker used its parent's device")


def main() -> None:
    check_views(int(sys.argv[1]))
    check_kernels()
    torch.testing.assert_close(losses("dml"), losses("cpu"), rtol=1e-4, atol=1e-5)
    check_two_adapters()
    if hasattr(os, "fork"):
        check_fork()
        check_workers()
    print("as the CPU on", torch.dml.device_name(0))


if __name__ == "__main__":
    main()
