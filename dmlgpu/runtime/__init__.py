"""DirectML's objects in Python's manner: devices, operators, binding tables, command lists, queues, fences, buffers."""
