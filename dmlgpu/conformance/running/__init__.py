"""How a case is run on a device: in child processes, compared with the reference, recorded as JSON Lines."""
