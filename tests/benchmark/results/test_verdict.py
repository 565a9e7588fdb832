"""The verdict: the fastest of what compares like with like, by how much, and whether that is sure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.benchmark.documents import Recipe, constant, document
from voxload.benchmark.measure.document import Cold, Document
from voxload.benchmark.results.alike import conditions, page_cache, told, unequal
from voxload.benchmark.results.verdict import judge

FAST, SLOW = (30.0, 31.0, 32.0, 33.0, 34.0), (15.0, 15.5, 16.0, 16.5, 17.0)


def _of(values: tuple[float, ...], loader: str, **changes: Any) -> Document:
    """Return a result of a loader whose runs deliver so many samples a second."""
    made = constant(values)
    workload = replace(made.workload, supply=replace(made.workload.supply, loader=loader))
    return replace(made, workload=workload, **changes)


def _with(made: Document, part: str, **changes: Any) -> Document:
    """Return a result with other facts in a part of its workload."""
    inner = replace(getattr(made.workload, part), **changes)
    return replace(made, workload=replace(made.workload, **{part: inner}))


def _cold(made: Document, share: float, *, is_verified: bool = True) -> Document:
    cold = Cold("fadvise", share, is_verified=is_verified, text="told")
    return replace(made, runs=tuple(replace(run, cold=cold) for run in made.runs))


def test_the_fastest_is_named_with_how_much() -> None:
    """Whatever the order of the results; the ratio is that of the medians of the first two."""
    found = {"a": _of(SLOW, "torch"), "b": _of(FAST, "ours"), "c": _of((1.0,) * 5, "old")}
    for names in ("abc", "cba", "bca"):
        verdict = judge([(name, found[name]) for name in names])
        (ranking,) = verdict.rankings
        assert [place.name for place in ranking.places] == ["b", "a", "c"]
        assert ranking.is_sure
        (line,) = verdict.headlines()
        assert line == (
            "ours (b) is the fastest, 2.00 times as fast as the next, torch (a): 32.0 against 16.0 samples per second. "
            "That is sure."
        )
        assert "sure: " in ranking.places[1].sureness()
        assert verdict.apart == ()


def test_overlapping_runs_are_not_sure() -> None:
    """The highest median is told, and who may be as fast; one that is surely slower is not among them."""
    mixed = (29.0, 30.5, 31.5, 32.0, 35.0)
    (ranking,) = judge([("x", _of(mixed, "other")), ("y", _of(FAST, "ours")), ("z", _of(SLOW, "slow"))]).rankings
    assert not ranking.is_sure
    line = ranking.headline()
    assert line.startswith("No loader is surely the fastest. ours (y) has the highest median, ")
    assert line.endswith("as fast may be other (x).")
    assert "room for no difference" in ranking.places[1].sureness()
    assert ranking.places[2].is_beaten


@pytest.mark.parametrize(("count", "is_sure"), [(1, False), (2, False), (3, False), (4, True)])
def test_few_runs_are_not_sure(count: int, *, is_sure: bool) -> None:
    """Runs that do not overlap are so by chance now and then: of three and three, one time in ten."""
    (ranking,) = judge([("x", _of(FAST[:count], "ours")), ("y", _of(SLOW[:count], "slow"))]).rankings
    assert ranking.is_sure is is_sure
    words = ranking.places[1].sureness()
    assert words.startswith("sure: " if is_sure else "not sure: ")
    assert ("single run" in words) is (count == 1)
    assert ("few runs" in words) is (count in {2, 3})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda one: _with(one, "share", halo=3), "workload share.halo 3 instead of 0"),
        (lambda one: _with(one, "share", batch_size=2), "share.batch_size"),
        (lambda one: _with(one, "share", boundary="periodic"), "share.boundary"),
        (lambda one: _with(one, "share", order="sequential"), "share.order"),
        (lambda one: _with(one, "length", epochs=9), "length.epochs"),
        (lambda one: _with(one, "emulation", seconds="0.1"), "emulation.seconds"),
        (lambda one: _with(one, "coldness", when="epoch"), "coldness.when epoch instead of never"),
        (lambda one: _with(one, "supply", device="cuda"), "supply.device"),
        (lambda one: replace(one, workload=replace(one.workload, lockstep=False)), "lockstep"),
        (lambda one: replace(one, ranks=8), "ranks 8 instead of 2"),
        (lambda one: replace(one, data={**one.data, "shape": [1, 128, 64, 64]}), "data set shape"),
        (lambda one: replace(one, data={**one.data, "dtype": "<f4"}), "data set dtype"),
        (lambda one: replace(one, data={**one.data, "samples": 3}), "data set samples"),
        (lambda one: replace(one, hosts=({**one.hosts[0], "cores": 64},)), "host cores"),
        (lambda one: replace(one, hosts=({**one.hosts[0], "file_system": "lustre"},)), "host file_system"),
        (lambda one: _cold(one, 0.95), "page cache warm instead of cold"),
        (lambda one: _cold(one, 0.5), "page cache about 50 % in memory instead of cold"),
        (lambda one: _cold(one, 0.0, is_verified=False), "page cache not looked at instead of cold"),
    ],
)
def test_unlike_is_not_ranked(change: Callable[[Document], Document], said: str) -> None:
    """However much faster it is: others are ranked without it, and it is said why."""
    unlike = change(_of((900.0,) * 5, "marvel"))
    verdict = judge([("m", unlike), ("x", _of(FAST, "ours")), ("y", _of(SLOW, "slow"))])
    (ranking,) = verdict.rankings
    assert [place.name for place in ranking.places] == ["x", "y"]
    (reason,) = verdict.apart
    assert reason.startswith("m is not ranked with x: ")
    assert said in reason
    alone = judge([("m", unlike), ("x", _of(FAST, "ours"))])
    assert alone.rankings == ()
    assert alone.headlines() == ("Nothing is ranked: no two results compare like with like.",)
    assert len(alone.apart) == 1


def test_fewer_bytes_of_a_sample_are_not_ranked() -> None:
    """A loader that hands out a half of each block delivered something else, whatever it was asked for."""
    made = _of((900.0,) * 5, "half")
    halves = tuple(
        replace(run, figures={**run.figures, "delivered_bytes": run.figures["delivered_bytes"] / 2})
        for run in made.runs
    )
    verdict = judge([("h", replace(made, runs=halves)), ("x", _of(FAST, "ours")), ("y", _of(SLOW, "slow"))])
    assert [place.name for place in verdict.rankings[0].places] == ["x", "y"]
    assert "bytes of a sample" in verdict.apart[0]


def test_a_run_that_skips_samples_is_not_ranked_but_one_of_limited_time_is() -> None:
    """With a time limit a faster loader delivers more; without one it must not."""
    first, second = _of(FAST, "ours"), _of(SLOW, "slow")
    more = {"samples": 1000, "delivered_bytes": 1000 * first.median("delivered_bytes") / first.median("samples")}
    longer = replace(first, runs=tuple(replace(run, figures={**run.figures, **more}) for run in first.runs))
    assert judge([("x", longer), ("y", second)]).rankings == ()
    limited = [(name, _with(one, "length", seconds=10.0)) for name, one in (("x", longer), ("y", second))]
    assert judge(limited).rankings[0].is_sure


def test_wrong_blocks_are_not_ranked() -> None:
    """A verified run that found wrong blocks has no speed."""
    made = _of((900.0,) * 5, "wrong")
    (record, *others) = made.runs[0].records
    broken = replace(made.runs[0], records=(replace(record, wrong=("sample 3",)), *others))
    verdict = judge([("w", replace(made, runs=(broken, *made.runs[1:]))), ("x", _of(FAST, "a")), ("y", _of(SLOW, "b"))])
    assert [place.name for place in verdict.rankings[0].places] == ["x", "y"]
    assert verdict.apart == ("w delivered wrong blocks, and is not ranked.",)


def test_what_may_differ_is_told() -> None:
    """Threads, caches, versions, seeds and how the samples are stored are what people compare."""
    other = _with(_with(_of(SLOW, "slow"), "supply", threads=16, memory=10**9), "share", seed=7)
    other = replace(other, data={**other.data, "format": "zarr", "stored_bytes": 5})
    (ranking,) = judge([("x", _of(FAST, "ours")), ("y", other)]).rankings
    (note,) = ranking.notes
    for name in ("loader threads", "loader memory", "data set format", "data set stored_bytes"):
        assert name in note
    assert unequal(conditions(other), conditions(_of(FAST, "ours"))) == []
    assert "loader threads" in unequal(told(other), told(_of(FAST, "ours")))


def test_an_unknown_page_cache_is_told() -> None:
    """Two results that nobody looked at are ranked among themselves, with a warning."""
    unseen = [
        (name, _cold(one, 0.0, is_verified=False)) for name, one in (("x", _of(FAST, "a")), ("y", _of(SLOW, "b")))
    ]
    (ranking,) = judge(unseen).rankings
    assert "Nobody looked at the page cache" in " ".join(ranking.notes)


def test_each_scale_has_its_ranking() -> None:
    """Results of two and of four ranks are two rankings, each under what it is about."""
    two, four = _of(FAST, "ours"), replace(_of(FAST, "ours"), ranks=4)
    slow_two, slow_four = _of(SLOW, "slow"), replace(_of(SLOW, "slow"), ranks=4)
    verdict = judge([("a", two), ("b", four), ("c", slow_two), ("d", slow_four)])
    assert [ranking.about for ranking in verdict.rankings] == ["ranks 2", "ranks 4"]
    assert [line.split(":")[0] for line in verdict.headlines()] == ["At ranks 2", "At ranks 4"]
    assert verdict.apart == ()


def test_states_of_the_page_cache() -> None:
    """Of runs that began unlike each other all states are told."""
    made = document(Recipe(repetitions=2))
    assert page_cache(made) == "cold"
    first, second = made.runs
    warm = replace(second, cold=replace(second.cold, resident=0.99))
    assert page_cache(replace(made, runs=(first, warm))) == "cold, warm"
    assert page_cache(_cold(made, float("nan"))) == "not looked at"


def test_a_result_without_speed_is_last() -> None:
    """It is nobody's rival, and nothing fails."""
    made = _of(SLOW, "none")
    empty = replace(
        made, runs=tuple(replace(run, figures={**run.figures, "samples_per_second": None}) for run in made.runs)
    )
    (ranking,) = judge([("e", empty), ("x", _of(FAST, "ours"))]).rankings
    assert [place.name for place in ranking.places] == ["x", "e"]
    assert not ranking.is_sure
    assert judge([]).headlines() == ("Nothing is ranked: no two results compare like with like.",)
