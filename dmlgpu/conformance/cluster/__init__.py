"""Cases on the workers of a Dask cluster.

``worker`` is what happens on a worker, ``registry`` knows the workers and their adapters, ``shards`` is the queue of
one adapter's cases, and ``cluster`` brings them together on the machine that asks.
"""
