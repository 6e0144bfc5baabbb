"""Options and help of ``dmlgpu generate``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from dmlgpu.cli.main import verb
from dmlgpu.cli.options import Adapter
from dmlgpu.common.errors import InvalidArgument

MaxTokens = Annotated[
    int | None,
    typer.Option(
        "--max-tokens",
        "-n",
        min=1,
        metavar="N",
        help="Maximum number of tokens; defaults to 256, with --serve to what the request says.",
        show_default=False,
    ),
]
MAX_TOKENS = 256
"""Default of ``--max-tokens``."""

_RECOMMENDED = "defaults to the model's recommendation, else"
Temperature = Annotated[
    float | None,
    typer.Option(
        "--temperature",
        "-t",
        min=0.0,
        metavar="T",
        help=f"0 always takes the most likely token, 1 samples; {_RECOMMENDED} 0.7.",
        show_default=False,
    ),
]
TopK = Annotated[
    int | None,
    typer.Option(
        "--top-k",
        min=0,
        metavar="K",
        help=f"Sample from the K most likely tokens; {_RECOMMENDED} all.",
        show_default=False,
    ),
]
TopP = Annotated[
    float | None,
    typer.Option(
        "--top-p",
        min=0.0,
        max=1.0,
        metavar="P",
        help=f"Sample from the most likely tokens of this probability in all; {_RECOMMENDED} 0.9.",
        show_default=False,
    ),
]
MinP = Annotated[
    float | None,
    typer.Option(
        "--min-p",
        min=0.0,
        max=1.0,
        metavar="P",
        help=f"Sample from tokens of at least P times the largest probability; {_RECOMMENDED} all.",
        show_default=False,
    ),
]
Penalty = Annotated[
    float | None,
    typer.Option(
        "--repetition-penalty",
        min=0.0,
        metavar="X",
        help=f"Above 1: avoid tokens that occurred; {_RECOMMENDED} 1.05.",
        show_default=False,
    ),
]
Presence = Annotated[
    float, typer.Option("--presence-penalty", metavar="X", help="Subtract X from logits of tokens that the answer has.")
]
Frequency = Annotated[
    float,
    typer.Option("--frequency-penalty", metavar="X", help="Subtract X for each time that the answer has the token."),
]
Bias = Annotated[
    list[str] | None,
    typer.Option("--logit-bias", metavar="ID=X", help="Add X to the logit of a token. Repeatable.", show_default=False),
]
Schema = Annotated[
    Path | None,
    typer.Option(
        "--json-schema", metavar="FILE", help="Answer with JSON of the JSON schema in this file.", show_default=False
    ),
]
Answers = Annotated[
    int, typer.Option("--answers", min=1, metavar="N", help="Number of answers to each prompt, which is computed once.")
]
Logprobs = Annotated[
    int | None,
    typer.Option(
        "--logprobs",
        min=0,
        max=100,
        metavar="N",
        help="With --json: print the probability of each token, and of the N most likely ones.",
        show_default=False,
    ),
]
Tools = Annotated[
    Path | None,
    typer.Option(
        "--tools",
        metavar="FILE",
        help="Functions that the model may call, as a JSON list in the form of OpenAI's.",
        show_default=False,
    ),
]
Seed = Annotated[
    int | None, typer.Option("--seed", min=0, metavar="N", help="Seed of sampling; defaults to a random one.")
]
Stop = Annotated[
    list[str] | None,
    typer.Option("--stop", metavar="TEXT", help="End the output before this text; \\n is a newline. Repeatable."),
]
Context = Annotated[
    int | None,
    typer.Option(
        "--context",
        "-c",
        min=2,
        metavar="N",
        help="Maximum tokens of prompt and answer; defaults to the model's, at most 4,096.",
        show_default=False,
    ),
]


class GenerateCommand(TyperCommand):
    """The command, whose option --serve needs no value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert the default address after a --serve that is the last word or comes before an option."""
        words = []
        for word, following in zip(args, [*args[1:], "--"], strict=True):
            words += [word, LOOPBACK] if word == "--serve" and following.startswith("-") else [word]
        return super().parse_args(ctx, words)


LOOPBACK = "127.0.0.1:8080"
"""Address of ``--serve`` without a value."""

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\"}


def _unescaped(text: str) -> str:
    """Return a text with newlines and tabs in place of their escapes."""
    return re.sub(r"\\([ntr\\])", lambda match: _ESCAPES[match[1]], text)


def _biases(texts: Sequence[str]) -> dict[int, float] | None:
    """Return numbers by token id."""
    biases: dict[int, float] = {}
    for text in texts:
        token, _, number = text.partition("=")
        try:
            biases[int(token)] = float(number)
        except ValueError:
            raise InvalidArgument(
                f"generate: --logit-bias must be a token id and a number, ID=X, got {text!r}"
            ) from None
    return biases or None


def generate(
    *,
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL", help="Folder of onnxruntime-genai or Optimum, or a GGUF file.", show_default=False
        ),
    ],
    prompt: Annotated[
        str | None,
        typer.Option(
            "--prompt", "-p", metavar="TEXT", help="Question, - for standard input; without it, a conversation."
        ),
    ] = None,
    batch: Annotated[
        Path | None,
        typer.Option(
            "--batch",
            metavar="FILE",
            help="Prompts, one per line (JSON in a file .jsonl, also conversations), answered at the same time.",
        ),
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Continue the prompt as it is, without the model's chat template.")
    ] = False,
    system: Annotated[
        str | None,
        typer.Option(
            "--system",
            metavar="TEXT",
            help="System message, which tells a chat model how to answer.",
            show_default=False,
        ),
    ] = None,
    thinking: Annotated[
        bool | None,
        typer.Option(
            "--thinking/--no-thinking",
            help="Let the model reason before it answers, or not, if its chat template has this switch.",
            show_default=False,
        ),
    ] = None,
    serve: Annotated[
        str | None,
        typer.Option(
            "--serve",
            metavar="[HOST:PORT]",
            help=f"Answer requests of OpenAI's protocol at this address, by default {LOOPBACK}.",
            show_default=False,
        ),
    ] = None,
    api_key: Annotated[
        str | None,
        typer.Option(
            "--api-key",
            envvar="DMLGPU_API_KEY",
            show_envvar=False,
            metavar="KEY",
            help="With --serve: the key that clients must send; defaults to DMLGPU_API_KEY.",
            show_default=False,
        ),
    ] = None,
    parallel: Annotated[
        int, typer.Option("--parallel", min=1, metavar="N", help="With --serve: answers at the same time, at most.")
    ] = 4,
    max_tokens: MaxTokens = None,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    min_p: MinP = None,
    repetition_penalty: Penalty = None,
    presence_penalty: Presence = 0.0,
    frequency_penalty: Frequency = 0.0,
    logit_bias: Bias = None,
    seed: Seed = None,
    stop: Stop = None,
    json_schema: Schema = None,
    answers: Answers = 1,
    logprobs: Logprobs = None,
    tools: Tools = None,
    embed: Annotated[
        bool, typer.Option("--embed", help="Print the embedding of each prompt as a line of JSON, instead of answers.")
    ] = False,
    context: Context = None,
    cache_dtype: Annotated[
        str | None,
        typer.Option(
            "--cache-dtype",
            metavar="DTYPE",
            help="Type of the caches, float32, float16 or int8; default: float16 on GPUs if no element can overflow.",
            show_default=False,
        ),
    ] = None,
    cache_block: Annotated[
        int | None,
        typer.Option(
            "--cache-block",
            metavar="ELEMENTS",
            help="Elements of a head that share a scale of int8 caches; defaults to all of them.",
            show_default=False,
        ),
    ] = None,
    activation_dtype: Annotated[
        str | None,
        typer.Option(
            "--activation-dtype",
            metavar="DTYPE",
            help="int8: multiply quantized weights by integers; defaults to the model's floats.",
            show_default=False,
        ),
    ] = None,
    draft: Annotated[
        str | None,
        typer.Option(
            "--draft",
            metavar="ngram|MODEL",
            help="Speculative decoding: run several tokens at a time, drafted from earlier text or by a smaller model.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    adapter: Adapter = None,
) -> None:
    """Generate text with a language model.

    MODEL is a folder as onnxruntime-genai writes it (genai_config.json, model.onnx, tokenizer.json), an ONNX export
    with caches of Optimum or torch.onnx (config.json, model.onnx), or a GGUF file. The text goes to standard output,
    speed and memory to standard error. If the model has a chat template, a prompt is a question that it answers; --raw
    continues the prompt instead, as models without a template do. Without --prompt, each line is a message of a
    conversation; Ctrl-C ends an answer, Ctrl-D the conversation. Tokens are sampled: answers differ from run to run
    unless --seed or --temperature 0 is given.

    \b
    Examples:
      dmlgpu generate phi-3-mini
      dmlgpu generate phi-3-mini --prompt "Why is the sky blue?" --system "Answer in one sentence."
      dmlgpu generate phi-3-mini --raw --prompt "Once upon a time" --max-tokens 100
      dmlgpu generate qwen2-q4_k_m.gguf -p "Name a river." --temperature 0.8 --top-p 0.9 --seed 1
      dmlgpu generate phi-3-mini --batch prompts.txt --json --adapter vulkan
      dmlgpu generate phi-3-mini --serve
    """
    recommended = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
    recommended["repetition_penalty"] = repetition_penalty
    options: dict[str, Any] = {name: value for name, value in recommended.items() if value is not None}
    options |= {
        "max_tokens": max_tokens if max_tokens or serve else MAX_TOKENS,
        "presence_penalty": presence_penalty,
        "frequency_penalty": frequency_penalty,
        "logit_bias": _biases(logit_bias or []),
        "seed": seed,
        "stop": [_unescaped(text) for text in stop or []],
    }
    formats = {"cache_dtype": cache_dtype, "cache_block": cache_block, "activation_dtype": activation_dtype}
    formats["draft"] = draft
    if serve is not None:
        others: dict[str, Any] = {"--prompt": prompt, "--batch": batch, "--raw": raw, "--system": system}
        others |= {"--tools": tools, "--embed": embed, "--logprobs": logprobs is not None, "--answers": answers > 1}
        others |= {"--json-schema": json_schema, "--json": as_json, "--thinking": thinking is not None, "--stop": stop}
        for name, value in others.items():
            if value:
                raise InvalidArgument(f"generate: --serve and {name} cannot be combined; requests say it")
        verb("generate_server").serve(
            model,
            adapter,
            address=serve,
            api_key=api_key,
            rows=parallel,
            context=context,
            formats=formats,
            options=options,
        )
        return
    verb("generate").generate(
        model,
        adapter,
        prompt=prompt,
        batch=batch,
        raw=raw,
        system=system,
        enable_thinking=thinking,
        context=context,
        formats=formats,
        as_json=as_json,
        json_schema=json_schema,
        tools=tools,
        embed=embed,
        answers=answers,
        options=options if logprobs is None else {**options, "logprobs": logprobs},
    )
