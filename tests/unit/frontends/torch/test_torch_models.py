"""Networks of transformers and diffusers with random weights on the PyTorch device, against PyTorch's CPU."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch, which the device is for, is not installed")
pytest.importorskip("dmlgpu.torch", reason="the installed PyTorch is older than 2.13")


@pytest.fixture(autouse=True)
def without_torchvision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing a torchvision that was built for another PyTorch fails, and the networks here do not need it."""
    if "torchvision" not in sys.modules:
        monkeypatch.setitem(sys.modules, "torchvision", None)


SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}


def tokens(*sizes: int) -> Any:
    return torch.randint(1, 100, sizes)


def bert() -> tuple[Any, dict[str, Any]]:
    transformers = pytest.importorskip("transformers")
    mask = torch.tensor([[1] * 9, [1] * 5 + [0] * 4])
    model = transformers.BertModel(transformers.BertConfig(vocab_size=100, max_position_embeddings=64, **SMALL))
    return model, {"input_ids": tokens(2, 9), "attention_mask": mask}


def gpt2() -> tuple[Any, dict[str, Any]]:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        vocab_size=100, n_embd=32, n_layer=2, n_head=4, n_positions=64, bos_token_id=1, eos_token_id=2
    )
    return transformers.GPT2LMHeadModel(config), {"input_ids": tokens(2, 9), "use_cache": False}


def llama() -> tuple[Any, dict[str, Any]]:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(vocab_size=100, num_key_value_heads=2, max_position_embeddings=64, **SMALL)
    return transformers.LlamaForCausalLM(config), {"input_ids": tokens(2, 9), "use_cache": False}


def whisper() -> tuple[Any, dict[str, Any]]:
    transformers = pytest.importorskip("transformers")
    sides = {
        f"{side}_{name}": number
        for side in ("encoder", "decoder")
        for name, number in (("layers", 1), ("attention_heads", 4), ("ffn_dim", 64))
    }
    limits = {"num_mel_bins": 8, "max_source_positions": 20, "max_target_positions": 30}
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    config = transformers.WhisperConfig(
        vocab_size=100, d_model=32, suppress_tokens=[], begin_suppress_tokens=[], **sides, **limits, **special
    )
    inputs = {"input_features": torch.randn(2, 8, 40), "decoder_input_ids": tokens(2, 5), "use_cache": False}
    return transformers.WhisperForConditionalGeneration(config), inputs


def vit() -> tuple[Any, dict[str, Any]]:
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(image_size=32, patch_size=8, **SMALL)
    return transformers.ViTModel(config), {"pixel_values": torch.randn(2, 3, 32, 32)}


def unet() -> tuple[Any, dict[str, Any]]:
    diffusers = pytest.importorskip("diffusers")
    model = diffusers.UNet2DConditionModel(
        sample_size=8,
        block_out_channels=(16, 32),
        layers_per_block=1,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=16,
        attention_head_dim=8,
        norm_num_groups=8,
    )
    states = torch.randn(1, 5, 16)
    return model, {"sample": torch.randn(1, 4, 8, 8), "timestep": torch.tensor([7]), "encoder_hidden_states": states}


def moved(inputs: dict[str, Any]) -> dict[str, Any]:
    return {name: x.to("dml") if isinstance(x, torch.Tensor) else x for name, x in inputs.items()}


@pytest.mark.slow
@pytest.mark.parametrize("make", [bert, gpt2, llama, whisper, vit, unet])
def test_outputs_and_gradients(make: Callable[[], tuple[Any, dict[str, Any]]]) -> None:
    torch.manual_seed(0)
    model, inputs = make()
    model.eval()
    on_device = copy.deepcopy(model).to("dml")
    expected = model(**inputs).to_tuple()[0]
    actual = on_device(**moved(inputs)).to_tuple()[0]
    torch.testing.assert_close(actual.detach().cpu(), expected.detach(), rtol=1e-4, atol=1e-4)
    cotangent = torch.randn_like(expected)
    expected.backward(cotangent)
    actual.backward(cotangent.to("dml"))
    for (name, x), reference in zip(on_device.named_parameters(), model.parameters(), strict=True):
        assert (x.grad is None) == (reference.grad is None), name
        if reference.grad is not None:
            scale = max(float(reference.grad.abs().max()), 1e-3)
            assert float((x.grad.cpu() - reference.grad).abs().max()) < 1e-3 * scale, name


@pytest.mark.slow
@pytest.mark.parametrize("make", [gpt2, llama])
def test_generated_tokens(make: Callable[[], tuple[Any, dict[str, Any]]]) -> None:
    torch.manual_seed(0)
    model, _ = make()
    model.eval()
    on_device, prompt = copy.deepcopy(model).to("dml"), tokens(2, 5)
    options = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
    expected = model.generate(prompt, **options)
    assert on_device.generate(prompt.to("dml"), **options).cpu().tolist() == expected.tolist()


class TokenClassifier(torch.nn.Module):
    """A small transformer that classifies sequences."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(100, 16)
        layer = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.encoder = torch.nn.TransformerEncoder(layer, 2)
        self.head = torch.nn.Linear(16, 4)

    def forward(self, x: Any) -> Any:
        return self.head(self.encoder(self.embedding(x)).mean(1))


def convolutional() -> Any:
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 8, 3, padding=1),
        torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(8, 16, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(16, 4),
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "inputs"),
    [(convolutional, lambda: torch.randn(64, 1, 12, 12)), (TokenClassifier, lambda: tokens(64, 10))],
)
def test_loss_curves(make: Callable[[], Any], inputs: Callable[[], Any]) -> None:
    """Three epochs of training follow those of the CPU, and learn."""
    curves = []
    for device in ("cpu", "dml"):
        torch.manual_seed(0)
        model, x, labels = make().to(device), inputs().to(device), torch.randint(4, (64,)).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        losses = []
        for _ in range(3):
            for rows in torch.arange(64).split(16):
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(model(x[rows]), labels[rows])
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
        curves.append(losses)
    assert curves[1] == pytest.approx(curves[0], rel=1e-3)
    assert sum(curves[1][-4:]) < sum(curves[1][:4])
