"""Fuzzing: random calls in child processes, so that an abort, a hang or a blow-up of memory is a finding with a seed.

``targets`` says what is tried, ``monitor`` what a call may do, ``child`` runs seeds in a process, ``campaign`` starts
such processes and gathers their findings, ``corpus`` keeps past findings.
"""
