"""Old name of voxload/benchmark/measure/turns.py."""

from __future__ import annotations

from voxload.benchmark.measure.turns import Bystanders

__all__ = ["Bystanders"]
