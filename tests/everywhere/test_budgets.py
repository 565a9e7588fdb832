"""Budgets bind before anything is taken: small files that claim much are refused, or cost what they are."""

from __future__ import annotations

import json

import pytest

from tests.support import scripts

BUDGETS = "tests.everywhere.budgets"
GROWTH = 2**27
"""Bytes that memory may grow while one claim is made and judged: imports of a library are among them."""
LIMITS = {
    "zarr_verified": "VOXLOAD_MAX_CHUNK_TABLE",
    "zarr_inner_chunks": "VOXLOAD_MAX_CHUNK_TABLE",
    "zarr_long_metadata": "VOXLOAD_MAX_DOCUMENT",
    "hdf5_claimed_chunks": "VOXLOAD_MAX_CHUNK_TABLE",
    "hdf5_vector": "VOXLOAD_MAX_VALUES",
    "parquet_catalogue": "VOXLOAD_MAX_TABLE",
    "parquet_targets": "VOXLOAD_MAX_TABLE",
    "parquet_vector": "VOXLOAD_MAX_TABLE",
    "text_targets": "VOXLOAD_MAX_TABLE",
}
"""Claims that a limit refuses, and the variable that raises it."""
REFUSED = {
    "zarr_empty_chunks": "DataError: ",
    "zarr_axes": "UsageError: ",
    "zarr_nested_metadata": "DataError: ",
    "parquet_footer": "ArrowInvalid: pages of 1000 values instead of 1",
    "nested_targets": "DataError: ",
}
ANSWERED = {
    "zarr_chunks": [2, 8],
    "zarr_extents": [0, 0],
    "zarr_members": [1200, True],
    "hdf5_members": [1200, 1, True],
    "hdf5_table": [20, True],
}
"""Claims that cost nothing to answer."""
PLANNED = {
    "hdf5_convert_table": "the table of the source's chunks",
    "hdf5_convert_chunk": "decoding the source's own chunks",
}
"""Conversions that do not fit, and the culprit."""


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[object, int]]:
    """Judge all claims in one process of bounded memory; return what was said and by how much its memory grew."""
    words = f"from {BUDGETS} import main; main()"
    done = scripts.run(words, tmp_path_factory.mktemp("claims"), imports=[BUDGETS])
    return {name: (said, grown) for name, (said, grown) in json.loads(done.stdout).items()}


@pytest.mark.long
def test_every_claim_is_judged_here(judged: dict[str, tuple[object, int]]) -> None:
    """What the other process tries and nobody looks at would prove nothing."""
    assert set(judged) == {*LIMITS, *REFUSED, *ANSWERED, *PLANNED}


@pytest.mark.parametrize("name", [*LIMITS, *REFUSED, *ANSWERED, *PLANNED])
def test_memory_does_not_grow_with_a_claim(name: str, judged: dict[str, tuple[object, int]]) -> None:
    """Nothing is allocated for what is claimed, whatever the answer."""
    assert judged[name][1] < GROWTH


@pytest.mark.parametrize("name", LIMITS)
def test_a_limit_says_what_it_allows_and_how_to_raise_it(name: str, judged: dict[str, tuple[object, int]]) -> None:
    """Data that need more are few, but there may be some."""
    said = str(judged[name][0])
    assert said.startswith("DataError: ")
    assert "found " in said
    assert "expected at most " in said
    assert f"set {LIMITS[name]}=" in said


@pytest.mark.parametrize("name", REFUSED)
def test_a_claim_that_nothing_can_hold_is_refused(name: str, judged: dict[str, tuple[object, int]]) -> None:
    """It is an error of the data or of the call, and never of memory that was asked for."""
    assert str(judged[name][0]).startswith(REFUSED[name])


@pytest.mark.parametrize("name", ANSWERED)
def test_what_is_claimed_costs_nothing_to_answer(name: str, judged: dict[str, tuple[object, int]]) -> None:
    """Chunks that are stored are counted, and of many volumes only the named one is looked at."""
    assert judged[name][0] == ANSWERED[name]


@pytest.mark.parametrize("name", PLANNED)
def test_a_conversion_that_does_not_fit_is_refused_first(name: str, judged: dict[str, tuple[object, int]]) -> None:
    """Before a table is read or a chunk decoded, with projected and allowed bytes and the culprit."""
    said = str(judged[name][0])
    assert said.startswith("UsageError: memory of the conversion: found ")
    assert f"of it for {PLANNED[name]}" in said
    assert "expected at most 512 MiB; use --max-memory" in said
