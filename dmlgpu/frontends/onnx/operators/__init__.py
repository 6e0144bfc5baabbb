"""One module per family of ONNX operators; ``registry`` imports all of them, and finds what they register."""
