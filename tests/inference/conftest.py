"""What is trained on is predicted from: the same small catalogues, and the same watch over processes."""

from __future__ import annotations

from tests.training.conftest import catalog, labelled, no_processes_left, one_thread

__all__ = ["catalog", "labelled", "no_processes_left", "one_thread"]
