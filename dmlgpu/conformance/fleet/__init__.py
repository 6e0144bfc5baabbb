"""Cases on the workers of a Dask cluster: who has which adapter, who runs what, what becomes of a lost worker's cases.

``announcing`` and ``running`` say what happens on a worker, ``share`` keeps the books of one adapter, and ``fleet``
brings them together on the machine that asks.
"""
