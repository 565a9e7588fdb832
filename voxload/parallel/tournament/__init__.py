"""Tournaments: several trainers, each on data of its own, that from time to time keep the better of two models.

In come a trainer's tensors and its judgement of them; what comes out is which model it goes on with. Begin with
`tournament`; `draws` says who meets whom, `meeting` how they find each other or give up, `exchange` how models travel.

A trainer is a world of torch.distributed by itself, of sample groups x blocks. Trainers know each other through a store
alone: so one that is slow or dead costs others a model to compare with, and nothing else.
"""
