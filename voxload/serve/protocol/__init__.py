"""What clients and the service say to each other: messages, in packets, with what is too long for one in memory beside.

Nothing here knows what is done about it. Read messages first; blocktable says what blocks are called.
"""
