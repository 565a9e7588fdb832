"""Verbs: what people tell a service, and what it says of itself."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import voxload
from tests.serve.conftest import Service, Start, until
from tests.serve.talking import client_of, octant
from tests.support.settled import settle
from voxload.cli.main import run
from voxload.loader.warming import first_order
from voxload.serve.keeping.pins import MOST

pytestmark = pytest.mark.usefixtures("no_leaks")
SAMPLES, SIDE = 6, 8
NBYTES = 2 * SIDE**3 * 4
"""Of a sample."""


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    """Return a folder of samples that were written a while ago."""
    folder = tmp_path / "samples"
    folder.mkdir()
    for number in range(SAMPLES):
        np.save(folder / f"{number}.npy", np.full((2, SIDE, SIDE, SIDE), number, np.float32))
    settle(folder)
    return folder


@pytest.fixture
def service(start: Start) -> Service:
    """Return a service that keeps blocks."""
    found = start(memory=2**20)
    assert found.said == "ready"
    return found


@pytest.fixture(autouse=True)
def environment(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all look for the service where it is."""
    monkeypatch.setenv("VOXLOAD_SERVICE", str(path))


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Run a command, and return what it prints."""
    assert run(["serve", *words]) == 0
    return capsys.readouterr().out


def loaded(samples: Path) -> voxload.DataLoader:
    """Return a loader that went through an epoch by way of the service."""
    data = voxload.VolumeDataset(str(samples / "*.npy"), axes="CDHW")
    loader = voxload.DataLoader(data, num_workers=2, cache=voxload.Cache(service="auto"))
    for _ in loader:
        pass
    return loader


@pytest.mark.long
def test_what_was_warmed_is_not_read_again(service: Service, samples: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By a loader that comes then; it stays for as long as was said, or until it is let go."""
    kept = json.loads(said(capsys, "warm", f"{samples}/*.npy", "--axes", "CDHW", "--name", "all", "--json"))
    assert (kept["name"], kept["blocks"], kept["there"], kept["bytes"]) == ("all", SAMPLES, SAMPLES, SAMPLES * NBYTES)
    assert 0 < kept["seconds"] <= 3600
    loader = loaded(samples)
    assert loader.stats().sources["storage"].fetches == 0
    loader.close()
    assert service.figures()["reads"]["done"] == SAMPLES
    until(lambda: service.figures()["jobs"] == [])
    assert "0 blocks" in said(capsys, "free", "--unused")
    said(capsys, "free", "all")
    assert f"{SAMPLES} blocks" in said(capsys, "free", "--unused")
    assert service.figures()["memory"]["blocks"] == service.figures()["blocks_known"] == 0


@pytest.mark.long
def test_warming_ends_by_itself(service: Service, samples: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """After the seconds that were said."""
    said(capsys, "warm", f"{samples}/*.npy", "--axes", "CDHW", "--hold", "1")
    until(lambda: service.figures()["kept"] == [])


@pytest.mark.long
def test_what_is_used_first_is_warmed_first(start: Start, samples: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where there is no room for all of it; the loader then reads the others only."""
    service = start(memory=12 * 1024 + 4 * NBYTES)
    printed = said(capsys, "warm", f"{samples}/*.npy", "--axes", "CDHW", "--seed", "7", "--name", "some")
    assert f"4 of {SAMPLES} blocks" in printed
    assert "no room" in printed
    data = voxload.VolumeDataset(str(samples / "*.npy"), axes="CDHW")
    shuffled = torch.Generator().manual_seed(7)
    loader = voxload.DataLoader(data, shuffle=True, generator=shuffled)
    used = [int((batch if isinstance(batch, torch.Tensor) else batch[0]).flatten()[0]) for batch in loader]
    loader.close()
    assert used == first_order(SAMPLES, 7)
    assert service.figures()["memory"]["blocks"] == 4


@pytest.mark.long
@pytest.mark.usefixtures("service")
def test_pins_cut_by_a_grid(samples: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of some of a group's ranks, with halos, for good."""
    words = ["pin", f"{samples}/*.npy", "--axes", "CDHW", "--spatial", "1,1,2", "--ranks", "1", "--halo", "1", "--json"]
    kept = json.loads(said(capsys, *words))
    assert kept["seconds"] is None
    assert kept["there"] == kept["blocks"] == SAMPLES
    assert kept["bytes"] == SAMPLES * 2 * 4 * (SIDE + 2) ** 2 * (SIDE // 2 + 2)


@pytest.mark.long
def test_less_memory(service: Service, samples: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Lets blocks go at once; with nothing left all is read by those who want it."""
    loaded(samples).close()
    said(capsys, "quota", str(4 * NBYTES + 64 * 1024))
    figures = service.figures()["memory"]
    assert figures["used"] <= figures["limit"] <= 4 * NBYTES + 64 * 1024
    said(capsys, "quota", "0")
    assert service.figures()["memory"]["blocks"] == 0
    with closing(loaded(samples)) as loader:
        sources = loader.stats().sources
        assert sources["storage"].fetches >= SAMPLES  # and what it reads ahead of the next epoch
        assert "service" not in sources or not sources["service"].fetches
    said(capsys, "quota", "1GiB")
    assert service.figures()["memory"]["limit"] == 2**20


@pytest.mark.long
def test_what_jobs_meet_with_is_told(service: Service, samples: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By those that run and those that ran, as numbers and for people."""
    loaded(samples).close()
    until(lambda: service.figures()["jobs"] == [])
    loader = loaded(samples)
    until(lambda: service.figures()["jobs_met"]["steps"] == 2 * SAMPLES)
    loader.close()
    until(lambda: service.figures()["jobs"] == [])
    met = service.figures()["jobs_met"]
    assert met["hits"] >= 2 * SAMPLES  # what comes next is staged by then
    assert met["hit_bytes"] == met["hits"] * NBYTES
    assert met["misses"] == 0
    assert met["stall_seconds"] > 0
    lines = [json.loads(line) for line in said(capsys, "top", "--count", "2", "--every", "0.1", "--json").splitlines()]
    assert [one["jobs_met"] for one in lines] == [met] * 2
    for verb in (["status"], ["top", "--count", "1"]):
        printed = said(capsys, *verb)
        assert "memory" in printed
        assert f"{SAMPLES} reads" in printed


WRONG: list[tuple[list[str], str]] = [
    (["free"], "a name or --unused"),
    (["free", "x", "--unused"], "a name or --unused"),
    (["warm", "nothing/*.npy"], "nothing/*.npy"),
    (["warm", ".", "--spatial", "2"], "--spatial"),
    (["pin", "SAMPLES", "--axes", "CDHW", "--ranks", "1"], "--ranks"),
    (["pin", "SAMPLES", "--axes", "CDHW", "--name", "a\nb"], "characters to be shown"),
    (["--memory", "1MiB", "--all-users", "--ring", "torch:127.0.0.1:1"], "--ring: found --all-users"),
    (["--memory", "1MiB", "--all-users", "--disk", ".", "--disk-size", "1MiB"], "--disk: found --all-users"),
]


@pytest.mark.few_cases(8)
@pytest.mark.usefixtures("service")
@pytest.mark.parametrize(("words", "reason"), WRONG)
def test_calls_that_are_refused(
    words: list[str], reason: str, samples: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With what is wrong."""
    assert run(["serve", *(f"{samples}/*.npy" if word == "SAMPLES" else word for word in words)]) in (1, 2)
    assert reason in capsys.readouterr().err


def test_nobody_listens(capsys: pytest.CaptureFixture[str]) -> None:
    """Which every verb says."""
    for words in (["status"], ["top"], ["free", "x"], ["quota", "1GiB"], ["drain"]):
        assert run(["serve", *words]) == 2
        assert "voxload serve" in capsys.readouterr().err


@pytest.mark.long
def test_too_many_pins(service: Service, volume: Path) -> None:
    """Are refused, to those who ask for more."""
    use: dict[str, Any] = {"kind": "keep", "count": 1}
    with client_of(service) as client:
        client.name(octant(volume, 0))
        for number in range(MOST):
            client.say(bytes(8), name=str(number), **use)
            assert client.hear() == {"kind": "done", "count": 1}
        client.say(bytes(8), name="0", **use)
        assert client.hear()["kind"] == "done"
        client.say(bytes(8), name="one more", **use)
        assert "at most 256" in client.hear()["reason"]
    assert len(service.figures()["kept"]) == MOST
