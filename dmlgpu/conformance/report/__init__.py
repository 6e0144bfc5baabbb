"""Runs side by side: operators by adapters, what is wrong and how to see it again; what changed between two runs.

A report is a page, Markdown or JUnit XML; the templates and scripts are in ``pages/``.
"""
