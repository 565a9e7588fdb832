"""Ranks of a job: how they are started, meet, and tell each other what they know.

In comes a plan or a launcher's environment, out come processes, a process group and values that every rank has. Read
processes first (ranks on this machine), then rendezvous (torchrun, MPI, Slurm). Doors: processes, rendezvous,
collectives, wire, devices, jobgrid; torchrun is a program.
"""
