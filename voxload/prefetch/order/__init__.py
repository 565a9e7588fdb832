"""Order: which batches each sample group will draw, in this epoch and those behind it.

In comes torch's loader, whose sampler is replayed on copies; out come arrays of sample numbers. Read source first;
simulations take replays.shuffled_orders. Where locality is asked for, dealing gives a step's samples to who keeps them.
"""
