"""Forecasts: what training takes on grids of ranks, and which of them are worth a look.

A network, a machine and a data set come in, ranked forecasts go out. Read training, then forecast.
"""
