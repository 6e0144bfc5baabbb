"""Benchmarks of operators, graphs, models and kernels: ``dmlgpu bench``.

A ``Workload`` describes the computation. A child process per adapter prepares it and measures rounds of dispatches on
request, so that adapters and schedules are measured interleaved, round by round. Results are ``Measurement``s, written
as JSON lines, tables and plots.
"""
