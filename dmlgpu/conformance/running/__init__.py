"""Run cases on devices: in child processes, compared with the reference, recorded as JSON Lines."""
