"""The node's block service: who is connected to it, and how both sides talk.

In come connections to a Unix socket, out go sessions: who somebody is, and until when they count. Read messages first,
then sessions, then door, which lets clients in, and attachment, which is a client's side.
"""
