"""Sizes as symbols: what is computed for some sizes is recorded, and follows for others.

    arithmetic  numbers that record arithmetic and decisions, and replays for other values
    recordings  the door: recordings of a function for sizes of one kind
    named       sizes with names and without values, for graphs that are built once
    networks    networks apart from their integers
    programs    programs of networks that were planned on symbols, and the kernels of their steps

The first three know nothing of the compiler, which decides by sizes with the functions of ``arithmetic``.
"""
