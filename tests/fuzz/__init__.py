"""Fuzzing: random calls in child processes, so that an abort, a hang or a blow-up of memory is a finding with a seed.

``targets`` says what is tried, ``monitor`` what a call may do, ``child`` runs seeds in a process, ``campaign`` starts
such processes and gathers what they find, ``corpus`` keeps what was found.
"""
