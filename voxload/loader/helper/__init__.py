"""The helper process: reader threads that never take the interpreter lock of the loop that they read for."""

from __future__ import annotations
