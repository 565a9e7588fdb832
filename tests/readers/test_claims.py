"""Claims: metadata that speak of huge sizes are refused before anything is allocated for them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.support import processes
from tests.support.damage.claims import claims

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def raised() -> dict[str, str]:
    """Read all claims in one process, which may allocate 64 MiB."""
    command = [sys.executable, "-m", "tests.support.damage.claims"]
    found: dict[str, str] = json.loads(
        processes.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    )
    return found


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("claim", [name for name, _, _ in claims()])
def test_a_claim_is_refused_and_not_allocated(claim: str, raised: dict[str, str]) -> None:
    """What no data can hold is an error of the data's owner, not of memory that was asked for and not there."""
    assert raised[claim].startswith("DataError: ")
    assert "; copy or convert" in raised[claim]
