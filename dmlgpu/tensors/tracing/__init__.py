"""Functions of tensors become graphs: ``compile`` traces them, and keeps what it traced."""
