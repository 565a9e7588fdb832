"""Simulation: training and its planners in virtual time, over a described machine; pure."""
