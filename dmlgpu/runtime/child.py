"""Base classes of all objects: name, private data, device (DirectML: IDMLObject, IDMLDeviceChild)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

from dmlgpu.common import coercion
from dmlgpu.common.errors import InvalidArgument, abridged, shown
from dmlgpu.runtime.state import DeviceState

if TYPE_CHECKING:
    from dmlgpu.runtime.device import Device

NAME = coercion.optional(coercion.text)
"""Validates a name."""


class DmlObject:
    """An object with a name and private data (DirectML: IDMLObject)."""

    _kind = "object"
    """Noun of the object in messages, before its name."""

    def __init__(self, name: str | None = None):
        self._name = name
        self._private_data: dict[Hashable, Any] = {}

    @property
    def name(self) -> str | None:
        """Name in error messages and traces (IDMLObject::SetName). Raises InvalidArgument if it is not a string."""
        return self._name

    @name.setter
    def name(self, name: str | None) -> None:
        self._name = coercion.argument(self.description, "name", NAME, name)

    def set_private_data(self, key: Hashable, data: Any) -> None:
        """Store an object under a key (IDMLObject::SetPrivateData).

        Args:
            key: Any hashable object.
            data: The object; None deletes the entry.

        Raises:
            InvalidArgument: If the key is not hashable.
        """
        self.get_private_data(key)
        if data is None:
            self._private_data.pop(key, None)
        else:
            self._private_data[key] = data

    def get_private_data(self, key: Hashable) -> Any:
        """Return the object stored under a key, or None (IDMLObject::GetPrivateData).

        Args:
            key: Any hashable object.

        Raises:
            InvalidArgument: If the key is not hashable.
        """
        try:
            return self._private_data.get(key)
        except Exception:  # whatever a foreign __hash__ or __eq__ raises
            raise InvalidArgument(f"{self.description}: key must be hashable, got {shown(key)}") from None

    @property
    def description(self) -> str:
        """Noun and name of the object in messages."""
        return f"{self._kind} {abridged(self._name)!r}" if self._name else self._kind

    def __repr__(self) -> str:
        return f"<{self.description}>"


class DeviceChild(DmlObject):
    """An object that belongs to one device (DirectML: IDMLDeviceChild). Creating one on a removed device raises
    DeviceRemoved."""

    def __init__(self, device: Device, state: DeviceState, name: str | None = None):
        super().__init__(name)
        if not isinstance(state, DeviceState):
            raise InvalidArgument(f"{type(self).__name__}: cannot be created directly; use a method of Device")
        state.check()
        self._device, self._state = device, state

    @property
    def device(self) -> Device:
        """The device that created the object (IDMLDeviceChild::GetDevice)."""
        return self._device


def as_tuple(caller: str, argument: str, values: Any, what: str) -> tuple[Any, ...]:
    """Return the values of a sequence.

    Args:
        caller, argument: Names in messages.
        what: Kind of the values, in messages.

    Raises:
        InvalidArgument: If it is not a sequence, or has more than ``coercion.MAX_ENTRIES`` values.
    """
    limit = ""
    if isinstance(values, Sequence) and not isinstance(values, str | bytes):
        try:
            if len(values) <= coercion.MAX_ENTRIES:
                return tuple(values)
            limit = f"at most {coercion.MAX_ENTRIES:,} "
        except Exception:  # whatever a foreign sequence raises
            pass
    raise InvalidArgument(f"{caller}: {argument} must be a sequence of {limit}{what}, got {type(values).__name__}")


def expect_child(caller: str, argument: str, value: object, cls: type[DeviceChild], state: DeviceState) -> None:
    """Check that an argument is an object of the right class and of this device.

    Args:
        caller: Name of the caller, in messages.
        argument: Name of the argument.

    Raises:
        InvalidArgument: If class or device differ.
    """
    if not isinstance(value, cls):
        article = "an" if cls.__name__[0] in "AEIOU" else "a"
        raise InvalidArgument(f"{caller}: {argument} must be {article} {cls.__name__}, got {type(value).__name__}")
    if value._state is not state:
        raise InvalidArgument(
            f"{caller}: {argument}, {value.description}, belongs to another device ({value._state.label}) "
            f"than {state.label}; objects of two devices cannot be mixed"
        )
