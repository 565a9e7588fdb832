"""Peers: blocks out of the tiers of other ranks on the same line.

A group and a key come in; a block goes out, or the answer why not. Read address first, then node (ranks of this
node), client and server (TCP), mpi.
"""
