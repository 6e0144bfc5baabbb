"""``torch.Stream``, ``torch.Event`` and ``torch.accelerator`` on the device, which has one queue."""

from __future__ import annotations

import time
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch, which the device is for, is not installed")
pytest.importorskip("dmlgpu.torch", reason="the installed PyTorch is older than 2.13")


@pytest.mark.parametrize("kind", [torch.Event, torch.dml.Event])
def test_events_measure_time(kind: Any) -> None:
    start, middle, end = (kind("dml", enable_timing=True) for _ in range(3))
    start.record()
    time.sleep(0.02)
    middle.record()
    torch.ones(3, device="dml").add_(1)
    end.record(torch.accelerator.current_stream())
    end.synchronize()
    assert all(event.query() and event.device == torch.device("dml:0") for event in (start, middle, end))
    total = start.elapsed_time(end)
    assert start.elapsed_time(middle) >= 20
    assert total == pytest.approx(start.elapsed_time(middle) + middle.elapsed_time(end))


def test_events_without_times() -> None:
    event, timed = torch.Event("dml"), torch.dml.Event(enable_timing=True)
    assert event.query()  # as PyTorch's: nothing was recorded
    event.record()
    event.wait()
    event.synchronize()
    assert event.query()
    # as PyTorch's own events
    with pytest.raises(ValueError, match="Both events must be created with argument 'enable_timing=True'"):
        event.elapsed_time(timed)
    with pytest.raises(ValueError, match="Both events must be recorded before calculating elapsed time"):
        timed.elapsed_time(timed)
    with pytest.raises(RuntimeError, match="events of the dml device are not shared between processes"):
        torch.Event("dml", interprocess=True)


def test_streams_are_the_queue_of_their_device() -> None:
    stream, other = torch.Stream("dml"), torch.dml.Stream(device="dml:1", priority=-1)
    assert isinstance(stream, torch.Stream) and isinstance(stream, torch.dml.Stream)
    assert stream == torch.dml.current_stream() == torch.accelerator.current_stream() == torch.dml.default_stream("dml")
    assert stream != other and len({stream, torch.Stream("dml:0"), other}) == 2
    assert (other.device, other.device_index) == (torch.device("dml:1"), 1)
    with other as entered:
        assert entered is other and torch.ones(1, device="dml").device.index == 1
        with torch.dml.stream(stream), torch.dml.stream(None):
            assert torch.ones(1, device="dml").device.index == 0
        assert torch.accelerator.current_device_index() == 1
    x = torch.ones(2, device="dml").mul_(3)
    x.record_stream(stream)
    other.wait_stream(stream)
    other.wait_event(stream.record_event())
    stream.synchronize()
    assert stream.query() and x.tolist() == [3, 3]


def test_the_accelerators_device() -> None:
    try:
        torch.accelerator.set_device_index(1)
        assert torch.dml.current_device() == torch.accelerator.current_device_index() == 1
        with torch.accelerator.device_index(0), torch.accelerator.device_index(None):
            assert torch.accelerator.current_stream() == torch.dml.current_stream(0)
        torch.accelerator.set_stream(torch.dml.Stream(0))
        assert torch.dml.current_device() == 0
        torch.accelerator.set_device_index(-1)
        assert torch.dml.current_device() == 0
    finally:
        torch.dml.set_device(0)
    with pytest.raises(RuntimeError, match="dml device 99 does not exist"):
        torch.dml.Stream("dml:99")


def test_streams_and_events_of_other_devices_are_pytorchs() -> None:
    stream, event = torch.Stream("cpu"), torch.Event("cpu")
    assert type(stream) is torch._C.Stream and type(event) is torch._C.Event
    assert isinstance(stream, torch.Stream) and not isinstance(stream, torch.dml.Stream)
    assert issubclass(torch._C.Stream, torch.Stream) and issubclass(torch._C.Event, torch.Event)

    class Own(torch.Event):  # type: ignore[misc, name-defined]
        pass

    assert type(Own("cpu")) is Own


def test_the_module_lists_its_own_names() -> None:
    names = dir(torch.dml)
    assert names == sorted(torch.dml.__all__)
    assert not {"os", "sys", "torch", "secrets", "Any", "adapters"} & set(names)
    assert all(hasattr(torch.dml, name) for name in names)
