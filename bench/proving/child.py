"""One part: ``python -m bench.proving.child PART DEVICE OUTPUT LIMIT [FAULT]``."""

from __future__ import annotations

import faulthandler
import importlib
import sys
from pathlib import Path

from bench.proving.told import Setting, Teller

TOLD = "told-{}.jsonl"
"""Name of the file in the output folder that a part writes to."""
_EARLIER = 2.0
"""Seconds before its limit at which a part that hangs says where."""


def main(name: str, device: str, output: str, limit: str, fault: str = "") -> None:
    """Run a part; what it raises ends the process."""
    print(f"{name} on {device}, for at most {limit} s", flush=True)
    faulthandler.enable()
    faulthandler.dump_traceback_later(max(0.1, float(limit) - _EARLIER))
    setting = Setting(device, Path(output), is_small=device == "cpu", limit=float(limit))
    importlib.import_module(f"bench.proving.{name}").prove(setting, Teller(setting.output / TOLD.format(name), fault))


if __name__ == "__main__":
    main(*sys.argv[1:])
