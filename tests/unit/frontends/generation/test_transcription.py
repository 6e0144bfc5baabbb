"""Speech to text against transformers: features, rules of timestamps and windows, languages; the command line."""

import json
import sys

import numpy as np
import pytest

from dmlgpu.cli import transcribe as verb
from dmlgpu.common.errors import InvalidArgument, NotSupported
from dmlgpu.frontends.generation.log_mel import HOP, RATE, log_mel
from dmlgpu.frontends.generation.transcription import (
    NO_FALLBACK,
    SpeechAnswer,
    SpeechFallback,
    SpeechTokens,
    TranscribedSegment,
    Transcriber,
    cut,
    limit,
    sampled,
)
from dmlgpu.runtime.device import Device
from tests.language_models import ADAPTER

TOKENS = {"eos": 280, "sot": 281, "en": 282, "de": 283, "translate": 284, "transcribe": 285, "plain": 290}
BEGIN, WINDOW = 291, 40


def with_transformers():
    pytest.importorskip("torch", reason="torch runs the model")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "torchvision", None)  # not needed; it fails to import beside another torch
        return pytest.importorskip("transformers", reason="transformers has the model")


def sound(seconds, seed=0):
    """A sweep with noise and pauses."""
    times = np.arange(int(seconds * RATE)) / RATE
    noise = np.random.default_rng(seed).standard_normal(len(times))
    sweep = np.sin(2 * np.pi * (100 + 600 * times) * times) * (np.sin(5 * times) > 0)
    return (0.3 * sweep + 0.01 * noise).astype(np.float32)


# ---- features


@pytest.mark.slow
@pytest.mark.parametrize(("bands", "seconds"), [(80, 30.0), (128, 31.37)])
def test_features_equal_those_of_transformers(bands, seconds):
    extractor = with_transformers().WhisperFeatureExtractor(feature_size=bands)
    audio = sound(seconds)
    expected = extractor(audio, sampling_rate=RATE, truncation=False, padding="longest")["input_features"][0]
    features = log_mel(audio, bands, Device(ADAPTER))
    assert features.shape == (bands, len(audio) // HOP)
    np.testing.assert_allclose(features, expected, rtol=0, atol=1e-4)


# ---- rules


def speech_tokens(latest_first=5):
    return SpeechTokens(TOKENS["sot"], TOKENS["eos"], TOKENS["plain"], latest_first, {}, {})


def histories():
    """Answers so far: all with up to four tokens of text and times, in any order."""
    rng = np.random.default_rng(2)
    yield from ([], [BEGIN], [BEGIN + 3, 7], [BEGIN, 7, BEGIN + 4], [BEGIN, 7, BEGIN + 4, BEGIN + 4])
    for count in rng.integers(1, 9, 40):
        yield [int(token) if token < 12 else BEGIN + int(token) - 12 for token in rng.integers(1, 24, count)]


@pytest.mark.slow
@pytest.mark.parametrize("latest", [None, 5])
def test_rules_of_timestamps_are_those_of_transformers(latest):
    transformers = with_transformers()
    import torch

    config = transformers.GenerationConfig(
        no_timestamps_token_id=TOKENS["plain"], eos_token_id=TOKENS["eos"], max_initial_timestamp_index=latest
    )
    rules = transformers.generation.logits_process.WhisperTimeStampLogitsProcessor(config, begin_index=1)
    rng = np.random.default_rng(1)
    for history in histories():
        logits = rng.standard_normal(320) * 3
        expected = rules(torch.tensor([[TOKENS["sot"], *history]]), torch.tensor(logits)[None])[0].numpy()
        limit(logits, history, speech_tokens(latest))
        np.testing.assert_array_equal(logits, expected, err_msg=str(history))


@pytest.mark.slow
def test_windows_are_cut_as_by_transformers():
    transformers = with_transformers()
    import torch

    model = transformers.WhisperForConditionalGeneration
    for history in histories():
        if not history:
            continue
        segments, offset = model._retrieve_segment(
            torch.tensor(history), [{}], [0.0], BEGIN, [WINDOW], 0.02, 0.01, 2, 0, 0, False, torch.zeros(1, 1)
        )
        parts, frames = cut(history, WINDOW, BEGIN)
        assert frames == int(offset), history
        for (start, end, _), segment in zip(parts, segments, strict=True):
            assert (start, end) == pytest.approx((float(segment["start"]), float(segment["end"]))), history
        # transformers adds the timestamp that begins the next segment to the last one
        assert [list(part) for *_, part in parts] == [
            segment["tokens"].tolist()[: len(part)] for (*_, part), segment in zip(parts, segments, strict=True)
        ]


# ---- a random model


def write_tokenizer(folder):
    from tokenizers import Tokenizer, decoders, models

    names = {f"w{index}": index for index in range(TOKENS["eos"])}
    specials = {"eos": "<|endoftext|>", "sot": "<|startoftranscript|>", "plain": "<|notimestamps|>"}
    names |= {specials.get(name, f"<|{name}|>"): token for name, token in TOKENS.items()}
    names["[UNK]"] = 286
    tokenizer = Tokenizer(models.WordLevel(names, "[UNK]"))
    tokenizer.decoder = decoders.Fuse()
    tokenizer.save(str(folder / "tokenizer.json"))


@pytest.fixture(scope="module")
def speech(tmp_path_factory):
    """A folder with a random model for windows of 0.4 seconds, and the model."""
    with_transformers()
    from tests.encoder_decoder_export import export, model_of

    model = model_of("whisper")
    folder = tmp_path_factory.mktemp("models") / "whisper"
    special = {"eos_token_id": TOKENS["eos"], "pad_token_id": TOKENS["eos"], "decoder_start_token_id": TOKENS["sot"]}
    settings = {"suppress_tokens": [5, 6], "begin_suppress_tokens": [7], **special}
    model.config.update(settings)
    settings |= {
        "max_length": 96,
        "no_timestamps_token_id": TOKENS["plain"],
        "max_initial_timestamp_index": 5,
        "is_multilingual": True,
        "lang_to_id": {"<|en|>": TOKENS["en"], "<|de|>": TOKENS["de"]},
        "task_to_id": {"translate": TOKENS["translate"], "transcribe": TOKENS["transcribe"]},
    }
    for name, value in settings.items():
        setattr(model.generation_config, name, value)
    export(model, folder)
    model.generation_config.save_pretrained(folder)
    write_tokenizer(folder)
    yield folder, model


def copied(folder, copy, without):
    """A copy of a folder without a file."""
    copy.mkdir()
    for file in folder.iterdir():
        if file.name != without:
            (copy / file.name).symlink_to(file)
    return copy


def expected_segments(model, audio, **options):
    import torch
    import transformers

    extractor = transformers.WhisperFeatureExtractor(feature_size=8)
    features = extractor(audio, sampling_rate=RATE, truncation=False, padding="longest", return_tensors="pt")
    with torch.no_grad():
        result = model.generate(features["input_features"], return_segments=True, return_timestamps=True, **options)
    return result["segments"][0]


def text_of(tokens):
    return "".join(f"w{token}" for token in tokens if token < TOKENS["eos"])


def assert_equal(segments, expected):
    """Compare segments with those of transformers, which has empty ones as well."""
    expected = [segment for segment in expected if text_of(segment["tokens"].tolist())]
    assert [segment.text for segment in segments] == [text_of(segment["tokens"].tolist()) for segment in expected]
    times = [(float(segment["start"]), float(segment["end"])) for segment in expected]
    assert [(segment.start, segment.end) for segment in segments] == [pytest.approx(pair) for pair in times]


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{"task": "transcribe"}, {"language": "de"}, {"language": "en", "task": "translate"}]
)
def test_long_audio_is_transcribed_as_by_transformers(speech, options):
    folder, model = speech
    transcriber, audio = Transcriber(folder, Device(ADAPTER)), sound(1.7)
    segments = list(transcriber.transcribe(audio, fallback=NO_FALLBACK, **options))
    assert_equal(segments, expected_segments(model, audio, **options))
    assert len(segments) > 2 and transcriber.language == options.get("language", transcriber.language)
    assert transcriber.language in ("en", "de")


@pytest.mark.slow
def test_short_audio_is_one_segment_without_timestamps(speech, tmp_path):
    import torch
    import transformers

    folder, model = speech
    audio = sound(0.3, seed=4)
    settings = json.loads((folder / "generation_config.json").read_text())
    settings["suppress_tokens"] += range(BEGIN, 320)  # a trained model has none here
    copy = copied(folder, tmp_path / "copy", "generation_config.json")
    (copy / "generation_config.json").write_text(json.dumps(settings))
    (segment,) = Transcriber(copy, Device(ADAPTER)).transcribe(audio, language="en", fallback=NO_FALLBACK)
    extractor = transformers.WhisperFeatureExtractor(feature_size=8)
    padded = np.pad(audio, (0, WINDOW * HOP - len(audio)))
    features = extractor(padded, sampling_rate=RATE, truncation=False, padding="longest", return_tensors="pt")
    with torch.no_grad():
        (tokens,) = model.generate(
            features["input_features"], language="en", suppress_tokens=settings["suppress_tokens"]
        ).tolist()
    assert len(tokens) > 9
    assert segment.text == text_of(tokens) and (segment.start, segment.end) == (0.0, 0.3)


# ---- fallbacks


@pytest.mark.slow
@pytest.mark.parametrize(
    ("margin", "no_speech"), [(-0.01, 0.001), (0.01, 0.001), (0.01, 0.0045), (-0.01, None), (0.01, None)]
)
def test_windows_are_rejected_and_skipped_as_by_transformers(speech, margin, no_speech):
    """By its own decision, on the same answer, whose mean log probability is above or below the threshold."""
    import torch
    from transformers.generation.logits_process import WhisperNoSpeechDetection

    _, model = speech
    rng = np.random.default_rng(3)
    scores = rng.standard_normal((6, 320)) * 2
    tokens = [int(row.argsort()[-4]) for row in scores]
    logs = scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)
    mean = float(np.mean([row[token] for row, token in zip(logs, tokens, strict=True)]))
    logprob = mean + margin
    detection = WhisperNoSpeechDetection(TOKENS["plain"] - 1, 1)
    detection._no_speech_prob = [0.0044]

    class Settings:
        compression_ratio_threshold, logprob_threshold, no_speech_threshold = None, logprob, no_speech

    expected = model._need_fallback(
        torch.tensor(tokens), [{"scores": list(torch.tensor(scores))}], 0, [detection], Settings, 320, 0.0
    )
    fallback, answer = SpeechFallback((0.0,), None, logprob, no_speech), SpeechAnswer(tokens[:-1], mean, 0.0044)
    assert (fallback.rejects(answer, ""), fallback.is_silent(answer)) == tuple(map(bool, expected))


def test_text_that_repeats_itself_is_rejected():
    answer = SpeechAnswer([1, 2], -0.1, 0.0)
    assert SpeechFallback().rejects(answer, "I think so. " * 12)
    assert not SpeechFallback().rejects(answer, "She sells sea shells by the sea shore, and the weather is sunny.")
    assert not SpeechFallback().rejects(answer, "")
    assert not NO_FALLBACK.rejects(answer, "I think so. " * 12)


def test_tokens_are_sampled_by_their_probabilities():
    logits, rng = np.log([0.2, 0.0001, 0.5, 0.2999]), np.random.default_rng(0)
    assert sampled(logits, 0.0, rng) == 2
    for temperature in (0.5, 1.0):
        expected = np.exp(logits / temperature) / np.exp(logits / temperature).sum()
        counts = np.bincount([sampled(logits, temperature, rng) for _ in range(4000)], minlength=4)
        np.testing.assert_allclose(counts / 4000, expected, atol=0.03)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("thresholds", "is_sampled"),
    [((-1.1, None), True), ((-1.1, 0.0005), True), ((-1.0, 0.001), True), ((-9.0, None), False)],
)
def test_long_audio_is_sampled_again_as_by_transformers(speech, monkeypatch, thresholds, is_sampled):
    """Both draw from the same random numbers, by inverting the cumulative probabilities.

    With the most likely tokens, the first window has a mean log probability of -1.16 and a probability of no speech of
    0.0001, the second one -1.09 and 0.0043, the third one -1.13 and 0.0029.
    """
    import torch

    folder, model = speech
    rng, draws = np.random.default_rng(0), []

    def multinomial(probabilities, num_samples):
        sums = probabilities[0].double().numpy().cumsum()
        draws.append(int(np.searchsorted(sums, rng.random() * sums[-1], side="right")))
        return torch.tensor([draws[-1:]])

    audio, temperatures, (logprob, no_speech) = sound(1.7), (0.0, 0.4, 1.0), thresholds
    with monkeypatch.context() as patch:
        patch.setattr(torch, "multinomial", multinomial)
        expected = expected_segments(
            model,
            audio,
            language="de",
            temperature=temperatures,
            logprob_threshold=logprob,
            no_speech_threshold=no_speech,
            top_k=0,
        )
    assert bool(draws) == is_sampled
    fallback = SpeechFallback(temperatures, None, logprob, no_speech)
    assert_equal(
        list(Transcriber(folder, Device(ADAPTER)).transcribe(audio, language="de", fallback=fallback)), expected
    )


@pytest.mark.slow
def test_wrong_requests_are_rejected(speech, tmp_path):
    folder, _ = speech
    transcriber = Transcriber(folder, Device(ADAPTER))
    with pytest.raises(InvalidArgument, match="language must be one of de, en, got 'fr'"):
        transcriber.transcribe(sound(0.1), language="fr")
    with pytest.raises(InvalidArgument, match="audio must be samples of one channel"):
        transcriber.transcribe(np.zeros((2, 5), np.float32))
    with pytest.raises(InvalidArgument, match=r"temperatures must be numbers of at least 0, got \(0.2, -1.0\)"):
        transcriber.transcribe(sound(0.1), fallback=SpeechFallback((0.2, -1.0)))
    with pytest.raises(InvalidArgument, match=r"task must be transcribe, .*, got 'sing'"):
        transcriber.transcribe(sound(0.1), task="sing")
    for name in ("tokenizer.json", "generation_config.json"):
        copy = copied(folder, tmp_path / name, name)
        if name == "tokenizer.json":
            with pytest.raises(NotSupported, match="needs a folder of Whisper with"):
                Transcriber(copy, Device(ADAPTER))
        else:  # tokens by their names; the vocabulary is too small for several languages
            transcriber = Transcriber(copy, Device(ADAPTER))
            assert list(transcriber.transcribe(sound(0.1), fallback=NO_FALLBACK))
            with pytest.raises(InvalidArgument, match=r"language must be omitted, .* one language only, got 'de'"):
                transcriber.transcribe(sound(0.1), language="de")


# ---- the command line


class Spoken:
    """In place of a model: two segments."""

    memory = "memory 1 MiB"
    language = "en"

    def __init__(self, source, device):
        pass

    def transcribe(self, audio, **options):
        self.options = options
        yield TranscribedSegment(0.0, 2.5, " Hello,")
        yield TranscribedSegment(3599.98, 3661.0004, " world.")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "Hello,\nworld.\n"),
        (
            {"timestamps": True},
            "[00:00:00.000 --> 00:00:02.500] Hello,\n[00:59:59.980 --> 01:01:01.000] world.\n",
        ),
        (
            {"srt": True},
            "1\n00:00:00,000 --> 00:00:02,500\nHello,\n\n2\n00:59:59,980 --> 01:01:01,000\nworld.\n\n",
        ),
    ],
)
def test_the_command_line_prints_segments(monkeypatch, tmp_path, capsys, options, text):
    monkeypatch.setattr("dmlgpu.frontends.generation.transcription.Transcriber", Spoken)
    monkeypatch.setattr(verb, "read_audio", lambda path: np.zeros(RATE, np.float32))
    verb.transcribe(tmp_path, tmp_path / "a.wav", "numpy", **options)
    captured = capsys.readouterr()
    assert captured.out == text and "1.0 s of audio in " in captured.err and captured.err.endswith("language en\n")


@pytest.mark.parametrize(("fallback", "expected"), [(True, None), (False, NO_FALLBACK)])
def test_the_command_line_may_take_the_most_likely_tokens(monkeypatch, tmp_path, fallback, expected):
    options = {}

    class Listening(Spoken):
        def transcribe(self, audio, **arguments):
            options.update(arguments)
            return iter(())

    monkeypatch.setattr("dmlgpu.frontends.generation.transcription.Transcriber", Listening)
    monkeypatch.setattr(verb, "read_audio", lambda path: np.zeros(RATE, np.float32))
    verb.transcribe(tmp_path, tmp_path / "a.wav", "numpy", fallback=fallback)
    assert options["fallback"] == expected


def test_the_command_line_rejects_two_formats(tmp_path):
    with pytest.raises(InvalidArgument, match="--timestamps and --srt cannot be combined"):
        verb.transcribe(tmp_path, tmp_path / "a.wav", "numpy", timestamps=True, srt=True)


def test_a_missing_package_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(InvalidArgument, match="needs the extra `dmlgpu\\[audio\\]`"):
        verb.read_audio(tmp_path / "a.wav")


@pytest.mark.slow
@pytest.mark.parametrize(("suffix", "rate"), [("wav", 16000), ("flac", 44100), ("wav", 8000)])
def test_sound_files_are_read(tmp_path, suffix, rate):
    soundfile = pytest.importorskip("soundfile", reason="soundfile reads sound (extra audio)")
    tone = np.sin(2 * np.pi * 440 * np.arange(rate) / rate)
    path = tmp_path / f"tone.{suffix}"
    soundfile.write(path, np.stack([0.5 * tone, 0.1 * tone], axis=1), rate)
    samples = verb.read_audio(path)
    assert samples.shape == (RATE,) and samples.dtype == np.float32
    expected = 0.3 * np.sin(2 * np.pi * 440 * np.arange(RATE) / RATE)
    np.testing.assert_allclose(samples[500:-500], expected[500:-500], atol=3e-3)


@pytest.mark.slow
def test_other_files_are_rejected(tmp_path):
    soundfile = pytest.importorskip("soundfile", reason="soundfile reads sound (extra audio)")
    (tmp_path / "a.wav").write_bytes(json.dumps([1]).encode())
    soundfile.write(tmp_path / "empty.wav", np.zeros((0, 1)), RATE)
    for name, message in (("a.wav", "must be a sound file"), ("b.wav", "'.*b.wav' is no file"), ("empty.wav", "got 0")):
        with pytest.raises(InvalidArgument, match=f"AUDIO .*{message}"):
            verb.read_audio(tmp_path / name)
