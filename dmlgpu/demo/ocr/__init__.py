"""Text found and read in a picture by the PP-OCRv4 models, which DirectML's operators compute."""
