"""Sharing: one cache for several jobs, whose futures are merged; pure, as all planning is.

In come the orders in which jobs will use units, and what happened; out go reads and drops. Read events first, then
future, which says when one job uses what, and planner.
"""
