"""The services of several nodes together: each block has one of them for its home, which reads it for all.

In come members, as what the site has tells of them; out go blocks of other nodes. Read ring first, then hashing, which
says where a block's home is, and members, by whom services meet.
"""
