"""``voxload simulate``: figures for programs and people, a picture, and calls that are refused."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread

from voxload.cli.main import run
from voxload.prefetch import machines, policies, simulate

SMALL = ["simulate", "--machine", "nopfs-cluster", "--samples", "48", "--sample-bytes", "100MB", "--epochs", "2"]


def _json(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert run([*arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_every_policy_is_there_with_all_figures(capsys: pytest.CaptureFixture[str]) -> None:
    """Times add up, bytes are those of all accesses, and the bound holds."""
    found = _json(SMALL, capsys)
    assert [policy["policy"] for policy in found["policies"]] == list(policies.NAMES)
    for policy in found["policies"]:
        assert policy["seconds"] == pytest.approx(policy["compute_seconds"] + policy["stall_seconds"])
        assert sum(policy["bytes_by_source"].values()) == 2 * 48 * 100_000_000
        assert policy["seconds"] >= found["bound_seconds"]["all"]
        assert policy["model"] == "events"
        assert len(policy["epochs"]) == 2
    assert found["optimum_storage_bytes"] == 48 * 100_000_000
    assert found["bound_seconds"]["all"] == max(found["bound_seconds"].values())


def test_options_describe_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    """Blocks share a sample; stored sizes are what the storage reads; a step takes the seconds that are given."""
    more = ["--groups", "2", "--blocks", "4", "--batch", "3", "--stored-bytes", "40MB", "--policy", "staging"]
    found = _json([*SMALL, *more, "--compute-seconds", "0.5", "--model", "steps"], capsys)
    assert (found["groups"], found["blocks"], found["block_bytes"], found["steps"]) == (2, 4, 25_000_000, 16)
    assert found["compute_seconds_per_step"] == 0.5
    (policy,) = found["policies"]
    assert policy["model"] == "steps"
    assert policy["bytes_by_source"]["storage"] == 2 * 48 * 40_000_000
    assert found["optimum_storage_bytes"] == 48 * 40_000_000
    rate = _json([*SMALL, "--policy", "none", "--compute-rate", "50MB"], capsys)
    assert rate["compute_seconds_per_step"] == 2.0


def test_locality_moves_less_between_peers(capsys: pytest.CaptureFixture[str]) -> None:
    """With room for all the storage is read once, as without it; what peers send falls, and is told by epoch."""
    found = [_json([*SMALL, "--policy", "clairvoyant", "--locality", one], capsys) for one in ("none", "batch")]
    assert [one["locality"] for one in found] == [None, "batch"]
    bytes_by_source = [one["policies"][0]["bytes_by_source"] for one in found]
    assert bytes_by_source[1]["storage"] == bytes_by_source[0]["storage"] == 48 * 100_000_000
    assert bytes_by_source[1]["peer"] < bytes_by_source[0]["peer"]
    for one, nbytes in zip(found, bytes_by_source, strict=True):
        assert sum(epoch["peer_bytes"] for epoch in one["policies"][0]["epochs"]) == nbytes["peer"]


@pytest.mark.long
def test_large_runs_use_the_coarse_model(capsys: pytest.CaptureFixture[str]) -> None:
    """A job of 1,024 ranks and a quarter of the published samples is a matter of seconds."""
    call = ["simulate", "--machine", "lassen", "--samples", "65536", "--sample-bytes", "16MB", "--groups", "1024"]
    found = _json([*call, "--batch", "16", "--epochs", "2", "--policy", "clairvoyant"], capsys)
    assert found["policies"][0]["model"] == "steps"
    assert found["policies"][0]["bytes_by_source"]["storage"] == found["optimum_storage_bytes"] == 65536 * 16_000_000


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    """A row for each policy, in 80 columns."""
    assert run([*SMALL, "--policy", "clairvoyant,staging"]) == 0
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    assert "clairvoyant" in printed
    assert "staging" in printed
    assert "No policy takes less than" in " ".join(printed.split())


def test_policies_are_told_as_they_end(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """All of them may take minutes: each has its line on standard error before the next one begins; JSON has none."""
    told: list[str] = []

    def hear(*words: Any, **more: Any) -> Any:
        told.append(capsys.readouterr().err)
        return real(*words, **more)

    real = simulate.run
    monkeypatch.setattr("voxload.cli.simulate.run", hear)
    assert run([*SMALL, "--policy", "clairvoyant,staging,none"]) == 0
    told.append(capsys.readouterr().err)
    assert [line.partition(":")[0] for line in told] == ["", "clairvoyant", "staging", "none"]
    assert all(re.fullmatch(r"\w+: [0-9.]+ (s|min|h), AU \d+%\n", line) for line in told[1:])
    told.clear()
    assert run([*SMALL, "--policy", "staging", "--json"]) == 0
    assert [*told, capsys.readouterr().err] == ["", ""]


@pytest.mark.long
def test_regimes_and_their_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Four data sets, a panel for each: bars of computing and of waiting, and the bound."""
    call = ["simulate", "--regimes", "--machine", "nopfs-cluster", "--samples", "64", "--epochs", "2"]
    # A sample of the largest regime is larger than the paper's staging: this machine has slots instead.
    text = (files(machines.__name__) / "nopfs-cluster.toml").read_text(encoding="utf-8")
    (tmp_path / "own.toml").write_text(text.replace('bytes = "5GB"', "slots = 4"))
    call[3] = str(tmp_path / "own.toml")
    more = ["--policy", "clairvoyant,staging", "--compute-rate", "3.2GB", "--plot", str(tmp_path / "time.png")]
    found = _json([*call, *more], capsys)["regimes"]
    assert [regime["name"].split(":")[0] for regime in found] == ["S < d1", "d1 < S < D", "D < S < N D", "N D < S"]
    sizes = [regime["block_bytes"] * regime["samples"] for regime in found]
    assert sizes == sorted(sizes)
    pixels = imread(tmp_path / "time.png")[..., :3]
    for colour in ((0x1F, 0x5F, 0xA8), (0xE0, 0x7B, 0x20)):
        assert (np.abs(pixels - np.array(colour) / 255) < 0.02).all(2).sum() > 1000
    assert run([*call, *more[:4]]) == 0
    assert "N D < S" in capsys.readouterr().out


WRONG = {
    "no samples": (["simulate"], "give --samples of your data set, or --regimes"),
    "no size": (["simulate", "--samples", "8"], "--sample-bytes: found nothing"),
    "no machine": ([*SMALL, "--machine", "summit"], "found neither a name nor a file"),
    "no policy": ([*SMALL, "--policy", "belady"], "'belady'"),
    "no size of sample": ([*SMALL, "--sample-bytes", "16M"], "size '16M'"),
    "too large a batch": ([*SMALL, "--sample-bytes", "6GB"], "for staging"),
    "size of a regime": ([*SMALL, "--regimes"], "--regimes: found --sample-bytes"),
    "one group": (["simulate", "--regimes", "--groups", "1"], "--groups: found 1"),
    "no compute": ([*SMALL, "--compute-rate", "0"], "--compute-rate: found 0"),
    "no model": ([*SMALL, "--model", "guess"], "--model"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_calls(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 2, and one line that says what was found."""
    arguments, words = WRONG[case]
    assert run(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert words in printed.err


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    """Help shows a call that can be copied."""
    assert run(["simulate", "--help"]) == 0
    assert "Example: voxload simulate --machine lassen" in " ".join(capsys.readouterr().out.split())
