"""The training run behind the train and demo commands.

In comes a TrainingPlan, out come weights, checkpoints and a TrainingResult. Read run first: one rank's loop. Doors:
plan, result, worker (starts it), plots, and for inference checkpoint, data and normalisation.
"""
