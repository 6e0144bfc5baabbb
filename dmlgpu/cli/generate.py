"""``dmlgpu generate``: text from a language model, for a prompt, a file of prompts, or in a conversation."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu.cli import tables
from dmlgpu.cli.devices import choose_adapter
from dmlgpu.cli.run import CompileStatus, frontend
from dmlgpu.common.errors import InvalidArgument, shown
from dmlgpu.common.files import is_gguf, whole_file
from dmlgpu.runtime.device import Device

if TYPE_CHECKING:
    from dmlgpu.frontends.generation.generator import GeneratedText, Generator
    from dmlgpu.frontends.generation.gguf import StoredWeights
    from dmlgpu.frontends.generation.memory import MemoryNeed
    from dmlgpu.frontends.generation.text import Message

_MAX_BYTES = 64 << 20
_MAX_CONTEXTS = 4


def load(source: Path, adapter: str | None, context: int | None, formats: Mapping[str, Any] | None = None) -> Generator:
    """Load a model, and print the adapter on which it runs.

    Raises:
        InvalidArgument: If a package is missing, or the model does not fit the adapter.
        DmlError: As ``Generator.load``.
    """
    frontend()
    from dmlgpu.frontends.generation.generator import Generator  # noqa: PLC0415 - an extra

    generator = Generator.load(source, Device(choose_adapter(adapter)), context=context, **(formats or {}))
    print(f"{generator.model.name} on '{generator.device.adapter}', {generator.memory}", file=sys.stderr, flush=True)
    return generator


def generate(
    source: Path,
    adapter: str | None,
    *,
    prompt: str | None = None,
    batch: Path | None = None,
    raw: bool = False,
    system: str | None = None,
    enable_thinking: bool | None = None,
    context: int | None = None,
    formats: Mapping[str, Any] | None = None,
    as_json: bool = False,
    json_schema: Path | None = None,
    tools: Path | None = None,
    embed: bool = False,
    answers: int = 1,
    options: Mapping[str, Any],
) -> None:
    """Answer a prompt, each prompt of a file, or in a conversation if there is neither.

    Prompts are messages of the user if the model has a chat template. Otherwise, the model continues them.

    Args:
        source: Folder or file of the model.
        adapter: Part of an adapter's name, or its index; None selects the default.
        prompt: Prompt; ``-`` reads standard input. If the model takes features of audio, a file NAME.npy with them.
        batch: File with a prompt per line: text, or JSON in a file NAME.jsonl.
        raw: Continue prompts as they are, without the chat template.
        system: Message of the system before each prompt.
        enable_thinking: Whether the model reasons before it answers; None for the default of its chat template.
        context: Maximum number of tokens of prompt and answer.
        formats: ``cache_dtype``, ``cache_block`` and ``activation_dtype`` of ``Generator.load``.
        as_json: Print JSON.
        json_schema: File with the JSON schema of answers.
        tools: File with the functions that the model may call, a list in JSON.
        embed: Print embeddings of the prompts instead of answers.
        answers: Number of answers to each prompt.
        options: Options of ``Generator.generate``; ``Generator.sampling_defaults`` apply to omitted ones.

    Raises:
        InvalidArgument: If the options contradict each other or are out of range.
        DmlError: As ``Generator.load`` and ``Generator.generate``.
        KeyboardInterrupt: If a generation was interrupted; the text so far is printed.
    """
    if prompt is not None and batch is not None:
        raise InvalidArgument("generate: --prompt and --batch cannot be combined")
    if raw and system is not None:
        raise InvalidArgument("generate: --raw and --system cannot be combined; --raw omits the chat template")
    if prompt == "":
        raise InvalidArgument("generate: --prompt must have text, got ''")
    _check(options)
    if json_schema is not None:
        options = {**options, "grammar": _grammar_of(json_schema)}
    needing = {"--embed": embed, "--answers": answers > 1, "--json": as_json}
    _check_needs([name for name, value in needing.items() if value], prompt is not None or batch is not None, options)
    functions = None if tools is None else _tools(tools)
    prompts = _prompts(batch, raw=raw) if batch is not None else {}
    if prompt == "-":
        prompt = _text_of(sys.stdin.buffer.read(_MAX_BYTES + 1), "--prompt", "standard input").removesuffix("\n")
    generator = load(source, adapter, context, formats)
    if system is not None and not generator.model.chat_template:
        raise InvalidArgument(f"generate: --system needs a chat template, which model {generator.model.name!r} lacks")
    if functions is not None and (raw or not generator.model.chat_template):
        raise InvalidArgument("generate: --tools needs a chat template, which the model or --raw lacks")
    questions = _Questions(generator, raw, system, enable_thinking, functions)
    options = generator.with_defaults(options)
    with CompileStatus.shown():
        if embed:
            _embed(generator, list(prompts.values()) if prompt is None else [prompt])
        elif batch is not None or answers > 1:
            _generate_batch(questions, prompts or {1: prompt or ""}, as_json, options, answers)
        elif prompt is not None:
            _generate_one(questions, prompt, as_json, options)
        else:
            _converse(questions, options)


@dataclass(frozen=True)
class _Questions:
    """Settings of prompts and answers.

    Attributes:
        generator: The model.
        raw: Whether prompts are continued although there is a chat template.
        system: Message of the system; None for none.
        enable_thinking: As in ``generate``.
        tools: Functions that the model may call; None for none.
    """

    generator: Generator
    raw: bool = False
    system: str | None = None
    enable_thinking: bool | None = None
    tools: Sequence[Mapping[str, Any]] | None = None

    @property
    def is_chat(self) -> bool:
        """Whether prompts are messages of the user."""
        return bool(self.generator.model.chat_template) and not self.raw

    def prompt_of(self, prompt: str | Sequence[Message]) -> Any:
        """Return a prompt or a conversation in the generator's form.

        Raises:
            InvalidArgument: If it is blank, or the chat template is missing or rejects it.
        """
        if self.generator.takes_features and isinstance(prompt, str):
            return _features(Path(prompt))
        if isinstance(prompt, str):
            if not self.is_chat:
                return prompt
            if not prompt.strip():
                raise InvalidArgument(f"generate: prompts must have text, got {shown(prompt)}")
            prompt = [{"role": "user", "content": prompt}]
        return self.generator.chat_tokens(
            self.with_system(prompt), enable_thinking=self.enable_thinking, tools=self.tools
        )

    def with_system(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return messages with that of the system, unless they have one."""
        if self.system is None or (messages and messages[0]["role"] == "system"):
            return messages
        return [{"role": "system", "content": self.system}, *messages]

    def note_empty(self, texts: Sequence[str], options: Mapping[str, Any]) -> None:
        """Print the reason why answers of the last generation have no text."""
        model = self.generator.model
        cure = "; without --raw, the chat template is applied" if self.raw and model.chat_template else ""
        for index, (text, tokens) in enumerate(zip(texts, self.generator.answers, strict=True), 1):
            if text.strip() or not tokens:
                continue
            if tokens[-1] in model.config.eos:
                end = None if model.tokenizer is None else model.tokenizer.id_to_token(tokens[-1])
                reason = f"the model ended it by {end or f'token {tokens[-1]}'}"
            else:
                reason = "a stop string ended it" if options.get("stop") else "its tokens have no text"
            answer = "the answer" if len(texts) == 1 else f"answer {index}"
            print(f"note: {answer} is empty: {reason}{cure}", file=sys.stderr, flush=True)


def _check(options: Mapping[str, Any]) -> None:
    """Check options before a model is loaded, which may take long."""
    frontend()
    from dmlgpu.frontends.generation.sampling import SamplingOptions  # noqa: PLC0415 - an extra
    from dmlgpu.frontends.generation.text import checked_stops  # noqa: PLC0415 - likewise

    sampling = {option.name: options[option.name] for option in fields(SamplingOptions) if option.name in options}
    SamplingOptions(**sampling).check("generate")
    checked_stops(options.get("stop", ()), "generate")


def _check_needs(names: Sequence[str], has_prompts: bool, options: Mapping[str, Any]) -> None:
    """Raise InvalidArgument if options need others."""
    if names and not has_prompts:
        raise InvalidArgument(f"generate: {names[0]} needs --prompt or --batch; a conversation is text")
    if "logprobs" in options and ("--json" not in names or "--embed" in names):
        raise InvalidArgument("generate: --logprobs needs --json, which prints probabilities")


def _tools(file: Path) -> Sequence[Mapping[str, Any]]:
    """Return the functions of a file."""
    with file.open("rb") as opened:
        text = _text_of(opened.read(_MAX_BYTES + 1), "--tools", str(file))
    try:
        functions = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"generate: --tools: {file} must be JSON: {error}") from None
    if not isinstance(functions, list) or not all(isinstance(function, dict) for function in functions):
        raise InvalidArgument(f"generate: --tools: {file} must have a list of functions, got {shown(functions)}")
    return functions


def _embed(generator: Generator, prompts: Sequence[str | Sequence[Message]]) -> None:
    """Print a line of JSON for each prompt."""
    for prompt in prompts:
        if not isinstance(prompt, str):
            raise InvalidArgument("generate: --embed takes prompts, not conversations")
        print(json.dumps(generator.embed(prompt).tolist()), flush=True)


def _grammar_of(file: Path) -> Any:
    """Return the grammar of JSON of a schema."""
    from dmlgpu.frontends.generation.grammar import Grammar  # noqa: PLC0415 - an extra

    with file.open("rb") as opened:
        return Grammar.json_schema(_text_of(opened.read(_MAX_BYTES + 1), "--json-schema", str(file)))


def _text_of(data: bytes, option: str, source: str) -> str:
    """Return the contents of a file or of standard input."""
    if len(data) > _MAX_BYTES:
        raise InvalidArgument(f"generate: {option}: {source} must have at most {_MAX_BYTES} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"generate: {option}: {source} must be text in UTF-8: {error}") from None


def _prompts(batch: Path, *, raw: bool) -> dict[int, str | Sequence[Message]]:
    """Return the prompts of a file by line: lines that are not empty, or strings and conversations of JSON lines."""
    with batch.open("rb") as file:
        text = _text_of(file.read(_MAX_BYTES + 1), "--batch", str(batch))
    lines = [(line_number, line) for line_number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        raise InvalidArgument(f"generate: --batch: {batch} must have a prompt per line, got none")
    if batch.suffix.lower() == ".jsonl":
        return {
            line_number: _json_prompt(line, f"generate: --batch: {batch}, line {line_number}", raw=raw)
            for line_number, line in lines
        }
    return {line_number: line.removesuffix("\r") for line_number, line in lines}


def _json_prompt(line: str, label: str, *, raw: bool) -> str | Sequence[Message]:
    """Return the prompt or the conversation of a JSON line."""
    from dmlgpu.frontends.generation.text import checked_messages  # noqa: PLC0415 - an extra

    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"{label}: must be JSON: {error}") from None
    keys = {"prompt", "messages"} & value.keys() if isinstance(value, dict) else set()
    if keys == {"messages"}:
        if raw:
            raise InvalidArgument(f"{label}: messages need the chat template, which --raw omits; pass a prompt")
        return checked_messages(value["messages"], label)
    prompt = value["prompt"] if keys == {"prompt"} else value
    if not isinstance(prompt, str):
        forms = '{"prompt": "..."} or {"messages": [...]}'
        raise InvalidArgument(f"{label}: must be a string, {forms}, got {shown(value)}")
    return prompt


def _generate_one(questions: _Questions, prompt: str, as_json: bool, options: Mapping[str, Any]) -> None:
    generator, pieces = questions.generator, list[str]()
    # Errors of the prompt are raised before anything is printed.
    answer = generator.generate(questions.prompt_of(prompt), **options)
    try:
        for piece in answer:
            pieces.append(piece)
            if not as_json:
                print(piece, end="", flush=True)
    finally:
        if as_json:
            _print_json(generator, [(prompt, "".join(pieces))])
        else:
            print(flush=True)
        _print_statistics(generator)
    questions.note_empty(["".join(pieces)], options)


def _features(path: Path) -> NDArray[Any]:
    """Return the array of a file."""
    try:
        array: NDArray[Any] = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InvalidArgument(
            f"generate: --prompt: the model takes features; pass a file NAME.npy with them, got {str(path)!r}: {error}"
        ) from None
    return array


def _generate_batch(
    questions: _Questions,
    prompts: Mapping[int, str | Sequence[Message]],
    as_json: bool,
    options: Mapping[str, Any],
    answers: int = 1,
) -> None:
    generator = questions.generator
    completions: list[GeneratedText] = generator.generate_batch(
        list(map(questions.prompt_of, prompts.values())), n=answers, **options
    )
    repeated = [(line, prompt) for line, prompt in prompts.items() for _ in range(answers)]
    texts = [(prompt, completion.text) for (_, prompt), completion in zip(repeated, completions, strict=True)]
    if as_json:
        _print_json(generator, texts, [{"line": line} for line, _ in repeated])
    else:
        for index, (prompt, text) in enumerate(texts, 1):
            title = prompt if isinstance(prompt, str) else prompt[-1].get("content") or ""
            print(f"[{index}] {title}\n{text}\n")
    _print_statistics(generator)
    questions.note_empty([text for _, text in texts], options)


def _print_json(
    generator: Generator,
    completions: Sequence[tuple[str | Sequence[Message], str]],
    places: Sequence[Mapping[str, int]] = ({},),
) -> None:
    """Print prompts and their answers, the tokens so far of the last generation among them.

    Args:
        generator: The model.
        completions: Prompts and answers.
        places: Entries that say where each prompt is from.
    """
    answers = generator.answers or [[] for _ in completions]
    logprobs = [{"logprobs": [asdict(entry) for entry in row]} if row else {} for row in generator.logprobs]
    statistics, memory = generator.statistics, generator.memory
    numbers = {
        "prompt_tokens": statistics.prompt_tokens,
        "reused_tokens": statistics.reused_tokens,
        "tokens": statistics.tokens,
        "prefill_seconds": statistics.prefill_seconds,
        "decode_seconds": statistics.decode_seconds,
        "prefill_tokens_per_second": statistics.prefill_rate,
        "decode_tokens_per_second": statistics.decode_rate,
    }
    result = {
        "model": generator.model.name,
        "adapter": str(generator.device.adapter),
        "context": generator.context,
        "completions": [
            {
                **place,
                "prompt" if isinstance(prompt, str) else "messages": prompt,
                "text": text,
                "tokens": tokens,
                **probabilities,
            }
            for place, (prompt, text), tokens, probabilities in zip(
                places, completions, answers, logprobs or [{}] * len(answers), strict=True
            )
        ],
        "statistics": numbers,
        "memory": memory_json(memory),
    }
    print(json.dumps(result, indent=2, ensure_ascii=False))


def memory_json(memory: MemoryNeed) -> dict[str, int]:
    """Return the bytes of a model."""
    return {
        "context": memory.context,
        "weight_bytes": memory.weights,
        "cache_bytes": memory.caches,
        "total_bytes": memory.total,
    }


def _print_statistics(generator: Generator) -> None:
    print(generator.statistics, file=sys.stderr, flush=True)


def _converse(questions: _Questions, options: Mapping[str, Any]) -> None:
    """Answer messages from standard input until it ends. Ctrl-C ends an answer, or the conversation while it waits."""
    if not questions.is_chat:
        reason = "--raw" if questions.raw else "the model has no chat template"
        print(f"{reason}: each line is a prompt by itself", file=sys.stderr)
    is_terminal = sys.stdin.isatty()
    if is_terminal:
        commands = "; /clear, /system TEXT and /save FILE are commands" if questions.is_chat else ""
        print(f"Ctrl-C ends an answer, Ctrl-D the conversation{commands}", file=sys.stderr, flush=True)
    conversation, has_lines = _Conversation(questions, options), False
    for line in _lines():
        has_lines = True
        try:
            if not (questions.is_chat and conversation.obey(line)):
                conversation.answer(line)
        except (InvalidArgument, OSError) as error:
            if not is_terminal:
                raise
            print(f"dmlgpu: {error}", file=sys.stderr)
    if not has_lines and not is_terminal:
        raise InvalidArgument("generate: standard input must have a message per line, got none; or pass --prompt")


class _Conversation:
    """The messages of a conversation, and its commands.

    Args:
        questions: Settings of prompts.
        options: Options of ``Generator.generate``.
    """

    def __init__(self, questions: _Questions, options: Mapping[str, Any]):
        self._questions, self._options = questions, options
        self._messages: list[dict[str, str]] = []
        self._start = 0
        self._has_warned = False

    def obey(self, line: str) -> bool:
        """Obey a command; return False if the line is none.

        Raises:
            InvalidArgument: If its argument is missing.
            OSError: If a file cannot be written.
        """
        name, _, argument = line.strip().partition(" ")
        argument = argument.strip()
        if name == "/clear" and not argument:
            self._messages, self._start, self._has_warned = [], 0, False
            print("the conversation is empty", file=sys.stderr, flush=True)
        elif name == "/system":
            self._questions = replace(self._questions, system=argument or None)
            change = "is set" if argument else "is removed"
            print(f"the system message {change} from the next answer on", file=sys.stderr, flush=True)
        elif name == "/save":
            if not argument:
                raise InvalidArgument("/save needs the name of a file, such as conversation.jsonl")
            content = {"messages": self._questions.with_system(self._messages)}
            with whole_file(Path(argument)) as file:
                file.write(f"{json.dumps(content, ensure_ascii=False)}\n".encode())
            print(f"{len(self._messages)} messages are in {argument}", file=sys.stderr, flush=True)
        else:
            return False
        return True

    def answer(self, line: str) -> None:
        """Print the answer to a message. A message without an answer is forgotten.

        Raises:
            InvalidArgument: If it does not fit the context, or the chat template rejects it.
        """
        generator, messages = self._questions.generator, self._messages
        messages.append({"role": "user", "content": line})
        answer = ""
        try:
            for piece in generator.generate(self._prompt(line), **self._options):
                answer += piece
                print(piece, end="", flush=True)
        except KeyboardInterrupt:
            print(" ...", end="")
        except InvalidArgument:
            messages.pop()
            raise
        else:
            self._questions.note_empty([answer], self._options)
        print(flush=True)
        if answer:
            messages.append({"role": "assistant", "content": answer})
        else:
            messages.pop()
        _print_statistics(generator)

    def _prompt(self, line: str) -> Any:
        """Return the prompt of a line with the messages before it, without the oldest ones if they do not fit."""
        questions, generator = self._questions, self._questions.generator
        if not questions.is_chat:
            return questions.prompt_of(line)
        context = generator.context
        room = min(self._options.get("max_tokens") or context, context // 4)
        last = len(self._messages) - 1
        if self._start < last and self._length() + room > context:
            while self._start < last and self._length() > context // 2:  # room for some turns: prompts are reused
                self._start += 2
            if not self._has_warned:
                allowed = max(generator.model.config.context_length, generator.model.config.trained_length)
                cure = f"; for a longer one, pass -c (the model allows {allowed:,})" if context < allowed else ""
                print(
                    f"note: the conversation exceeds the context of {context:,} tokens: the model forgets its oldest "
                    f"messages from now on{cure}",
                    file=sys.stderr,
                    flush=True,
                )
                self._has_warned = True
        return questions.prompt_of(self._messages[self._start :])

    def _length(self) -> int:
        """Return the number of tokens of the prompt."""
        questions = self._questions
        return questions.generator.chat_length(
            questions.with_system(self._messages[self._start :]),
            tools=questions.tools,
            enable_thinking=questions.enable_thinking,
        )


def _lines() -> Iterator[str]:
    while True:
        try:
            line = input("> " if sys.stdin.isatty() else "")
        except (EOFError, KeyboardInterrupt):
            if sys.stdin.isatty():
                print()
            return
        if line.strip():
            yield line


def show_language_model(source: Path, adapter: str | None, *, as_text: bool) -> None:
    """Print the sizes of a model, and the memory of the adapter for contexts of several lengths.

    Raises:
        DmlError: As ``Generator.load``; a model that does not fit is no error here.
    """
    frontend()
    from dmlgpu.frontends.generation.cache_bounds import default_caches  # noqa: PLC0415 - likewise
    from dmlgpu.frontends.generation.encoder_decoder import step_network  # noqa: PLC0415 - likewise
    from dmlgpu.frontends.generation.folders import read  # noqa: PLC0415 - an extra
    from dmlgpu.frontends.generation.memory import MemoryNeed, default_context, mebibytes  # noqa: PLC0415 - likewise

    device = Device(choose_adapter(adapter))
    model = read(source)
    config = model.config
    stored = _stored_weights(source)
    default = default_context(config)
    contexts = sorted(
        {default >> shift for shift in range(_MAX_CONTEXTS) if default >> shift} | {config.context_length}
    )
    caches = default_caches(model, device)
    networks = {context: step_network(model, caches, context=context) for context in contexts}
    network = networks[default]
    needs = [MemoryNeed.of(each, context, device) for context, each in networks.items()]
    reasons = [_reason(need, model.name, device) for need in needs]
    if not as_text:
        rows = [
            memory_json(need) | {"fits": not reason, **({"reason": reason} if reason else {})}
            for need, reason in zip(needs, reasons, strict=True)
        ]
        sizes = {
            name: getattr(config, name) for name in ("architecture", "layers", "kv_heads", "head_size", "vocabulary")
        }
        weights = {"weights": [asdict(row) for row in stored]} if stored else {}
        print(
            json.dumps(
                {"model": model.name, "adapter": str(device.adapter), **sizes, **weights, "contexts": rows},
                indent=2,
                ensure_ascii=False,
            )
        )
        return
    cached = len(network.caches) // 2
    which = "each" if cached >= config.layers else f"{cached} of them"
    heads = f"{which} with {config.kv_heads} key-value heads of {config.head_size}" if cached else "each with a state"
    tables.facts(
        f"{model.name} on '{device.adapter}'",
        [
            ("architecture", config.architecture),
            ("layers", f"{config.layers}, {heads}"),
            ("vocabulary", f"{config.vocabulary:,}"),
            ("tokenizer", "yes" if model.tokenizer is not None else "no: token ids only"),
            ("chat template", "yes" if model.chat_template else "no"),
            ("caches", ", ".join([*(str(cache.dtype) for cache in network.caches[:1]), network.cache_kind])),
            ("weights", mebibytes(needs[contexts.index(default)].weights)),
            ("a token in the caches", f"{network.row_bytes:,} bytes"),
        ],
    )
    print()
    for row in stored:
        print(row)
    if stored:
        print()
    table = [
        (
            f"{need.context:,}{' (default)' if need.context == default else ''}",
            mebibytes(need.caches),
            mebibytes(need.total),
            "no" if reason else "yes",
        )
        for need, reason in zip(needs, reasons, strict=True)
    ]
    tables.table(("context", "caches", "memory", "fits"), table, right=(0, 1, 2))
    for reason in dict.fromkeys(filter(None, reasons)):
        print(f"\n{reason}")


def _stored_weights(source: Path) -> Sequence[StoredWeights]:
    """Return how the weights of a GGUF file are stored on a device; empty for other models."""
    if not is_gguf(source):
        return ()
    from dmlgpu.frontends.generation import gguf  # noqa: PLC0415 - an extra

    return gguf.stored_weights(source)


def _reason(need: MemoryNeed, name: str, device: Device) -> str:
    """Return the reason why a model does not fit in memory; empty if it does."""
    try:
        need.check(f"model {name!r}", device)
    except InvalidArgument as error:
        return str(error)
    return ""
