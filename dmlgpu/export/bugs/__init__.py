"""Bug reports for the developers of drivers: folders with a failing case that run without dmlgpu."""

from dmlgpu.export.bugs.writing import BugReport, write_bug_report

__all__ = ["BugReport", "write_bug_report"]
