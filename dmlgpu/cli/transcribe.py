"""``dmlgpu transcribe``: transcribe speech in a sound file."""

from __future__ import annotations

import math
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dmlgpu.cli.devices import choose_adapter
from dmlgpu.cli.run import frontend
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.runtime.device import Device

if TYPE_CHECKING:
    from dmlgpu.frontends.generation.transcription import TranscribedSegment

_RATE = 16_000
_MAX_SAMPLES = 2**30
"""Maximum number of samples of all channels of a file."""


def transcribe(
    source: Path,
    audio: Path,
    adapter: str | None,
    *,
    language: str | None = None,
    translate: bool = False,
    timestamps: bool = False,
    srt: bool = False,
    fallback: bool = True,
) -> None:
    """Print speech as text, each segment as soon as it is known.

    Args:
        source: Folder of the model.
        audio: Sound file.
        adapter: Part of an adapter's name, or its index; None selects the default.
        language: Code of the language; None to detect it.
        translate: Translate into English.
        timestamps: Print the times of segments.
        srt: Print subtitles.
        fallback: Sample unlikely answers again, and skip windows without speech.

    Raises:
        InvalidArgument: If a package is missing, or the file or an option is unusable.
        DmlError: As ``Transcriber``.
    """
    if timestamps and srt:
        raise InvalidArgument("transcribe: --timestamps and --srt cannot be combined")
    frontend()
    from dmlgpu.frontends.generation.transcription import NO_FALLBACK, Transcriber  # noqa: PLC0415 - an extra

    samples = read_audio(audio)
    device = Device(choose_adapter(adapter))
    transcriber = Transcriber(source, device)
    print(f"{source.resolve().name} on '{device.adapter}', {transcriber.memory}", file=sys.stderr, flush=True)
    start = time.perf_counter()
    segments = transcriber.transcribe(
        samples,
        language=language,
        task="translate" if translate else "transcribe",
        has_timestamps=timestamps or srt,
        fallback=None if fallback else NO_FALLBACK,
    )
    for number, segment in enumerate(segments, 1):
        text = segment.text.strip()
        if srt:
            print(f"{number}\n{_times(segment, ',')}\n{text}\n", flush=True)
        else:
            print(f"[{_times(segment, '.')}] {text}" if timestamps else text, flush=True)
    seconds = time.perf_counter() - start
    suffix = f", language {transcriber.language}" if transcriber.language else ""
    print(f"{len(samples) / _RATE:.1f} s of audio in {seconds:.1f} s{suffix}", file=sys.stderr)


def read_audio(path: Path) -> NDArray[np.float32]:
    """Return the samples {count} of a sound file, of the mean of its channels at 16,000 per second.

    Raises:
        InvalidArgument: If a package is missing, or the file does not exist, is no sound, too long, or empty.
    """
    try:
        import soundfile  # noqa: PLC0415 - an extra
        from scipy.signal import resample_poly  # noqa: PLC0415 - likewise
    except ImportError as error:
        raise InvalidArgument(f"transcribe needs the extra `dmlgpu[audio]`: {error}") from None
    if not path.is_file():
        raise InvalidArgument(f"transcribe: AUDIO must be a sound file, such as WAV or FLAC: {str(path)!r} is no file")
    try:
        info = soundfile.info(str(path))
        if not 0 < info.frames * info.channels <= _MAX_SAMPLES:
            raise InvalidArgument(
                f"transcribe: AUDIO must have 1 to {_MAX_SAMPLES:,} samples, got {info.frames:,} of {info.channels} "
                f"channels in {str(path)!r}"
            )
        samples, rate = soundfile.read(str(path), dtype="float32", always_2d=True)
    except (soundfile.SoundFileError, OSError) as error:
        raise InvalidArgument(f"transcribe: AUDIO must be a sound file, such as WAV or FLAC: {error}") from None
    mono = samples.mean(axis=1)
    if rate != _RATE:
        divisor = math.gcd(rate, _RATE)
        mono = resample_poly(mono, _RATE // divisor, rate // divisor)
    return np.ascontiguousarray(mono, np.float32)


def _times(segment: TranscribedSegment, point: str) -> str:
    """Return start and end as ``00:00:03.600 --> 00:00:08.440``."""
    return " --> ".join(_time(seconds, point) for seconds in (segment.start, segment.end))


def _time(seconds: float, point: str) -> str:
    whole, milliseconds = divmod(round(1000 * seconds), 1000)
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}{point}{milliseconds:03}"
