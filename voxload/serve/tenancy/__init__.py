"""Tenancy: one service for all users of a node, each of whom has a process, memory and rights of their own.

In come connections of anybody, out they go to a process with the rights of who connected: what a user says is looked at
there, what they want is read there, and what is kept for them lies in memory that only their processes are given. The
process of root's, which lets all in, looks at nothing that they say. Read front first, then tenant and nursery; orders
is what these say to each other, allotment who may use how much.
"""
