"""Storage that is measured: it is gone afterwards, and in a file that both commands read."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from tests.plan.platform.test_files import CALIBRATION
from voxload.errors import UsageError
from voxload.plan.calibration import storage
from voxload.plan.calibration.storage import measure_storage
from voxload.plan.platform import files
from voxload.plan.platform.calibration import MeasuredStorage
from voxload.prefetch import machines

MEASURED = MeasuredStorage(2e-4, ((1, 4e8), (2, 7e8), (4, 9e8)), ((1, 8e9), (2, 12e9)), 3e8, 2**33)


def test_a_folder_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By one reader, as many as ranks and twice as many; memory is faster than decoding, and nothing stays behind."""
    monkeypatch.setattr(storage, "_FILE", 2**24)
    monkeypatch.setattr(storage, "_COPIED", 2**22)
    (tmp_path / "probe").touch()
    try:
        os.close(os.open(tmp_path / "probe", os.O_RDONLY | os.O_DIRECT))
    except OSError:  # a file system in memory: there is nothing to measure
        with pytest.raises(UsageError, match="without direct reads"):
            measure_storage(tmp_path, 2)
        return
    finally:
        (tmp_path / "probe").unlink()
    found = measure_storage(tmp_path, 2)
    for rates in (found.reads, found.copies):
        assert [count for count, _ in rates] == [1, 2, 4]
        assert min(rate for _, rate in rates) > 0
    assert found.latency > 0
    assert max(rate for _, rate in found.copies) > found.decoding > 0
    assert found.room > 0
    assert not list(tmp_path.iterdir())


def test_room_is_asked_for_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that would be filled is left as it is."""
    monkeypatch.setattr(storage, "_FILE", 2**60)
    with pytest.raises(UsageError, match=r"--storage .* free, expected .*name another folder"):
        measure_storage(tmp_path, 1)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_none_is_named(tmp_path: Path) -> None:
    """Before anything is measured: a calibration takes minutes."""
    with pytest.raises(UsageError, match=r"--storage .*nowhere: found no such folder"):
        measure_storage(tmp_path / "nowhere", 1)


def test_what_was_measured_is_what_simulations_read(tmp_path: Path) -> None:
    """Rates, latency and decoding; what a step takes is for voxload plan to say, and asked for by voxload simulate."""
    path = tmp_path / "machine.toml"
    files.write(CALIBRATION, path, name="box", day=date(2026, 1, 2), storage=MEASURED)
    found = files.load(str(path)).storage
    assert found is not None
    assert found.storage.latency == MEASURED.latency
    assert [found.storage.read.of(count) for count in (1, 2, 4)] == [4e8, 7e8, 9e8]
    assert found.memory.nbytes == MEASURED.room
    assert [found.memory.write.of(count) for count in (1, 2)] == [8e9, 12e9]
    assert found.staging.decode == MEASURED.decoding
    assert found.network.rate == pytest.approx(1e9, rel=0.01)
    assert found.ranks_per_node == CALIBRATION.ranks
    with pytest.raises(UsageError, match="compute"):
        machines.load(str(path))
    path.write_text(path.read_text() + "\n[compute]\nseconds_per_step = 0.2\n")
    assert machines.load(str(path)).step_seconds(1) == 0.2
    alone = replace(CALIBRATION, sharing=CALIBRATION.sharing[:1])
    files.write(alone, path, name="box", day=date(2026, 1, 2), storage=MEASURED)
    assert files.load(str(path)).storage is not None
    files.write(alone, path, name="box", day=date(2026, 1, 2))
    assert files.load(str(path)).storage is None
