"""All ways to carry out the calls of a network, where each layer may use the axes of the grid otherwise.

Read calls first, which finds them; network runs each on tensors without data, for whoever prices them.
"""
