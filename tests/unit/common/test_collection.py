"""Pauses of the garbage collector."""

from __future__ import annotations

import gc
import threading

import pytest

from dmlgpu.common.collection import collection_paused


@pytest.fixture(autouse=True)
def _enabled():
    assert gc.isenabled()
    yield
    gc.enable()


def test_collection_pauses_until_the_last_context_ends():
    with collection_paused():
        with collection_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_it_continues_after_an_exception():
    with pytest.raises(KeyError), collection_paused():
        raise KeyError
    assert gc.isenabled()


def test_it_stays_disabled_where_it_was():
    gc.disable()
    with collection_paused():
        pass
    assert not gc.isenabled()


def test_threads_share_a_pause():
    entered, leave = threading.Event(), threading.Event()

    def pause() -> None:
        with collection_paused():
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=pause)
    with collection_paused():
        thread.start()
        assert entered.wait(10)
    assert not gc.isenabled()
    leave.set()
    thread.join()
    assert gc.isenabled()
