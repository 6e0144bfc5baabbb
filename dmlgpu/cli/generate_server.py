"""``dmlgpu generate --serve``: a language model for clients of OpenAI's protocol."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from dmlgpu.cli.generate import load
from dmlgpu.cli.run import frontend


def serve(
    source: Path,
    adapter: str | None,
    *,
    address: str,
    api_key: str | None = None,
    rows: int = 4,
    pooling: str = "mean",
    context: int | None = None,
    formats: Mapping[str, Any] | None = None,
    options: Mapping[str, Any],
) -> None:
    """Answer requests until Ctrl-C.

    Args:
        source: Folder or file of the model.
        adapter: Part of an adapter's name, or its number; None selects the default.
        address: ``HOST:PORT``; either may be omitted.
        api_key: Key that clients must send; None for none.
        rows: Maximum number of answers at the same time.
        pooling: Pooling of embeddings.
        context: Maximum number of tokens of prompt and answer.
        formats: As for ``generate``.
        options: Sampling options and ``max_tokens`` of requests that do not say.

    Raises:
        InvalidArgument: If an option is out of range, or other machines could connect without a key.
        DmlError: As ``Generator.load`` and ``Generator.scheduler``.
        OSError: If the address cannot be listened on.
    """
    frontend()
    from dmlgpu.frontends.generation import server  # noqa: PLC0415 - an extra
    from dmlgpu.frontends.generation.protocol import ServedModel  # noqa: PLC0415 - likewise
    from dmlgpu.frontends.generation.sampling import SamplingOptions  # noqa: PLC0415 - likewise

    listening = server.Address.of(address)
    api_key = api_key or None
    server.check_access(listening, api_key)
    defaults = {option.name: options[option.name] for option in fields(SamplingOptions) if option.name in options}
    SamplingOptions(**defaults).check("generate")
    generator = load(source, adapter, context, formats)
    scheduler = generator.scheduler(rows=rows)
    model = ServedModel(generator, defaults, options.get("max_tokens"), rows, pooling)

    def tell(address: server.Address) -> None:
        print(f"serving {model.name} at http://{address}/v1; Ctrl-C ends the server", file=sys.stderr, flush=True)

    server.serve(model, scheduler, listening, api_key=api_key, ready=tell)
