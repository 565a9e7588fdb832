"""The table of networks: what is exact, refused or wrong is called so, and a process that ends early is a crash."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from bench import documented, networks
from bench.networking import child
from bench.networking.network import Network
from bench.networking.own import Causal, DeepSupervision, Excited, Patches
from bench.networking.table import Entry, Outcome, Table, Verdict, row
from bench.networks import NETWORKS, compared, main
from voxload.engine.exchange.in_process import LoopbackRank


def _network(build: type[nn.Module]) -> Network:
    return Network("voxload", build.__name__, lambda _: build(), (12, 8, 16))


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("build", [Causal, DeepSupervision, Excited, Patches])
def test_networks_that_no_trace_keeps_are_exact(build: type[nn.Module]) -> None:
    """Ours, on uneven extents."""
    outcome = child.compared(_network(build), (2, 1, 2) if build is Patches else (1, 2, 1))
    assert outcome.verdict is Verdict.EXACT, outcome
    assert outcome.gradient > 0


class Branches(nn.Module):
    """Decides by a value."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the volume, or its negative."""
        return x if bool(x.mean() > 0) else -x


class Draws(nn.Module):
    """Draws in every mode."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the volume and noise."""
        return x + nn.functional.dropout(x, 0.5)


def test_what_draws_random_numbers_is_not_compared() -> None:
    """Two runs of it differ by nature."""
    assert child.compared(_network(Draws), (2, 1, 1)).verdict is Verdict.RANDOM


def test_a_refusal_has_its_reason() -> None:
    """It is the engine's own."""
    outcome = child.compared(_network(Branches), (2, 1, 1))
    assert outcome.verdict is Verdict.REFUSED
    assert outcome.why


def test_an_engine_that_is_wrong_is_called_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums over one rank alone."""

    def nothing(_seat: LoopbackRank, tensor: Tensor, *, world: bool) -> None:
        """Sum over nobody else."""

    monkeypatch.setattr(LoopbackRank, "reduce", nothing)
    assert child.compared(_network(Excited), (2, 1, 1)).verdict is Verdict.WRONG


@pytest.mark.long
def test_a_process_that_ends_early_is_a_crash() -> None:
    """One that is not in the zoo."""
    outcomes, whole = compared(_network(Branches), ["2,1,1", "1,2,1"])
    assert [each.verdict for each in outcomes] == [Verdict.CRASHED] * 2
    assert "StopIteration" in outcomes[0].why
    assert whole == "not told"


def test_the_worst_grid_counts() -> None:
    """A line of the table."""
    good = Outcome((2, 1, 1), Verdict.EXACT, 1e-15, 2e-12)
    assert row("voxload Causal", [good, good], "nothing") == "| voxload Causal | exact | 1e-15 | 2e-12 | nothing |"
    bad = Outcome((2, 2, 2), Verdict.REFUSED, why="no")
    assert "refused: no" in row("voxload Causal", [good, bad], "nothing")


def test_a_name_that_none_has_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    """An empty table would look like one without faults."""
    with pytest.raises(SystemExit, match="2"):
        main(["--only", "no such network"])
    assert "no network's name holds 'no such network'" in capsys.readouterr().err


@pytest.mark.parametrize("grid", ["2,1", "x", "2,0,1"])
def test_what_is_no_grid_is_an_error(grid: str, capsys: pytest.CaptureFixture[str]) -> None:
    """No network is started, and none is called crashed for it."""
    with pytest.raises(SystemExit, match="2"):
        main(["--only", "UNet3D", "--grid", grid])
    assert f"invalid grid D,H,W value: '{grid}'" in capsys.readouterr().err


def test_names_tell_networks_apart() -> None:
    """A process is given one by its name."""
    assert len({each.title for each in NETWORKS}) == len(NETWORKS)


@pytest.mark.long
def test_a_table_keeps_what_it_is_not_given_again(tmp_path: Path) -> None:
    """A network takes the place of its earlier outcomes; others stay, and are counted by library."""
    path = tmp_path / "networks.json"
    exact, refused = Outcome((2, 1, 1), Verdict.EXACT, 1e-15, 2e-12), Outcome((2, 2, 2), Verdict.REFUSED, why="no")
    table = Table().with_entry("numpy", "numpy one", Entry((exact, refused), "nothing"))
    table.with_entry("torch", "torch two", Entry((exact,), "refused: 65 MiB")).write(path)
    table = Table.read(path).with_entry("numpy", "numpy one", Entry((exact, exact), "1 calls, at most 2.0 MiB"))
    table.write(path)
    assert Table.read(path) == table
    assert table.versions == {"numpy": np.__version__, "torch": torch.__version__}
    assert table.entries["torch two"].verdict is Verdict.EXACT
    assert table.counts(["torch", "numpy"]).splitlines()[2:] == [
        f"| torch | {torch.__version__} | 1 | 1 | 0 | 0 | 0 | 0 | 0 |",
        f"| numpy | {np.__version__} | 1 | 1 | 0 | 0 | 0 | 0 | 1 |",
        "| all |  | 2 | 2 | 0 | 0 | 0 | 0 | 1 |",
    ]
    assert "| torch two | exact | 1e-15 | 2e-12 | refused: 65 MiB |" in table.rows(["torch two", "no such"])
    assert Entry((exact, refused), "not told").verdict is Verdict.REFUSED
    assert not Entry((exact,), "not told").fits


@pytest.mark.parametrize("torn", ['{"versions": {}, "netw', "[]", "{}"])
def test_a_torn_table_is_told_before_anything_runs(
    torn: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """So is a folder that is not there."""
    path = tmp_path / "networks.json"
    path.write_text(torn)
    for file, told in ((path, "holds no table of networks"), (tmp_path / "no" / "x.json", "there is no folder")):
        with pytest.raises(SystemExit, match="2"):
            main(["--only", "squeeze", "--json", str(file)])
        assert told in capsys.readouterr().err
    assert path.read_text() == torn


@pytest.mark.long
def test_the_script_fills_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In small: one network on one grid, in a process of its own."""
    path = tmp_path / "networks.json"
    assert main(["--only", "squeeze and excitation", "--grid", "1,2,1", "--json", str(path)]) == 0
    ((title, entry),) = Table.read(path).entries.items()
    assert entry.verdict is Verdict.EXACT
    assert f"| {title} | exact |" in capsys.readouterr().out


def test_the_document_has_the_last_table() -> None:
    """Nothing in it is wrong or crashed, and it is as large, as exact and as local as was asked for."""
    assert main(["--check"]) == 0
    entries = list(Table.read(networks.LAST).entries.values())
    verdicts = [entry.verdict for entry in entries]
    assert Verdict.WRONG not in verdicts
    assert Verdict.CRASHED not in verdicts
    assert len(entries) >= 60
    assert verdicts.count(Verdict.EXACT) >= 52
    assert sum(entry.fits and entry.verdict is Verdict.EXACT for entry in entries) >= 40
    assert {outcome.spatial for entry in entries for outcome in entry.outcomes} == {(2, 1, 1), (2, 1, 2), (2, 2, 2)}


def test_a_document_that_holds_something_else_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Written, it holds the tables, and what stands around them is left."""
    document = tmp_path / "page.md"
    document.write_text("Before.\n<!-- begin: bench/networks.py -->\nold\n<!-- end: bench/networks.py -->\nAfter.\n")
    monkeypatch.setattr(documented, "ROOT", tmp_path)
    monkeypatch.setattr(networks, "DOCUMENTED", replace(networks.DOCUMENTED, document=document))
    assert main(["--check"]) == 1
    assert "page.md: found other tables" in capsys.readouterr().err
    assert main(["--write"]) == 0
    assert main(["--check"]) == 0
    assert main(["--page"]) == 0
    text = document.read_text()
    assert capsys.readouterr().out.strip() in text
    assert text.startswith("Before.")
    assert text.endswith("After.\n")
