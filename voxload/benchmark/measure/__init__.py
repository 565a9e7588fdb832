"""Measurements: what each rank records step by step, what the kernel counts beside it, and what both come to.

Out goes a `Document`, the result as JSON. Read record.py first.
"""
