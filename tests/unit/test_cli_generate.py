"""``dmlgpu generate``, ``dmlgpu show MODEL`` of a language model, and ``dmlgpu demo generate``."""

import contextlib
import io
import json
import re

import pytest

from dmlgpu.cli import generate as verb
from dmlgpu.cli.main import INTERRUPTED, USAGE
from dmlgpu.cli.run import CompileStatus
from dmlgpu.frontends.generation.generator import Generator
from dmlgpu.frontends.onnx.segments import Segment
from tests.language_models import ADAPTER, Expected, folder_of
from tests.unit.cli_process import run_here

PROMPT = "panorama"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return folder_of(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def tokens(folder):
    """onnxruntime's 8 most likely tokens."""
    return Expected(folder).tokens(Generator.load(folder, ADAPTER).tokens_of(PROMPT), 8)


@pytest.fixture(scope="module")
def answer(folder, tokens):
    """These tokens as text."""
    return Generator.load(folder, ADAPTER).model.tokenizer.decode(tokens)


def generate(folder, *options):
    return run_here("generate", folder, "--adapter", ADAPTER, "--max-tokens", "8", *options)


def test_the_text_is_printed_and_the_speed_beside_it(folder, answer):
    process = generate(folder, "--prompt", PROMPT)
    assert (process.returncode, process.stdout) == (0, f"{answer}\n")
    assert re.search(
        r"prompt \d+ tokens in [\d.]+ m?s .*, with compiling\); 8 tokens, [\d,.]+ tokens/s; memory 0.3 MiB",
        process.stderr,
    )


def test_json(folder, answer, tokens):
    result = json.loads(generate(folder, "--prompt", PROMPT, "--json", "--context", "64").stdout)
    assert result["completions"] == [{"prompt": PROMPT, "text": answer, "tokens": tokens}]
    assert (result["context"], result["statistics"]["tokens"]) == (64, 8)
    assert result["memory"]["total_bytes"] > result["memory"]["cache_bytes"] == 64 * 2 * 512


def test_a_file_of_prompts(folder, answer, tokens, tmp_path):
    batch = tmp_path / "prompts.txt"
    batch.write_text(f"{PROMPT}\n\nanother\n")
    lines = generate(folder, "--batch", batch).stdout.split("[2] ")
    assert lines[0] == f"[1] {PROMPT}\n{answer}\n\n"
    assert lines[1].startswith("another\n")
    completions = json.loads(generate(folder, "--batch", batch, "--json").stdout)["completions"]
    assert completions[0] == {"prompt": PROMPT, "text": answer, "tokens": tokens}
    assert [len(completion["tokens"]) for completion in completions] == [8, 8]


def test_sampling_options_reach_the_generator(folder, answer):
    options = "--prompt", PROMPT, "--temperature", "2", "--top-k", "50", "--top-p", "0.95", "--seed", "3"
    first = generate(folder, *options)
    assert first.stdout == generate(folder, *options).stdout != f"{answer}\n"
    stopped = generate(folder, "--prompt", PROMPT, "--stop", answer[1:3])
    assert stopped.stdout == f"{answer[: answer.index(answer[1:3])]}\n"


def test_ctrl_c_keeps_the_text_so_far(folder, answer, monkeypatch):
    run = Generator.generate

    def interrupted(generator, prompt, **options):
        yield next(run(generator, prompt, **options))
        raise KeyboardInterrupt

    monkeypatch.setattr(Generator, "generate", interrupted)
    process = generate(folder, "--prompt", PROMPT)
    assert (process.returncode, process.stdout) == (INTERRUPTED, f"{answer[0]}\n")
    assert "tokens/s" in process.stderr


def test_a_conversation_goes_on_after_an_interrupt(folder, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO("hello\nagain\n\nlast\n"))
    generator = Generator.load(folder, ADAPTER)
    monkeypatch.setattr(verb, "load", lambda *arguments: generator)
    chat, messages = generator.chat, []

    def interrupted(conversation, **options):
        messages.append([message["role"] for message in conversation])
        for number, piece in enumerate(chat(conversation, **options)):
            if len(messages) == 1 and number == 1:
                raise KeyboardInterrupt
            yield piece

    monkeypatch.setattr(generator, "chat", interrupted)
    verb.generate(folder, ADAPTER, options={"max_tokens": 8})
    assert messages == [["user"], ["user", "assistant", "user"], ["user", "assistant", "user", "assistant", "user"]]
    assert " ...\n" in capsys.readouterr().out


def test_messages_without_an_answer_are_forgotten(folder, monkeypatch, capsys):
    """Interrupted before the first token, while kernels are compiled for example."""
    monkeypatch.setattr("sys.stdin", io.StringIO("hello\nagain\n"))
    generator = Generator.load(folder, ADAPTER)
    monkeypatch.setattr(verb, "load", lambda *arguments: generator)
    prefill, lengths = generator._decoding.prefill, []

    def interrupted(prompts, reused):
        lengths.append(len(prompts[0]))
        if len(lengths) == 1:
            raise KeyboardInterrupt
        return prefill(prompts, reused)

    monkeypatch.setattr(generator._decoding, "prefill", interrupted)
    verb.generate(folder, ADAPTER, options={"max_tokens": 4})
    errors = capsys.readouterr().err.splitlines()
    assert lengths[1] == len(generator.chat_tokens([{"role": "user", "content": "again"}]))
    assert re.fullmatch(r"prompt \d+ tokens; memory .*", errors[0])
    assert "4 tokens" in errors[1]


def test_an_interrupt_ends_the_spinner(folder, monkeypatch):
    ended = []

    def interrupted(segment):
        raise KeyboardInterrupt

    @contextlib.contextmanager
    def compiling(self, segment):
        try:
            yield
        finally:
            ended.append(segment)

    monkeypatch.setattr(CompileStatus, "compiling", compiling)
    monkeypatch.setattr(Segment, "prepared", property(interrupted))
    with pytest.raises(KeyboardInterrupt), CompileStatus.shown():
        Generator.load(folder, ADAPTER).generate_tokens([5, 6]).__next__()
    assert len(ended) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--prompt", "x", "--batch", "FILE"), "--prompt and --batch cannot be combined"),
        (("--json",), "--json needs --prompt or --batch"),
        (("--batch", "EMPTY"), "must have a prompt per line, got none"),
        (("--prompt", "x", "--context", "1000"), "context must be from 2 to 160, got 1000"),
        (("--prompt", "x" * 300), "prompt must have at most 159 tokens for a context of 160, got"),
        (("--prompt", "x", "--top-p", "0"), "top_p must be above 0 and at most 1, got 0.0"),
    ],
)
def test_wrong_options_are_one_sentence(folder, options, message, tmp_path):
    (tmp_path / "FILE").write_text("x")
    (tmp_path / "EMPTY").write_text("\n")
    paths = [str(tmp_path / option) if option in ("FILE", "EMPTY") else option for option in options]
    process = generate(folder, *paths)
    assert process.returncode == USAGE
    assert message in process.stderr.splitlines()[-1]


def test_wrong_prompts_print_no_text(folder):
    for option in ((), ("--json",)):
        process = generate(folder, "--prompt", "", *option)
        assert (process.returncode, process.stdout) == (USAGE, "")
        assert "tokens/s" not in process.stderr


def test_wrong_options_are_reported_before_the_model_is_loaded(tmp_path):
    process = generate(tmp_path / "absent", "--prompt", "x", "--top-p", "0")
    assert process.stderr == "dmlgpu: generate: top_p must be above 0 and at most 1, got 0.0\n"
    process = generate(tmp_path / "absent", "--prompt", "x", "--stop", "")
    assert process.stderr == "dmlgpu: generate: stop must be strings that are not empty, got ['']\n"


def test_prompts_from_standard_input(folder, answer, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(f"{PROMPT}\n".encode())))
    assert generate(folder, "--prompt", "-").stdout == f"{answer}\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a\xff")))
    assert "--prompt: standard input must be text in UTF-8" in generate(folder, "--prompt", "-").stderr


def test_piped_conversations_fail_with_their_messages(folder, monkeypatch):
    for text, message in (("", "standard input must have a message per line, got none"), ("x" * 300, "at most 159")):
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        process = generate(folder)
        assert process.returncode == USAGE
        assert message in process.stderr
        assert "Ctrl-C" not in process.stderr


def test_a_file_of_json_lines(folder, answer, tmp_path):
    batch = tmp_path / "prompts.jsonl"
    batch.write_text(f'{{"prompt": "{PROMPT}"}}\n\n"two\\nlines"\n')
    completions = json.loads(generate(folder, "--batch", batch, "--json").stdout)["completions"]
    assert [completion["prompt"] for completion in completions] == [PROMPT, "two\nlines"]
    assert completions[0]["text"] == answer
    for line, message in (("{", "line 1: must be JSON"), ("7", 'must be a string or {"prompt": "..."}, got 7')):
        batch.write_text(line)
        assert message in generate(folder, "--batch", batch).stderr


def test_escapes_of_stop_strings(monkeypatch):
    called = []
    monkeypatch.setattr(verb, "generate", lambda *arguments, options, **others: called.append(options["stop"]))
    generate("absent", "--prompt", "x", "--stop", r"\n\n", "--stop", r"\\n", "--stop", r"\d")
    assert called == [["\n\n", r"\n", r"\d"]]


def test_run_names_the_verb_for_language_models(folder, tmp_path):
    for path in (folder, tmp_path / "model.gguf"):
        assert run_here("run", path).stderr.endswith(f"for a language model: dmlgpu generate {path}\n")


def test_show_says_what_contexts_need(folder):
    text = run_here("show", folder, "--adapter", ADAPTER).stdout
    assert "float32, a row per token of the context" in text
    assert re.search(r"160 \(default\) +0\.2 MiB +0\.3 MiB +yes", text)
    shown = json.loads(run_here("show", folder, "--adapter", ADAPTER, "--json").stdout)
    assert [row["context"] for row in shown["contexts"]] == [20, 40, 80, 160]
    assert shown["contexts"][-1]["cache_bytes"] == 160 * 2 * 512
    assert "only --adapter and --json" in run_here("show", folder, "--full").stderr


def test_show_says_what_does_not_fit(folder, monkeypatch):
    monkeypatch.setenv("DMLGPU_MEMORY_BUDGET", "250000")
    text = run_here("show", folder, "--adapter", ADAPTER).stdout
    assert re.search(r"80 .* yes\n", text)
    assert re.search(r"160 \(default\).* no\n", text)
    assert "does not fit 'NumPy" in text


def test_the_demo_makes_a_model(monkeypatch):
    process = run_here("demo", "generate", "--layers", "1", "--width", "64", "--tokens", "4", "--adapter", ADAPTER)
    assert process.returncode == 0
    assert "no model is given: 1 layer of width 64, random 4-bit weights" in process.stdout
    assert re.search(r"again: prompt \d+ tokens \(\d+ reused\)", process.stdout)


def test_the_demo_takes_a_model(folder):
    process = run_here("demo", "generate", folder, "--tokens", "4", "--adapter", ADAPTER)
    assert "no model" not in process.stdout
    assert "first: prompt" in process.stdout


def test_the_demo_needs_whole_heads():
    process = run_here("demo", "generate", "--width", "100", "--adapter", ADAPTER)
    assert process.stderr == "dmlgpu: demo generate: --width must be a multiple of 64, got 100\n"
