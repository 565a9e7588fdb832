"""Sweeps: every combination, and the cheapest setting that is as good as the best."""

from __future__ import annotations

from itertools import product

import pytest

from voxload.benchmark.generate.plan import DatasetPlan
from voxload.benchmark.generate.storage import Codec, Storage, StoreFormat
from voxload.benchmark.run.sweep import Factors, Point, Setting, applied, best_setting, choices, name, processes, stored
from voxload.benchmark.workload.workload import Samples, Workload
from voxload.errors import UsageError


def test_every_combination_is_a_setting() -> None:
    """Factors of one value do not vary; no variation at all is refused."""
    factors = Factors(threads=(1, 2), spatial=((1, 1, 1),), codec=("none", "gzip", "zstd"))
    assert factors.varied == ("threads", "codec")
    found = list(factors.settings())
    assert [(one.threads, one.codec) for one in found] == list(product((1, 2), ("none", "gzip", "zstd")))
    assert all(one.is_stored_anew for one in found)
    assert len({name(one) for one in found}) == 6
    with pytest.raises(UsageError, match="two values of something"):
        Factors(threads=(2,))


def test_settings_change_workload_and_data() -> None:
    """Threads and grid are the workload's, chunks and codec the data set's."""
    setting = Setting(threads=3, spatial=(2, 2, 1), chunks=(64, 16, 8), codec="gzip")
    workload = applied(setting, Workload(Samples("data")))
    assert (workload.supply.threads, workload.share.spatial) == (3, (2, 2, 1))
    assert (processes(setting, workload, 0), processes(setting, workload, 8)) == (4, 8)
    plan = DatasetPlan((2, 32, 32, 32), "<i2", Storage(StoreFormat.ZARR3, chunks=(2, 8, 8, 8), shards=(2, 16, 16, 16)))
    anew = stored(setting, plan).storage
    assert (anew.chunks, anew.shards, anew.codec) == ((2, 32, 16, 8), None, Codec("gzip"))
    assert str(setting) == "3 threads, grid 2x2x1, chunks 64x16x8, gzip"


def test_the_knee_is_where_more_gives_nothing() -> None:
    """Few threads win where more give less than a twentieth, or nothing that is beyond noise."""
    rates = {1: (10.0, 10.1, 9.9), 2: (19.0, 19.2, 18.9), 4: (19.5, 19.4, 19.7), 8: (15.0, 15.5, 14.5)}
    points = [Point(Setting(threads=threads), found) for threads, found in rates.items()]
    (choice,) = choices(points, ("threads",))
    assert choice.setting.threads == 2
    assert "1.90 times 1 threads" in choice.why
    assert "4 threads gives +2.6%" in choice.why
    noisy = [Point(Setting(threads=1), (10.0, 20, 14, 15)), Point(Setting(threads=2), (11.0, 21, 16, 17))]
    assert choices(noisy, ("threads",))[0].setting.threads == 1


def test_each_factor_is_chosen_where_the_others_are_best() -> None:
    """The point of all choices is one of the sweep's."""
    rate = {(1, "none"): 5.0, (2, "none"): 6.0, (1, "gzip"): 10.0, (2, "gzip"): 20.0}
    points = [Point(Setting(threads=t, codec=c), (found,)) for (t, c), found in rate.items()]
    found = choices(points, ("threads", "codec"))
    assert best_setting(points, found) == Setting(threads=2, codec="gzip")
    assert [choice.best for choice in found] == [20.0, 20.0]
