"""Measuring operators, graphs and models: ``dmlgpu bench``.

A ``Workload`` says what is computed. A child process per adapter prepares it and measures rounds of dispatches when the
parent asks for them, so that adapters and schedules are measured in turn, round by round. What comes of it are
``Measurement``s: lines of JSON, tables, plots.
"""
