"""The executor that runs on the GPU of a browser with an open page.

A server (``server.py``) serves the page and connects its WebSocket to that of an executor (``backend.py``), which may
be in another process. ``frames.py`` defines the messages, ``facts.py`` validates a page's description of its GPU.
"""
