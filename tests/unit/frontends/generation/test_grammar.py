"""Answers that obey a grammar: JSON, schemas and regular expressions, from a model with random weights."""

import json
import re

import pytest

from dmlgpu.common.errors import InvalidArgument
from dmlgpu.demo.language_model import DecoderSizes
from dmlgpu.frontends.generation.generator import Generator
from dmlgpu.frontends.generation.language_model import LanguageModel
from dmlgpu.frontends.generation.protocol import ProtocolError, ServedModel
from dmlgpu.frontends.generation.sampling import SamplingOptions
from dmlgpu.frontends.generation.scheduler import Request
from tests.language_models import ADAPTER, folder_of, prompt_of
from tests.unit.cli.cli_process import run_here

grammars = pytest.importorskip(
    "dmlgpu.frontends.generation.grammar", reason="llguidance is not installed", exc_type=ImportError
)
Grammar = grammars.Grammar

SIZES = DecoderSizes(
    layers=1, heads=2, kv_heads=1, head_size=16, feed_forward=32, vocabulary=320, context=160, deviation=0.5
)
SCHEMA = {
    "type": "object",
    "properties": {"river": {"enum": ["Rhine", "Nile"]}, "length": {"type": "integer", "minimum": 1, "maximum": 99}},
    "required": ["river", "length"],
    "additionalProperties": False,
}
DATE = r"20[0-9]{2}-(0[1-9]|1[0-2])"
SAMPLED = {"temperature": 1.5, "seed": 3}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return folder_of(tmp_path_factory.mktemp("model"), SIZES)


@pytest.fixture(scope="module")
def generator(folder):
    return Generator.load(folder, ADAPTER)


def check_river(text):
    """Check JSON of SCHEMA."""
    value = json.loads(text)
    assert set(value) == {"river", "length"}
    assert value["river"] in ("Rhine", "Nile")
    assert isinstance(value["length"], int)
    assert 1 <= value["length"] <= 99


@pytest.mark.parametrize(
    "options",
    [{}, SAMPLED, {**SAMPLED, "top_p": 0.9, "repetition_penalty": 1.2}, {**SAMPLED, "top_k": 3}],
    ids=["greedy", "sampled", "top_p", "top_k"],
)
def test_answers_are_json_of_a_schema(generator, options):
    texts = generator.generate_batch(
        [prompt_of(5), prompt_of(9, 1)], n=2, max_tokens=140, grammar=Grammar.json_schema(SCHEMA), **options
    )
    for text in texts:
        check_river(text.text)
        assert len(text.tokens) < 140  # the end of the object ends the answer
    assert options == {} or len({text.text for text in texts}) > 1


def test_pieces_obey_a_regular_expression(generator):
    pieces = list(generator.generate(prompt_of(5), grammar=Grammar.regex(DATE), max_tokens=20))
    assert re.fullmatch(DATE, "".join(pieces))
    assert len(pieces) > 1
    answer = "".join(generator.chat("Name a month.", grammar=Grammar.regex(DATE), max_tokens=20, seed=1))
    assert re.fullmatch(DATE, answer)
    assert generator.answers[0] == generator.model.tokenizer.encode(answer, add_special_tokens=False).ids


def test_the_next_generation_is_free_and_reuses_the_prompt(generator):
    list(generator.generate(prompt_of(30), grammar=Grammar.regex("a+b"), max_tokens=6))
    answer = generator.answers[0]
    free = list(generator.generate_tokens([*prompt_of(30), *answer], max_tokens=4))
    assert generator.statistics.reused_tokens >= 30
    (whole,) = generator.generate_batch([[*prompt_of(30), *answer]], max_tokens=4)
    assert free == list(whole.tokens)


@pytest.mark.slow
def test_requests_with_and_without_a_grammar_run_together(folder, generator):
    grammar = Grammar.json_schema(SCHEMA)
    requests = [
        Request(prompt_of(5), max_tokens=140, grammar=grammar),
        Request(prompt_of(20, 1), max_tokens=15),
        Request(prompt_of(7, 2), SamplingOptions(**SAMPLED), max_tokens=140, grammar=grammar, n=2),
    ]
    scheduler = Generator.load(folder, ADAPTER).scheduler()
    submissions = [scheduler.submit(request) for request in requests]
    while scheduler.is_busy:
        scheduler.advance()
    for request, submission in zip(requests, submissions, strict=True):
        options = {"max_tokens": request.max_tokens, "grammar": request.grammar}
        options |= SAMPLED if request.options.temperature else {}
        answers = [[] for _ in range(request.n)]
        for piece in submission.pieces():
            answers[piece.index].append(piece)
        for pieces, text in zip(
            answers, generator.generate_batch([request.prompt], n=request.n, **options), strict=True
        ):
            assert [piece.token for piece in pieces] == list(text.tokens)
            assert "".join(piece.text for piece in pieces) == text.text
            assert pieces[-1].finish == ("length" if request.grammar is None else "stop")


def test_requests_of_the_protocol_name_formats(generator):
    model = ServedModel(generator)

    def request_of(response_format):
        body = {"messages": [{"role": "user", "content": "hello"}], "response_format": response_format}
        return model.chat(json.dumps(body).encode()).requests[0]

    assert request_of({"type": "text"}).grammar is None
    described = {"name": "river", "strict": True, "schema": SCHEMA}
    for response_format in ({"type": "json_object"}, {"type": "json_schema", "json_schema": described}):
        request = request_of(response_format)
        (text,) = generator.generate_batch([request.prompt], grammar=request.grammar, max_tokens=100)
        assert text.text.lstrip().startswith("{")
    check_river(text.text)
    for wrong in ({"type": "xml"}, {"type": "json_schema"}, {"type": "json_schema", "json_schema": {"schema": []}}):
        with pytest.raises(ProtocolError, match="response_format must be") as raised:
            request_of(wrong)
        assert raised.value.param == "response_format"
    with pytest.raises(ProtocolError, match="Invalid type: river"):
        request_of({"type": "json_schema", "json_schema": {"schema": {"type": "river"}}})


def test_malformed_grammars_are_rejected(generator):
    for create, message in (
        (lambda: Grammar.json_schema("{"), "the JSON schema is malformed or not supported"),
        (lambda: Grammar.json_schema({"type": "river"}), "the JSON schema is malformed or not supported"),
        (lambda: Grammar.json_schema(" " * (1 << 21)), "must have at most 1048576 characters"),
        (lambda: Grammar.regex("("), "the regular expression is malformed or not supported"),
        (lambda: Grammar.lark("start: x"), "the Lark grammar is malformed or not supported"),
        (lambda: generator.generate("x", grammar="json"), "grammar must be a Grammar, got 'json'"),
    ):
        with pytest.raises(InvalidArgument, match=message) as raised:
            create()
        assert "\n" not in str(raised.value)
    mute = Generator(LanguageModel("tiny", generator.model.network, generator.model.config), ADAPTER)
    with pytest.raises(InvalidArgument, match="a grammar needs a tokenizer"):
        mute.generate_batch([[5]], grammar=Grammar.json())


@pytest.mark.slow
def test_the_command_line_takes_a_schema(folder, tmp_path):
    schema = tmp_path / "river.json"
    schema.write_text(json.dumps(SCHEMA))
    options = "-a", ADAPTER, "--max-tokens", "140", "--seed", "1", "--prompt", "Name a river.", "--json-schema"
    check_river(run_here("generate", folder, *options, schema).stdout)
    schema.write_text("{")
    process = run_here("generate", folder, *options, schema)
    assert process.returncode == 2
    assert "dmlgpu: grammar: the JSON schema is malformed" in process.stderr
