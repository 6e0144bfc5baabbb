"""The command line: ``main`` starts it, ``app`` declares verbs and options; a module per verb does the work."""
