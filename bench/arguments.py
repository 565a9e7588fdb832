"""Old name of bench/harness/script.py."""

from __future__ import annotations

from bench.harness.script import folder, names, number

__all__ = ["folder", "names", "number"]
