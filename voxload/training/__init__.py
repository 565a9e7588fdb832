"""The training run behind the train and demo commands."""
