"""What the compiler does to graphs: each pass is a function, has a name, can be left out, and explains itself."""
