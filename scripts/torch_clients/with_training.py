"""Rows of libraries that train: Lightning, fastai, Keras, Stable-Baselines3, torchmetrics."""

from __future__ import annotations

import importlib
import os
from typing import Any

from torch_clients.rows import row


def _data() -> Any:
    import torch  # noqa: PLC0415

    x = torch.randn(64, 8)
    return torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))


@row("Lightning", 'Trainer, with `SingleDeviceStrategy(device="dml")`: two epochs', "lightning")
def lightning(device: str) -> Any:
    """Train; the strategy names the device, since Lightning lists no device of other packages."""
    import lightning  # noqa: PLC0415
    import torch  # noqa: PLC0415
    from lightning.pytorch.accelerators import CPUAccelerator  # noqa: PLC0415
    from lightning.pytorch.strategies import SingleDeviceStrategy  # noqa: PLC0415

    class Regression(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.network = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 1))
            self.losses: list[Any] = []

        def training_step(self, batch: Any, index: int) -> Any:
            loss = torch.nn.functional.mse_loss(self.network(batch[0]), batch[1])
            self.losses.append(loss.detach())
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), 1e-2)

    class AnyDevice(CPUAccelerator):
        def setup_device(self, device: torch.device) -> None:
            """Accept every device."""

    strategy = SingleDeviceStrategy(device=torch.device(device), accelerator=AnyDevice())
    quiet: dict[str, Any] = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    module = Regression()
    trainer = lightning.Trainer(max_epochs=2, strategy=strategy, gradient_clip_val=1.0, **quiet)
    trainer.fit(module, torch.utils.data.DataLoader(_data(), batch_size=16))
    assert module.losses[0].device.type == device
    return module.losses


@row("fastai", 'DataLoaders(device="dml"), fit_one_cycle', "fastai")
def fastai(device: str) -> Any:
    """Train an epoch."""
    import torch  # noqa: PLC0415
    from fastai.data.core import DataLoaders  # noqa: PLC0415
    from fastai.data.load import DataLoader  # noqa: PLC0415
    from fastai.learner import Learner  # noqa: PLC0415

    for name in ("progress", "schedule"):
        importlib.import_module(f"fastai.callback.{name}")  # adds methods to learners
    items = list(_data())
    loaders = DataLoaders(DataLoader(items, bs=16), DataLoader(items, bs=16), device=torch.device(device))
    learner = Learner(loaders, torch.nn.Sequential(torch.nn.Linear(8, 1)), loss_func=torch.nn.functional.mse_loss)
    with learner.no_bar(), learner.no_logging():
        learner.fit_one_cycle(1)
    return list(learner.model.parameters())


@row("Keras", 'KERAS_BACKEND=torch, `keras.device("dml")`: convolutions trained', "keras", tolerance=1e-3)
def keras(device: str) -> Any:
    """Train a convolutional network."""
    os.environ["KERAS_BACKEND"] = "torch"
    import keras  # noqa: PLC0415
    import numpy as np  # noqa: PLC0415

    numbers = np.random.default_rng(0)
    x, y = (numbers.random(shape, np.float32) for shape in ((32, 8, 8, 3), (32, 1)))
    with keras.device(device):
        layers = keras.layers
        convolution = [layers.Conv2D(4, 3), layers.BatchNormalization(), layers.ReLU(), layers.MaxPooling2D()]
        model = keras.Sequential([layers.Input((8, 8, 3)), *convolution, layers.Flatten(), layers.Dense(1)])
        # Devices draw different numbers for a seed.
        model.set_weights([numbers.random(values.shape, np.float32) for values in model.get_weights()])
        model.compile("adam", "mse")
        losses = model.fit(x, y, epochs=2, batch_size=16, shuffle=False, verbose=0).history["loss"]
        return [losses, model.predict(x, verbose=0)]


@row("Stable-Baselines3", "PPO, DQN and SAC learn; a policy evaluates actions", "stable_baselines3")
def reinforcement(device: str) -> Any:
    """Learn for some steps. Only what no drawn action has changed is compared, since devices draw different numbers."""
    import torch  # noqa: PLC0415
    from stable_baselines3 import DQN, PPO, SAC  # noqa: PLC0415

    proximal = PPO("MlpPolicy", "CartPole-v1", device=device, n_steps=64, n_epochs=1, seed=0)
    observations, actions = torch.randn(8, 4).to(device), torch.arange(8).remainder(2).to(device)
    evaluated = [value.detach().clone() for value in proximal.policy.evaluate_actions(observations, actions)]
    models = [
        proximal.learn(64),
        DQN("MlpPolicy", "CartPole-v1", device=device, learning_starts=10, seed=0).learn(20),
        SAC("MlpPolicy", "Pendulum-v1", device=device, learning_starts=10, seed=0).learn(14),
    ]
    finite = [all(bool(p.isfinite().all()) for p in model.policy.parameters()) for model in models]
    return [evaluated, [model.num_timesteps for model in models], finite]


@row("torchmetrics", "classification, regression, pictures", "torchmetrics")
def metrics(device: str) -> Any:
    """Compute metrics of random predictions."""
    import torch  # noqa: PLC0415
    import torchmetrics  # noqa: PLC0415

    classes = {"task": "multiclass", "num_classes": 5}
    names = "Accuracy", "F1Score", "AUROC", "ConfusionMatrix", "CalibrationError", "AveragePrecision"
    p, target = torch.rand(64, 5).softmax(1).to(device), torch.randint(5, (64,)).to(device)
    x, y, z = torch.randn(3, 64).to(device)
    pictures = torch.rand(2, 2, 3, 64, 64).to(device)
    return [
        *(getattr(torchmetrics, name)(**classes).to(device)(p, target) for name in names),
        torchmetrics.PearsonCorrCoef().to(device)(x, y),
        torchmetrics.SpearmanCorrCoef().to(device)(x, y),
        torchmetrics.R2Score().to(device)(x + y, x),
        torchmetrics.ExplainedVariance().to(device)(x + z, x),
        torchmetrics.image.PeakSignalNoiseRatio(data_range=1.0).to(device)(*pictures),
        torchmetrics.image.StructuralSimilarityIndexMeasure().to(device)(*pictures),
    ]
