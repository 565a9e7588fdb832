"""Predicting whole volumes with a trained network, split over ranks as in training."""
