"""Rows of libraries of text and sequences on top of PyTorch."""

from __future__ import annotations

import string
import tempfile
from pathlib import Path
from typing import Any

from torch_clients.rows import row


@row("sentence-transformers", 'SentenceTransformer(device="dml"): encode, search', "sentence_transformers")
def sentences(device: str) -> Any:
    """Embed sentences by a small BERT, and search."""
    import transformers  # noqa: PLC0415
    from sentence_transformers import SentenceTransformer, models, util  # noqa: PLC0415

    letters = [*string.ascii_lowercase, *(f"##{letter}" for letter in string.ascii_lowercase)]
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
        transformers.BertTokenizerFast(str(Path(folder) / "vocab.txt")).save_pretrained(folder)
        config = transformers.BertConfig(
            vocab_size=len(words), hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64
        )
        transformers.BertModel(config).save_pretrained(folder)
        modules = [models.Transformer(folder), models.Pooling(32)]
        model = SentenceTransformer(modules=modules, device=device)
        texts = ["hello there", "ab", "what is this thing called love"]
        embeddings = model.encode(texts, convert_to_tensor=True)
    assert embeddings.device.type == device
    hits = util.semantic_search(embeddings[:1], embeddings)[0]
    return [embeddings, [hit["corpus_id"] for hit in hits]]


@row("x-transformers", "decoder with rotary positions: gradient, generation", "x_transformers")
def decoder(device: str) -> Any:
    """Train a step, and generate."""
    import torch  # noqa: PLC0415
    from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper  # noqa: PLC0415

    layers = Decoder(dim=32, depth=2, heads=2, rotary_pos_emb=True, ff_glu=True, attn_qk_norm=True)
    network = TransformerWrapper(num_tokens=50, max_seq_len=32, attn_layers=layers)
    model = AutoregressiveWrapper(network).to(device)
    loss = model(torch.randint(50, (2, 16)).to(device))
    loss.backward()
    tokens = model.generate(torch.randint(50, (1, 4)).to(device), 8, temperature=0.0)
    return [loss, network.token_emb.emb.weight.grad, tokens]


@row("vector-quantize-pytorch", "VectorQuantize trained, ResidualVQ, FSQ", "vector_quantize_pytorch")
def quantizers(device: str) -> Any:
    """Quantize vectors by codebooks."""
    import torch  # noqa: PLC0415
    import vector_quantize_pytorch as quantize  # noqa: PLC0415

    x = torch.randn(2, 8, 16).to(device)
    trained = quantize.VectorQuantize(16, 32).to(device)
    residual = quantize.ResidualVQ(dim=16, codebook_size=16, num_quantizers=2).to(device).eval()
    scalar = quantize.FSQ([4, 4, 4], dim=16).to(device).eval()
    return [trained(x)[0], residual(x)[:2], scalar(x)]
