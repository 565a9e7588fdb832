"""Predicting whole volumes with a trained network, split over ranks as in training.

In comes an InferencePlan with a checkpoint and a catalogue, out come tables or a folder of predicted volumes. Read
worker first: one rank's pass over all samples. Doors: plan, result, worker.
"""
