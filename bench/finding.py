"""Old name of bench/harness/findings.py."""

from __future__ import annotations

from bench.harness.findings import Finding, at_least, at_most

__all__ = ["Finding", "at_least", "at_most"]
