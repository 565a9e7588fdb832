"""The node's block service: who is connected to it, what is kept for them, and how both sides talk.

In come connections to a Unix socket and the orders of jobs, out go blocks in memory that clients map. Read
protocol.messages first, then sessions, door, which lets clients in, and keeping.keeper, which reads for them;
attachment and client are a client's side, service is all of the daemon. Doors: asking, client, place, service,
protocol.blocktable.
"""
