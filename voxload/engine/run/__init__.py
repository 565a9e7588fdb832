"""Forward and backward of one rank: differentiable messages, sums and statistics, halos under way meanwhile.

Blocks and plans of `arithmetic` come in, blocks go out. Read collectives first; handshake is what every pass begins
with.
"""
