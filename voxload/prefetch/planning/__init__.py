"""Planning: one rank's plan becomes fetches, stores and drops, event by event; pure.

In come RankPlans and events; out come instructions, which voxload.prefetch.execution or a simulation carries out.
Others import planner and limits. Read planner first, then state.
"""
