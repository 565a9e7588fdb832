"""Populations: several trainers of one plan, which play a tournament, as jobs of their own.

In comes a plan of several trainers; what comes out is the best one's result, and what became of all. Begin with `jobs`;
`seat` says which trainer a process belongs to, `rounds` where checkpoints lie, `genealogy` draws what happened.
"""
