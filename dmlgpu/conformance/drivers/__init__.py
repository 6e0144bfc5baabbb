"""The adapters of all of the machine's drivers: how they are found, and how they are compared with each other."""
