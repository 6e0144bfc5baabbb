"""The command line. ``main`` is the entry point, ``app`` declares commands and options; one module per command."""
