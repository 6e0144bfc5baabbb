"""The executor in a browser's page: whoever opens the page lends its GPU.

A server (``server.py``) gives the page out and joins its WebSocket with that of an executor (``backend.py``), which may
be in another process. ``frames.py`` says what is spoken, ``facts.py`` what a page may say about itself.
"""
