"""Headers of GGUF files, and the exceptions of damaged and hostile files."""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

gguf: Any = pytest.importorskip("gguf", reason="GGUF files need the package gguf")

from gguf.constants import GGMLQuantizationType as Kind  # noqa: E402
from gguf.constants import GGUFValueType  # noqa: E402

from dmlgpu.common.errors import DmlError, ModelError, NotSupported  # noqa: E402
from dmlgpu.frontends.generation import gguf as front_end  # noqa: E402
from dmlgpu.frontends.generation.generator import Generator  # noqa: E402
from dmlgpu.frontends.generation.gguf.files import read_file  # noqa: E402
from tests.damaged_files import damaged  # noqa: E402
from tests.gguf_models import write_quantized  # noqa: E402
from tests.language_models import ADAPTER  # noqa: E402

MAX_MEMORY = 64 << 20


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("gguf") / "small.gguf"
    write_quantized(path, "llama", {"attn_q": Kind.Q4_K, "output": Kind.Q6_K}, layers=1)
    return path


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def header(tensors: int, keys: int, rest: bytes = b"", version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, keys) + rest


def key(name: str, kind: GGUFValueType, value: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + value


def tensor(name: str, sizes: tuple[int, ...], kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, kind, offset)


def test_agrees_with_the_package(small: Path) -> None:
    file, reader = read_file(small), gguf.GGUFReader(small)
    names = [name for name in reader.fields if not name.startswith("GGUF.")]
    assert list(file.metadata) == names
    for name in names:
        assert file.metadata[name] == reader.fields[name].contents()
    assert list(file.tensors) == [tensor.name for tensor in reader.tensors]
    for other in reader.tensors:
        own = file.tensors[other.name]
        assert own.kind is other.tensor_type
        assert own.shape == tuple(other.shape.tolist()[::-1])
        np.testing.assert_array_equal(own.data.reshape(-1), other.data.view(np.uint8).reshape(-1))
    assert file.size == small.stat().st_size


def test_values(tmp_path: Path) -> None:
    path = tmp_path / "values.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_bool("flag", True)
    writer.add_float64("double", 0.1)
    writer.add_int64("large", -(2**40))
    writer.add_array("texts", ["a", "\u2581b"])
    writer.add_array("scores", [1.5, -2.0])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    metadata = read_file(path).metadata
    assert metadata["flag"] is True
    assert (metadata["double"], metadata["large"], metadata["texts"]) == (0.1, -(2**40), ["a", "\u2581b"])
    assert metadata["scores"].tolist() == [1.5, -2.0]


def test_split_models(tmp_path: Path) -> None:
    for index in range(2):
        writer = gguf.GGUFWriter(tmp_path / f"m-{index + 1:05}-of-00002.gguf", "llama")
        writer.add_uint16("split.no", index)
        writer.add_uint16("split.count", 2)
        writer.add_tensor(f"part{index}", np.full(4, index, np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    first, second = (tmp_path / f"m-{index:05}-of-00002.gguf" for index in (1, 2))
    file = read_file(first)
    assert list(file.tensors) == ["part0", "part1"]
    assert file.size == first.stat().st_size + second.stat().st_size
    with pytest.raises(ModelError, match=r"is part 2 of 2: pass the path of the first, NAME-00001-of-00002.gguf"):
        read_file(second)
    second.unlink()
    with pytest.raises(ModelError, match=r"m-00002-of-00002.gguf: does not exist"):
        read_file(first)


HOSTILE = {
    "empty": (b"", "is empty, not a GGUF file"),
    "short": (b"GGU", "is not a GGUF file"),
    "other": (b"PK\3\4" + bytes(60), "is not a GGUF file: its first bytes are not 'GGUF'"),
    "version": (header(0, 0, version=1), "GGUF version must be 2 or 3, got 1"),
    "byte order": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "its byte order is big-endian"),
    "tensors": (header(2**62, 0), f"{2**62} tensors do not fit into the remaining 0 bytes"),
    "keys": (header(0, 2**63), f"{2**63} metadata do not fit into the remaining 0 bytes"),
    "name": (header(0, 1, struct.pack("<Q", 2**60) + bytes(20)), "bytes from byte 32 on are outside the file"),
    "array": (
        header(0, 1, key("a", GGUFValueType.ARRAY, struct.pack("<IQ", GGUFValueType.UINT8, 2**60))),
        f"{2**60} elements do not fit into the remaining 0 bytes",
    ),
    "texts": (
        header(0, 1, key("a", GGUFValueType.ARRAY, struct.pack("<IQ", GGUFValueType.STRING, 2**40))),
        f"{2**40} elements do not fit",
    ),
    "nested": (
        header(0, 1, key("a", GGUFValueType.ARRAY, struct.pack("<IQ", GGUFValueType.ARRAY, 1) * 5 + bytes(40))),
        "nested more than 4 deep",
    ),
    "value": (header(0, 1, key("a", 77, bytes(8))), "type 77 of a value before byte 37 is unknown"),  # type: ignore[arg-type]
    "text": (header(0, 1, key("a", GGUFValueType.STRING, struct.pack("<Q", 2) + b"\xff\xfe")), "is not UTF-8"),
    "twice": (header(0, 2, 2 * key("a", GGUFValueType.UINT8, b"\1")), "metadata 'a' occur twice"),
    "tensor twice": (header(2, 0, 2 * tensor("t", (1,)) + bytes(64)), "tensor 't' occurs twice"),
    "rank": (header(1, 0, tensor("t", (1,) * 9)), "tensor 't' must have 1 to 4 dimensions, got 9"),
    "sizes": (header(1, 0, tensor("t", (2**40, 2**40, 2**40))), "is truncated or damaged: tensor 't' with shape"),
    "wrapping": (header(1, 0, tensor("t", (2**32, 2**32)) + bytes(64)), "is truncated or damaged: tensor 't'"),
    "zero": (header(1, 0, tensor("t", (0, 4))), "must have rows of a multiple of 1 elements"),
    "blocks": (
        header(1, 0, tensor("t", (33, 2), Kind.Q4_0) + bytes(64)),
        "multiple of 32 elements (Q4_0), got shape [2, 33]",
    ),
    "offset": (header(1, 0, tensor("t", (4,), 0, 2**63) + bytes(64)), "is truncated or damaged: tensor 't'"),
    "quantization": (header(1, 0, tensor("t", (32,), 4711)), "tensor 't' has the unknown quantization type 4711"),
    "alignment": (
        header(0, 1, key("general.alignment", GGUFValueType.UINT32, struct.pack("<I", 0))),
        "general.alignment must be an integer from 1 to",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_headers(name: str, tmp_path: Path) -> None:
    content, message = HOSTILE[name]
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    tracemalloc.start()
    with pytest.raises(ModelError if name not in ("version", "byte order", "quantization") else NotSupported) as info:
        read_file(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert message in str(info.value)
    assert "\n" not in str(info.value)
    assert peak < 1 << 20


def test_missing_files(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"^none.gguf: does not exist$"):
        read_file(tmp_path / "none.gguf")
    with pytest.raises(ModelError, match=r": is not a file$"):
        read_file(tmp_path)


def test_pointers_of_git_lfs(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    with pytest.raises(ModelError, match=r"is a pointer of Git LFS: run 'git lfs pull' in its folder$"):
        read_file(path)


def header_size(path: Path) -> int:
    """Bytes before the tensors."""
    return int(min(tensor.data_offset for tensor in gguf.GGUFReader(path).tensors))


def test_truncated_files(small: Path, tmp_path: Path) -> None:
    content = small.read_bytes()
    end, path = header_size(small), tmp_path / "cut.gguf"
    places = [*range(0, end, 7), *np.linspace(end, len(content) - 1, 20).astype(int)]
    for place in places:
        path.write_bytes(content[:place])
        with pytest.raises(ModelError) as info:
            front_end.read(path)
        assert "\n" not in str(info.value)
        assert len(str(info.value)) < 400


@pytest.mark.slow
def test_flipped_bytes(small: Path, tmp_path: Path) -> None:
    """Any byte of the header may be wrong: the file is read or rejected, in little memory."""
    content, path = small.read_bytes(), tmp_path / "flipped.gguf"
    end, random = header_size(small), np.random.default_rng(2)
    rejected = 0
    tracemalloc.start()
    for index in range(0, end, 3):
        damaged = bytearray(content)
        damaged[index] ^= int(random.integers(1, 256))
        path.write_bytes(damaged)
        try:
            front_end.read(path)
        except DmlError as error:
            rejected += 1
            assert "\n" not in str(error), index
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert rejected > end // 3 // 2
    assert peak < MAX_MEMORY


@pytest.mark.slow
def test_damaged_files_are_used_or_rejected(small: Path, tmp_path: Path) -> None:
    """Any content of a file gives tokens or an error message."""
    content, path, random = small.read_bytes(), tmp_path / "damaged.gguf", np.random.default_rng(5)
    outcomes = {"used": 0, "rejected": 0}
    for _ in range(60):
        path.write_bytes(damaged(content, random))
        try:
            generator = Generator.load(path, ADAPTER, context=32)
            outcomes["used"] += len(list(generator.generate_tokens([5, 6, 7], max_tokens=1)))
        except DmlError as error:
            outcomes["rejected"] += 1
            assert "\n" not in str(error) and len(str(error)) < 600
    assert min(outcomes.values()) > 10


def test_long_names_are_abridged(tmp_path: Path) -> None:
    path = tmp_path / "long.gguf"
    path.write_bytes(header(1, 0, tensor("\0" * 5000, (1,) * 9)))
    with pytest.raises(ModelError) as info:
        read_file(path)
    assert len(str(info.value)) < 200
