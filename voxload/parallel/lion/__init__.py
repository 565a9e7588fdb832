"""Lion whose updates, not gradients, are what sample groups tell each other, in few bits.

In come the parameters, their gradients and the grid; what goes out are weights that are equal on all ranks. Begin with
`optimiser`; `levels` says what a number becomes, `wire` who sends what to whom.
"""
