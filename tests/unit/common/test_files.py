"""Files are written atomically; full disks raise."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import numpy as np
import pytest

from dmlgpu.common.files import growing_file, whole_file, write_array, write_bytes

FULL = Path("/dev/full")
full = pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")


@pytest.fixture
def small_disk(limited_files) -> None:
    """Limit files to 64 KiB."""
    limited_files(1 << 16)


def test_a_file_gets_its_name_once_it_is_complete(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")
    path.chmod(0o640)
    with whole_file(path) as stream:
        stream.write(b"new")
        stream.flush()
        assert path.read_bytes() == b"old"
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"new", 0o640)
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_fails_leaves_the_old_one(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt), whole_file(path) as stream:
        stream.write(b"new")
        raise KeyboardInterrupt
    assert [(file, file.read_bytes()) for file in tmp_path.iterdir()] == [(path, b"old")]


@pytest.mark.parametrize("content", [b"x" * 100_000, b"x" * (1 << 20)], ids=["at the end", "on the way"])
def test_a_full_disk_leaves_the_old_file(tmp_path, small_disk, content):
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")
    with pytest.raises(OSError, match="File too large") as caught, whole_file(path) as stream:
        for start in range(0, len(content), 1000):
            stream.write(content[start : start + 1000])
    assert caught.value.filename == str(path)
    assert [(file, file.read_bytes()) for file in tmp_path.iterdir()] == [(path, b"old")]


def test_new_files_have_the_rights_of_new_files(tmp_path):
    with whole_file(tmp_path / "a"), growing_file(tmp_path / "b"):
        pass
    (tmp_path / "c").touch()
    assert len({file.stat().st_mode for file in tmp_path.iterdir()}) == 1


def test_links_stay_links(tmp_path):
    (tmp_path / "link").symlink_to("file")
    with whole_file(tmp_path / "link") as stream:
        stream.write(b"1")
    with growing_file(tmp_path / "link") as text:
        text.write("2")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "file").read_bytes() == b"2"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["file", "link"]


def test_a_growing_file_can_be_read_and_remains_beside_the_old_one_after_an_exception(tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), growing_file(path) as stream:
        print("1", file=stream, flush=True)
        assert (path.read_text(), (tmp_path / "run.jsonl.part").read_text()) == ("old", "1\n")
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert (tmp_path / "run.jsonl.part").read_text() == "1\n"


def test_a_growing_file_on_a_full_disk_remains_next_to_the_old_one(tmp_path, small_disk):
    path = tmp_path / "run.jsonl"
    path.write_text("old")
    with pytest.raises(OSError, match="File too large") as caught, growing_file(path) as stream:
        for _ in range(100):
            print("x" * 999, file=stream, flush=True)
    assert caught.value.filename == f"{path}.part"
    assert path.read_text() == "old"
    assert Path(f"{path}.part").stat().st_size == 1 << 16


@full
@pytest.mark.parametrize("opened", [whole_file, growing_file])
def test_devices_are_written_not_replaced(opened):
    before = FULL.stat()
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"), opened(FULL) as stream:
        stream.write("x" if opened is growing_file else b"x")
    assert FULL.stat().st_rdev == before.st_rdev


@pytest.mark.parametrize("opened", [whole_file, growing_file])
def test_errors_name_files_that_cannot_be_opened(tmp_path, opened):
    (tmp_path / "file").touch()
    for path, error in (
        (tmp_path / "none" / "a", FileNotFoundError),
        (tmp_path / "file" / "a", NotADirectoryError),
        (tmp_path, IsADirectoryError),
    ):
        with pytest.raises(error) as caught, opened(path):
            pass
        assert caught.value.filename == str(path)


def test_files_that_may_not_be_written_are_not_replaced(tmp_path, monkeypatch):
    path = tmp_path / "a"
    path.write_text("old")
    monkeypatch.setattr(os, "access", lambda *_: False)  # who runs as root may write everything
    with pytest.raises(PermissionError), whole_file(path):
        pass
    assert [file.read_text() for file in tmp_path.iterdir()] == ["old"]


ARRAYS = (
    np.arange(6.0).reshape(2, 3),
    np.asfortranarray(np.arange(6).reshape(2, 3)),
    np.float16(3)[()],
    np.zeros((0, 2)),
)


@pytest.mark.parametrize("array", ARRAYS, ids=["C", "Fortran", "scalar", "empty"])
def test_arrays_are_written_as_numpy_reads_them(tmp_path, array):
    with whole_file(tmp_path / "a.npy") as stream:
        write_array(stream, np.asarray(array))
    loaded = np.load(tmp_path / "a.npy")
    assert (loaded.dtype, loaded.shape) == (array.dtype, array.shape)
    np.testing.assert_array_equal(loaded, array)


@full
@pytest.mark.parametrize("write", [write_array, write_bytes])
def test_arrays_on_a_full_disk(write):
    with pytest.raises(OSError, match="No space left"), FULL.open("wb") as stream:
        write(stream, np.zeros(100_000))
