"""The command line: ``main`` starts it, ``app`` declares the verbs and options, one module each does a verb's work."""
