"""``voxload bench``: from generated samples to a page, and the exit status that a threshold gives."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from voxload.benchmark.measure.document import Document
from voxload.cli.main import run


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a generated data set."""
    folder = tmp_path_factory.mktemp("bench") / "data"
    words = "--format hdf5 --shape 1,48,48,48 --chunks 24 --codec gzip --num-samples 6 --values counts"
    assert run(["bench", "generate", str(folder), *words.replace("--chunks 24", "--chunks 24,24,24").split()]) == 0
    return folder


def test_from_samples_to_a_page(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two results are written, printed, compared and drawn."""
    for name, loader in (("a", "voxload"), ("b", "h5py")):
        threads = "2" if loader == "voxload" else "0"
        words = f"{data} --loader {loader} --threads {threads} --repeats 2 --verify --compute sleep --compute-time 5ms"
        files = ["--output", str(tmp_path / f"{name}.json"), "--csv", str(tmp_path / f"{name}.csv")]
        assert run(["bench", "run", *words.split(), *files]) == 0
    printed = capsys.readouterr().out
    assert "Blocks were verified" in " ".join(printed.split())
    assert "throughput" in printed
    first = Document.read(tmp_path / "a.json")
    assert (first.ranks, len(first.runs), first.values("samples")) == (1, 2, (6, 6))
    with (tmp_path / "a.csv").open(newline="") as stream:
        assert len(list(csv.reader(stream))) == 3
    assert run(["bench", "compare", str(tmp_path / "a.json"), str(tmp_path / "b.json"), "--json"]) == 0
    assert "h5py" in capsys.readouterr().out
    page = tmp_path / "report.html"
    assert run(["bench", "report", str(tmp_path / "a.json"), str(tmp_path / "b.json"), "--output", str(page)]) == 0
    assert "<svg" in page.read_text()


def test_thresholds_decide_the_exit_status(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """AU below the threshold is status 1; a threshold without computing, or no data, is a wrong call."""
    words = ["bench", "run", str(data), "--compute", "sleep", "--compute-time", "20ms", "--json"]
    assert run([*words, "--au-threshold", "0.01"]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == "voxload-bench/1"
    assert run([*words[:3], "--compute", "sleep", "--compute-time", "1us", "--au-threshold", "0.99"]) == 1
    assert "below 99.0%" in capsys.readouterr().err
    assert run(["bench", "run", str(data), "--au-threshold", "0.5"]) == 2
    assert run(["bench", "run"]) == 2
    assert run(["bench", "run", "--preset", "none"]) == 2
    assert "one of unet3d-a100" in capsys.readouterr().err


def test_presets_say_what_they_scaled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A preset's samples are generated once; smaller ones and absent ranks are told of."""
    words = f"bench run --preset cosmoflow-a100 --shrink 4 --num-samples 2 --folder {tmp_path} --dry-run"
    assert run(words.split()) == 0
    workload = json.loads(capsys.readouterr().out)
    assert workload["emulation"] == {"kind": "sleep", "seconds": f"{0.00551 / 64:.6g}", "seed": 0}
    assert workload["supply"]["clairvoyant"] is False
    assert workload["scaled"][0].startswith("Samples of 32 x 32 x 32 voxels in place of 128 x 128 x 128, and a step")
    assert not list(tmp_path.iterdir())
    words = f"bench run --preset cosmoflow-512 --shrink 16 --num-samples 2 --folder {tmp_path} --json"
    assert run(words.split()) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["data"]["shape"] == [4, 32, 32, 32]
    assert any(label.startswith("1 of 8 ranks ran") for label in document["labels"])


def test_a_policy_is_passed_on(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One that there is, to where blocks are kept; others are named."""
    words = ["bench", "run", str(data), "--memory", "1MiB", "--dry-run", "--policy"]
    assert run([*words, "lru"]) == 0
    assert json.loads(capsys.readouterr().out)["supply"]["policy"] == "lru"
    assert run([*words, "magic"]) == 2
    assert "expected one of clairvoyant" in capsys.readouterr().err


@pytest.mark.long
def test_a_sweep_says_which_to_use(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Chunks and threads are tried in every combination, on samples generated anew."""
    words = (
        f"bench sweep {data} --threads 1,2 --chunks 24,24,24;48,48,48 --repeats 2 --folder {tmp_path / 'sweep'} --json"
    )
    assert run(words.split()) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["settings"]) == 4
    assert all(len(each["samples_per_second"]) == 2 for each in found["settings"])
    assert [choice["factor"] for choice in found["choices"]] == ["threads", "chunks"]
    assert found["use"]["threads"] in (1, 2)
    results = sorted((tmp_path / "sweep").glob("*.json"))
    assert len(results) == 8
    assert Document.read(results[0]).data["chunks"] in ([1, 24, 24, 24], [1, 48, 48, 48])
    assert run(["bench", "sweep", str(data), "--threads", "2"]) == 2
