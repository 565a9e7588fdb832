"""Runs: a workload carried out by the ranks of a job, once, in repetitions, or over a sweep of settings.

In comes a `Request`, out goes a `Document`. Read job.py first; others import job, launch and sweep.
"""
