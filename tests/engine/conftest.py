"""What the engine's tests share: one thread, and real ranks in processes of their own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.ranks import RANK, Ended, run_ranks

Launch = Callable[..., list["Outcome"]]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Keep small operations on one core; more threads only slow them down."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@dataclass
class Outcome:
    """How one rank's process ended."""

    status: int
    """Exit status."""
    report: dict[str, Any]
    """What the rank wrote."""
    output: str
    """What the rank printed."""


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    """Return a function that runs a script as several ranks and returns how each ended."""

    def run(script: str, ranks: int) -> list[Outcome]:
        ended = run_ranks(Path(__file__).parent / script, RANK, str(ranks), tmp_path, ranks=ranks)
        return [_outcome(tmp_path, rank, one) for rank, one in enumerate(ended)]

    return run


def _outcome(folder: Path, rank: int, ended: Ended) -> Outcome:
    """Collect what a rank left behind."""
    report = folder / f"report-{rank}.json"
    found = json.loads(report.read_text()) if report.exists() else {}
    return Outcome(ended.status, found, ended.out + ended.errors)
