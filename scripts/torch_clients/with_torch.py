"""Rows of PyTorch itself: training, checkpoints, mixed precision, compilation, dtypes."""

from __future__ import annotations

import copy
import functools
import io
import itertools
import tempfile
from collections.abc import Callable
from typing import Any

from torch_clients.rows import row

PYTORCH = "PyTorch"


def _network(device: str) -> Any:
    import torch  # noqa: PLC0415

    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4)).to(device)


def _batch(device: str) -> Any:
    import torch  # noqa: PLC0415

    return torch.randn(16, 8).to(device), torch.randint(4, (16,)).to(device)


def train(model: Any, optimizer: Any, batch: Any, steps: int = 5, scheduler: Any = None) -> list[float]:
    """Return the losses of some steps on one batch."""
    import torch  # noqa: PLC0415

    x, target = batch
    losses = []

    def closure() -> Any:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), target)
        loss.backward()
        return loss

    for _ in range(steps):
        losses.append(float(optimizer.step(closure).detach()))
        if scheduler is not None:
            scheduler.step()
    return losses


OPTIMIZERS: dict[str, dict[str, Any]] = {
    "AdamW": {},
    "AdamW foreach": {"foreach": True},
    "AdamW fused": {"fused": True},
    "SGD": {"lr": 0.1, "momentum": 0.9},
    "NAdam": {},
    "RAdam": {},
    "Adafactor": {},
    "RMSprop": {},
    "Adagrad": {},
    "Adamax": {},
    "LBFGS": {"max_iter": 2},
}
"""Options by optimizer, whose first word is the name of the class."""


def _optimize(device: str, *, name: str, options: dict[str, Any]) -> Any:
    import torch  # noqa: PLC0415

    model = _network(device)
    if options.get("fused") and device == "cpu":
        options = {}
    return train(model, getattr(torch.optim, name.split(maxsplit=1)[0])(model.parameters(), **options), _batch(device))


for _name, _options in OPTIMIZERS.items():
    row(PYTORCH, f"optimizer {_name}")(functools.partial(_optimize, name=_name, options=_options))


@row(PYTORCH, "optimizer Muon (orthogonalizes in bfloat16)", tolerance=2e-2)
def muon(device: str) -> Any:
    """Train two matrices."""
    import torch  # noqa: PLC0415

    layers = [torch.nn.Linear(8, 16, bias=False), torch.nn.Linear(16, 4, bias=False)]
    model = torch.nn.Sequential(*layers).to(device)
    return train(model, torch.optim.Muon(model.parameters()), _batch(device))


@row(PYTORCH, "OneCycleLR, clipped gradients, EMA (AveragedModel)")
def schedule(device: str) -> Any:
    """Train with a schedule and an average."""
    import torch  # noqa: PLC0415

    model = _network(device)
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=6)
    losses = train(model, optimizer, _batch(device), scheduler=scheduler)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
    average.update_parameters(model)
    return losses, list(average.parameters())


@row(PYTORCH, "checkpoint: save on the device, load there and on the CPU, go on training")
def checkpoint(device: str) -> Any:
    """Train, save model and optimizer, load both, train on."""
    import torch  # noqa: PLC0415

    model = _network(device)
    optimizer, batch = torch.optim.AdamW(model.parameters(), lr=0.01), _batch(device)
    losses = train(model, optimizer, batch)
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    for where in (device, "cpu"):
        file.seek(0)
        saved = torch.load(file, map_location=where)
        again = _network(where)
        again.load_state_dict(saved["model"])
        optimizer = torch.optim.AdamW(again.parameters(), lr=0.01)
        optimizer.load_state_dict(saved["optimizer"])
        losses += train(again, optimizer, [x.to(where) for x in batch])
    return losses, list(copy.deepcopy(model).cpu().parameters())


def _recurrent(device: str) -> Any:
    import torch  # noqa: PLC0415

    class Model(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.lstm = torch.nn.LSTM(8, 16, 2, batch_first=True, bidirectional=True)
            self.gru = torch.nn.GRU(32, 16, batch_first=True)
            self.encoder = torch.nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
            self.last = torch.nn.Linear(16, 4)

        def forward(self, x: Any) -> Any:
            return self.last(self.encoder(self.gru(self.lstm(x)[0])[0]).mean(1))

    return Model().to(device)


@row(PYTORCH, "LSTM, GRU and TransformerEncoderLayer, trained", tolerance=1e-3)
def recurrent(device: str) -> Any:
    """Train three kinds of layers on sequences."""
    import torch  # noqa: PLC0415

    model = _recurrent(device)
    batch = torch.randn(4, 6, 8).to(device), torch.randint(4, (4,)).to(device)
    return train(model, torch.optim.SGD(model.parameters(), lr=0.1), batch, 3)


@row(PYTORCH, "DataLoader with two workers, pin_memory, non_blocking")
def loader(device: str) -> Any:
    """Sum the batches of a data set."""
    import torch  # noqa: PLC0415

    data = torch.utils.data.TensorDataset(torch.arange(24.0).reshape(12, 2))
    batches = torch.utils.data.DataLoader(data, batch_size=5, num_workers=2, pin_memory=True)
    return [x.to(device, non_blocking=True).sum() for (x,) in batches]


@row(PYTORCH, "DataLoader(generator=torch.Generator(device)), randperm")
def generators(device: str) -> Any:
    """Draw twice with one seed; return whether the numbers are equal."""
    import torch  # noqa: PLC0415

    generator = torch.Generator(device)

    def draw() -> Any:
        generator.manual_seed(7)
        numbers = torch.randn(5, device=device, generator=generator), torch.rand(5, device=device, generator=generator)
        return [x.tolist() for x in numbers]

    data = torch.utils.data.DataLoader(list(range(8)), shuffle=True, generator=generator)
    order = [int(x) for x in data]
    return draw() == draw(), sorted(order)


@row(PYTORCH, "torch.compile of a network")
def compiled(device: str) -> Any:
    """Compile the forward pass, for two batch sizes."""
    import torch  # noqa: PLC0415

    model = _network(device)
    fast = torch.compile(model, backend="dmlgpu" if device == "dml" else "eager")
    with torch.no_grad():
        return [fast(torch.randn(size, 8).to(device)) for size in (3, 5)]


@row(PYTORCH, "torch.compile of a training step")
def compiled_step(device: str) -> Any:
    """Compile loss, gradients and optimizer as one function."""
    import torch  # noqa: PLC0415

    model, (x, target) = _network(device), _batch(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    def step() -> Any:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), target)
        loss.backward()
        optimizer.step()
        return loss.detach()

    fast = torch.compile(step, backend="dmlgpu") if device == "dml" else step
    return [float(fast()) for _ in range(4)]


@row(PYTORCH, "torch.export and back")
def exported(device: str) -> Any:
    """Export a network, and run the program."""
    import torch  # noqa: PLC0415

    model, x = _network("cpu").eval(), torch.randn(2, 8)
    program = torch.export.export(model, (x,))
    if device == "cpu":
        return program.module()(x)
    import dmlgpu.torch  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder:
        torch.export.save(program, f"{folder}/model.pt2")
        return dmlgpu.torch.load(f"{folder}/model.pt2")(x.numpy())


@row(PYTORCH, "autocast to float16 and GradScaler, with batch normalization", tolerance=2e-2)
def autocast(device: str) -> Any:
    """Train a convolution with batch normalization; on the CPU in float32."""
    import torch  # noqa: PLC0415

    layers = torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1)
    model = torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(8, 4)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler(device, enabled=device != "cpu")
    x, target = torch.randn(4, 3, 8, 8).to(device), torch.randint(4, (4,)).to(device)
    losses = []
    for _ in range(3):
        with torch.autocast(device, torch.float16, enabled=device != "cpu"):
            loss = torch.nn.functional.cross_entropy(model(x), target)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(float(loss))
    return losses


def _in_dtype(device: str, *, dtype: str, function: Callable[[Any], Any]) -> Any:
    import torch  # noqa: PLC0415

    return function(torch.randn(4, 6).to(getattr(torch, dtype)).to(device))


for _dtype, (_words, _function) in itertools.product(
    ("bfloat16", "float64"),
    {
        "arithmetic": lambda x: (x * 2 + 1) / (x.abs() + 1),
        "matrix product and softmax": lambda x: (x @ x.T).softmax(-1),
        "sums and norms": lambda x: (x.sum(0), x.mean(), x.norm()),
    }.items(),
):
    row(PYTORCH, f"{_dtype}: {_words}", tolerance=1e-2 if _dtype == "bfloat16" else 1e-12)(
        functools.partial(_in_dtype, dtype=_dtype, function=_function)
    )


@row(PYTORCH, "complex numbers: view_as_complex, polar, products")
def complex_numbers(device: str) -> Any:
    """Rotate pairs, as rotary embeddings of Llama 4 and Qwen-Image do."""
    import torch  # noqa: PLC0415

    x, angles = torch.randn(2, 3, 4, 2).to(device), torch.rand(3, 4).to(device)
    rotation = torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(torch.view_as_complex(x) * rotation)


@row(PYTORCH, "stft and istft", tolerance=1e-4)
def spectrum(device: str) -> Any:
    """Transform a signal and back."""
    import torch  # noqa: PLC0415

    window = torch.hann_window(32).to(device)
    spectra = torch.stft(torch.randn(2, 200).to(device), 32, 8, window=window, return_complex=True)
    return spectra.abs(), torch.istft(spectra, 32, 8, window=window)


@row(PYTORCH, "labels out of range raise an error")
def labels(device: str) -> Any:
    """Return whether cross_entropy and embedding raise for indices out of range."""
    import torch  # noqa: PLC0415

    def raises(function: Callable[[], Any]) -> bool:
        try:
            function()
        except (IndexError, RuntimeError):
            return True
        return False

    logits, label = torch.zeros(2, 3).to(device), torch.tensor([1, 7]).to(device)
    table, index = torch.zeros(4, 2).to(device), torch.tensor([5]).to(device)
    return (
        raises(lambda: torch.nn.functional.cross_entropy(logits, label).item()),
        raises(lambda: torch.nn.functional.embedding(index, table).cpu()),
    )


@row(PYTORCH, "timing by events, streams, memory statistics")
def accelerator(device: str) -> Any:
    """Return whether the time between two events is positive."""
    import torch  # noqa: PLC0415

    if device == "cpu":
        return True
    start, end = (torch.Event(device, enable_timing=True) for _ in range(2))
    with torch.Stream(device) as stream:
        start.record()
        x = torch.ones(64, 64, device=device)
        (x @ x).record_stream(stream)
        end.record()
        stream.synchronize()
    assert torch.accelerator.memory_stats()["allocated_bytes.all.peak"] > 0
    return start.elapsed_time(end) > 0
