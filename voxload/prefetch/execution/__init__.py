"""Execution: what a planner says is done with threads, tiers, peers and readers.

In come a planner and RankPlans; out come filled slots, step by step. Others import executor, the contracts in
resources, and threadpool. Read executor first.
"""
