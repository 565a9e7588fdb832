"""Tiers: places near a rank that keep blocks, and the peers that lend theirs.

A BlockKey comes in, a block goes out, or the answer no. Read protocol first. Other rooms import what stands here
(protocol, codec, form), memory.tier, disk.tier, and of peer: address, client, server, mpi, node, shelf, tls.
"""
