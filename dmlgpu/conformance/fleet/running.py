"""What a worker of a fleet does with a shard of cases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dmlgpu.conformance.fleet.announcing import taken
from dmlgpu.conformance.outcome import Outcome
from dmlgpu.conformance.session import Job, run_session


def run_shard(job: Job, resource: str, names: Sequence[str], workers: int) -> tuple[Outcome, ...]:
    """Run cases in child processes of the Dask worker in which this runs.

    Args:
        job: with the suite and limits; adapter and environment are this worker's.
        resource: under which the adapter was announced.
        workers: children at once.

    Raises:
        LookupError: when this worker has not announced the adapter.
    """
    with taken(resource) as place:
        there = replace(job, adapter=place.number, environment=dict(place.environment))
        return tuple(run_session(there, names, workers))
