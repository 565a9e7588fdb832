"""Simulation: what a policy costs on a machine, in virtual time; pure.

In come a machine, a workload and placements; out comes a ledger of bytes and times. training is the exact model,
event by event, steps the coarse one. Others import voxload.prefetch.simulate; here read machine and workload first.
"""
