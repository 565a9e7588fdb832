"""What moves halo slabs between ranks.

Tensors by peer go in, the peers' come out; `protocol` is the contract and is read first, `distributed` runs over
torch.distributed, `in_process` serves tests, checks and estimates.
"""
