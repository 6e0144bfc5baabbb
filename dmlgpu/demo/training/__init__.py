"""A network that learns handwritten digits: forward, backward and ADAM in DirectML's operators, one graph per step."""
