"""Reports of runs side by side: operators by adapters, failures, how to reproduce them, and changes between two runs.

A report is an HTML page, Markdown or JUnit XML. Templates and scripts are in ``pages/``.
"""
