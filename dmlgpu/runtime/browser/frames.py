"""Messages between executor and page: binary frames of a JSON header and bytes.

A frame is the header's length as four bytes, little-endian; the header, a JSON object in UTF-8; then bytes, of which
the header names ranges. The executor sends ``{"session", "id", "commands"}`` and gets one answer for each frame,
``{"session", "id", "results", "problems"}``, when all its commands are done.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final

from dmlgpu.common.errors import InvalidArgument

CHUNK_BYTES: Final = 16 << 20
"""Maximum bytes of one write or read; longer ones are split into several frames."""

MAX_FRAME_BYTES: Final = CHUNK_BYTES + (8 << 20)
"""Maximum bytes of a frame; a connection that sends a longer one is closed."""

MAX_HEADER_BYTES: Final = 8 << 20

_LENGTH = struct.Struct("<I")


def encode(header: Mapping[str, Any], blobs: Sequence[bytes | memoryview] = ()) -> bytes:
    """Return a frame of a JSON-serializable header and blobs in order."""
    text = json.dumps(header, separators=(",", ":")).encode()
    return b"".join((_LENGTH.pack(len(text)), text, *blobs))


def decode(frame: object) -> tuple[dict[str, Any], memoryview]:
    """Return the header and the bytes after it.

    Raises:
        InvalidArgument: No frame: not bytes, too short, too long, or a header that is no JSON object.
    """
    if not isinstance(frame, bytes):
        raise InvalidArgument(f"frame: expected bytes, got {type(frame).__name__}")
    if not _LENGTH.size <= len(frame) <= MAX_FRAME_BYTES:
        raise InvalidArgument(f"frame: expected {_LENGTH.size} to {MAX_FRAME_BYTES:,} bytes, got {len(frame):,}")
    (length,) = _LENGTH.unpack_from(frame)
    end = _LENGTH.size + length
    if length > MAX_HEADER_BYTES or end > len(frame):
        raise InvalidArgument(f"frame: a header of {length:,} bytes does not fit into {len(frame):,} bytes")
    try:
        header = json.loads(frame[_LENGTH.size : end])
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"frame: the header is no JSON: {error}") from error
    if not isinstance(header, dict):
        raise InvalidArgument(f"frame: the header must be an object, got {type(header).__name__}")
    return header, memoryview(frame)[end:]
