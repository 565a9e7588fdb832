"""Figures for Prometheus, read by Prometheus' own parser."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from voxload.errors import StorageError, UsageError
from voxload.loader.prometheus import exposition, to_prometheus, write_textfile
from voxload.loader.stats import LoaderStats
from voxload.prefetch.meter import Traffic

counts = st.integers(0, 2**63)
seconds = st.floats(0, 1e12)
traffic = st.builds(Traffic, counts, counts, counts, seconds, seconds, seconds)
figures = st.builds(
    LoaderStats,
    batches=counts,
    samples=counts,
    bytes_needed=counts,
    bytes_read=counts,
    bytes_decoded=counts,
    seconds_stalled=seconds,
    seconds_computing=seconds,
    steps=st.just(()),
    sources=st.dictionaries(st.sampled_from(["storage", "memory", "disk", "peer"]), traffic),
)
names = st.from_regex(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]{0,9}", fullmatch=True).filter(lambda name: name != "source")
labels = st.dictionaries(names, st.text(), max_size=3)


def parsed(text: str) -> dict[str, Metric]:
    """Return the families by name; each is announced once, before its first line."""
    found = list(text_string_to_metric_families(text))
    by_name = {family.name: family for family in found}
    assert len(by_name) == len(found)
    assert text.count("# TYPE ") == text.count("# HELP ") == len(found)
    return by_name


@given(stats=figures, label=labels)
def test_what_is_written_is_read(stats: LoaderStats, label: dict[str, str]) -> None:
    """All totals arrive with their value and labels, whatever these hold; by source too."""
    found = parsed(to_prometheus(stats, label))
    assert len(found) == 7 + 6 * bool(stats.sources)
    for name, value in (
        ("batches", stats.batches),
        ("needed_bytes", stats.bytes_needed),
        ("read_bytes", stats.bytes_read),
        ("stall_seconds", stats.seconds_stalled),
    ):
        family = found[f"voxload_loader_{name}"]
        assert family.type == "counter"
        assert family.documentation
        # Values are 64-bit floats; the parser gives whole numbers as ints, which hold more.
        assert [(sample.name, sample.labels, float(sample.value)) for sample in family.samples] == [
            (f"voxload_loader_{name}_total", label, float(value))
        ]
    fields = {"fetches": "fetches", "fetched_bytes": "nbytes", "predicted_seconds": "predicted"}
    for name, field in fields.items() if stats.sources else ():
        read = {sample.labels["source"]: sample for sample in found[f"voxload_loader_{name}"].samples}
        assert {source: float(sample.value) for source, sample in read.items()} == {
            source: float(asdict(one)[field]) for source, one in stats.sources.items()
        }
        assert all(sample.labels == {**label, "source": source} for source, sample in read.items())


@given(ranks=st.lists(figures, max_size=4))
def test_loaders_share_families(ranks: list[LoaderStats]) -> None:
    """Lines of one name stand together, below one HELP and one TYPE, with a line's end at the end."""
    text = exposition([({"rank": str(rank)}, stats) for rank, stats in enumerate(ranks)])
    assert text.endswith("\n") if ranks else not text
    lines = text.splitlines()
    order = [line.split("{")[0] for line in lines if not line.startswith("#")]
    assert order == sorted(order, key=list(dict.fromkeys(order)).index)
    total = sum(sample.value for sample in parsed(text)["voxload_loader_samples"].samples) if ranks else 0
    assert math.isclose(total, sum(float(stats.samples) for stats in ranks))


NOTHING = LoaderStats(0, 0, 0, 0, 0, 0.0, 0.0, ())


@pytest.mark.parametrize("name", ["", "0rank", "a-b", "a b", "__name__", "source", "r\u00e4nk", "rank\n"])
def test_labels_that_prometheus_would_refuse_are_refused(name: str) -> None:
    """A collector that meets one line it cannot read drops the whole file."""
    with pytest.raises(UsageError, match="label"):
        to_prometheus(NOTHING, {name: "0"})


def test_values_and_loaders_that_cannot_be_told_are_refused() -> None:
    """Text that is no UTF-8 is named, and two loaders with one name are."""
    with pytest.raises(UsageError, match="UTF-8"):
        to_prometheus(NOTHING, {"path": "\udc80"})
    with pytest.raises(UsageError, match="two loaders with equal ones"):
        exposition([({"rank": "0"}, NOTHING), ({"rank": "0"}, NOTHING)])


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    """The collector finds one file, old or new; a folder that is not there is an error that names it."""
    path = tmp_path / "voxload.prom"
    for batches in (1, 2):
        stats = LoaderStats(batches, 0, 0, 0, 0, 0.0, 0.0, ())
        write_textfile(path, [({}, stats)])
        assert path.read_text() == to_prometheus(stats)
    assert [one.name for one in tmp_path.iterdir()] == ["voxload.prom"]
    with pytest.raises(StorageError, match="No such file"):
        write_textfile(tmp_path / "none" / "voxload.prom", [({}, NOTHING)])
