"""A photograph reduced to a palette by DirectML's operators, each dispatch checked against NumPy."""
