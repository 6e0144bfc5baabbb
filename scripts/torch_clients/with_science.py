"""Rows of libraries for graphs, medicine, Gaussian processes and differential equations."""

from __future__ import annotations

from typing import Any

from torch_clients.rows import row


def _with_gradient(module: Any, *inputs: Any) -> list[Any]:
    """Return the result and all gradients in one tensor: those of some parameters are 0 but for roundings."""
    import torch  # noqa: PLC0415

    y = module(*inputs)
    y.square().mean().backward()
    return [y, torch.cat([p.grad.flatten() for p in module.parameters() if p.grad is not None])]


@row(
    "PyTorch Geometric", "GCN, GAT, GATv2, SAGE, GIN, Transformer, PNA, Chebyshev: trained; pooling", "torch_geometric"
)
def graphs(device: str) -> Any:
    """Run layers of graph networks forward and backward."""
    import torch  # noqa: PLC0415
    from torch_geometric import nn  # noqa: PLC0415

    x, edges = torch.randn(20, 8).to(device), torch.randint(20, (2, 60)).to(device)
    degrees = torch.tensor([1, 5, 3, 2])
    layers = [
        nn.GCNConv(8, 4),
        nn.GATConv(8, 4, heads=2),
        nn.GATv2Conv(8, 4),
        nn.SAGEConv(8, 4),
        nn.GINConv(torch.nn.Linear(8, 4)),
        nn.TransformerConv(8, 4),
        nn.PNAConv(8, 4, ["mean", "max", "std"], ["identity", "amplification"], deg=degrees),
        nn.ChebConv(8, 4, 3),
    ]
    groups = torch.arange(20).div(10, rounding_mode="floor").to(device)
    pooled = [pool(x, groups) for pool in (nn.global_mean_pool, nn.global_max_pool, nn.global_add_pool)]
    return [_with_gradient(layer.to(device), x, edges) for layer in layers] + pooled


@row("MONAI", "U-Net of volumes trained, Swin UNETR, sliding windows, Dice loss", "monai", tolerance=1e-3)
def volumes(device: str) -> Any:
    """Segment volumes."""
    import torch  # noqa: PLC0415
    from monai.inferers import sliding_window_inference  # noqa: PLC0415
    from monai.losses import DiceCELoss  # noqa: PLC0415
    from monai.networks.nets import SwinUNETR, UNet  # noqa: PLC0415

    network = UNet(3, 1, 2, (4, 8, 16), (2, 2)).to(device)
    trained = _with_gradient(network, torch.rand(1, 1, 16, 16, 16).to(device))
    swin = SwinUNETR(1, 2, feature_size=12, spatial_dims=3).to(device).eval()
    with torch.no_grad():
        transformed = swin(torch.rand(1, 1, 64, 64, 64).to(device))
        windows = sliding_window_inference(torch.rand(1, 1, 24, 24, 24).to(device), 16, 2, network.eval())
    labels = torch.randint(2, (1, 1, 24, 24, 24)).to(device)
    return [trained, transformed, windows, DiceCELoss(to_onehot_y=True, softmax=True)(windows, labels)]


@row("GPyTorch", "an exact Gaussian process, fitted", "gpytorch", tolerance=1e-2)
def process(device: str) -> Any:
    """Fit a Gaussian process to a sine, and predict."""
    import gpytorch  # noqa: PLC0415
    import torch  # noqa: PLC0415

    class Process(gpytorch.models.ExactGP):  # type: ignore[misc]
        def __init__(self, x: Any, y: Any, likelihood: Any) -> None:
            super().__init__(x, y, likelihood)
            self.mean = gpytorch.means.ConstantMean()
            self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

    x = torch.linspace(0, 1, 20).to(device)
    y = torch.sin(6 * x)
    likelihood = gpytorch.likelihoods.GaussianLikelihood().to(device)
    model = Process(x, y, likelihood).to(device)
    optimizer = torch.optim.Adam(model.parameters(), 0.1)
    evidence = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    for _ in range(5):
        optimizer.zero_grad()
        loss = -evidence(model(x), y)
        loss.backward()
        optimizer.step()
    model.eval()
    likelihood.eval()
    with torch.no_grad():
        return likelihood(model(torch.linspace(0, 1, 7).to(device))).mean


@row("torchdiffeq", "fixed and adaptive steps, adjoint gradients", "torchdiffeq", tolerance=1e-3)
def equations(device: str) -> Any:
    """Solve an equation that a network defines."""
    import torch  # noqa: PLC0415
    from torchdiffeq import odeint, odeint_adjoint  # noqa: PLC0415

    class Field(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(2, 2)

        def forward(self, t: Any, y: Any) -> Any:
            return torch.tanh(self.linear(y))

    field, y = Field().to(device), torch.randn(4, 2).to(device)
    times = torch.linspace(0, 1, 5).to(device)
    odeint_adjoint(field, y, times, rtol=1e-4, atol=1e-4).sum().backward()
    return [
        odeint(field, y, times, method="rk4"),
        odeint(field, y, times, rtol=1e-4, atol=1e-4),
        [p.grad for p in field.parameters()],
    ]
