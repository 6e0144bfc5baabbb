"""The demos, a package each: a photograph in few colours, text read from a picture, a network trained."""
