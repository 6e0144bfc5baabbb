"""The scheduler of a Dask cluster. Needs the package ``distributed``: ``pip install dmlgpu[cluster]``."""

from __future__ import annotations

from typing import Any

from distributed import Client
from distributed.comm import parse_address
from distributed.comm.registry import get_backend

from dmlgpu.common.errors import InvalidArgument

CONNECT_LIMIT = 10.0
"""Seconds for a scheduler to answer."""


def connect(address: str) -> Client:
    """A connection to a cluster's scheduler, such as ``tcp://10.0.0.1:8786``.

    Raises:
        InvalidArgument: If no scheduler answers there.
    """
    try:
        get_backend(parse_address(address)[0])  # rejects addresses that a client would fail on
        return Client(address, timeout=CONNECT_LIMIT, set_as_default=False)
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"no Dask scheduler answers at {address!r}: {error}") from error


def workers(client: Client) -> dict[str, Any]:
    """Return a scheduler's information about its workers, by address; empty while it does not answer."""
    # Queried directly: `Client.scheduler_info` sometimes returns cached data without workers.
    if client.scheduler is None:  # the connection broke
        return {}
    try:
        identities: dict[str, Any] = client.sync(client.scheduler.identity, n_workers=-1)["workers"]
    except OSError:
        return {}
    return identities
