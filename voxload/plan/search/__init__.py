"""Which of several ways each layer is to be split, so that the whole costs least.

Costs of layers and of what moves between them come in, a choice for each layer goes out. Read choices first.
"""
