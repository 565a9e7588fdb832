"""bench/gpu.py: every part runs on the host, a fault in one stops no other, and the page says what was found."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
import torch

from bench import gpu, gpu_page
from bench.harness.script import ROOT
from bench.proving import report, running, told
from bench.proving.claim import Claim, Row, Verdict
from bench.proving.parts import BUDGET, NAMES, PARTS, chosen
from bench.proving.running import rows_of
from tests.support import processes

PART = PARTS[1]
FIRST, SECOND = (claim.name for claim in PART.claims)


def test_without_a_gpu_one_line_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The command ends with the status of what cannot be done, and writes nothing."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.chdir(tmp_path)
    assert gpu.main([]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "found no GPU that torch can use" in line
    assert list(tmp_path.iterdir()) == []


def test_an_old_torch_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """What voxload does not take is named before anything is run."""
    monkeypatch.setattr(torch, "__version__", "2.9.1+cu128")
    assert gpu.main(["--device", "cpu"]) == 2
    assert "found torch 2.9.1+cu128, expected 2.13 or newer" in capsys.readouterr().err


def test_what_is_missing_is_named() -> None:
    """A part that lacks a module, all of several that would do, or a GPU says which."""
    tests, decoding, several = (chosen([name])[0] for name in ("tests", "decoding", "several"))
    assert tests.lacks(lambda name: name not in {"pytest", "zarr"}, gpus=1) == "needs zarr, pytest"
    assert tests.lacks(lambda _: True, gpus=1) == ""
    assert decoding.lacks(lambda name: name != "nvidia.nvcomp", gpus=1) == ""
    assert decoding.lacks(lambda name: "." not in name and name != "kvikio", gpus=1) == "needs nvidia.nvcomp or kvikio"
    assert several.lacks(lambda _: True, gpus=1) == "needs 2 GPUs, found 1"


def test_the_parts_fit_into_nine_minutes() -> None:
    """Where one takes all of its time, most others have theirs; no claim has the name of another."""
    assert BUDGET == 9 * 60
    assert sum(part.limit for part in PARTS if part.gpus == 1) - max(part.limit for part in PARTS) < BUDGET
    names = [claim.name for part in PARTS for claim in part.claims]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", NAMES)
def test_each_part_is_there(name: str) -> None:
    """What is run in its process is found, without running it."""
    assert callable(running.prover(chosen([name])[0]))


@pytest.mark.parametrize(
    ("claim", "figures", "verdict"),
    [
        (Claim("x"), (5.0,), Verdict.SEEN),
        (Claim("x", 0.9, is_least=True), (0.8, 0.9, 2.0), Verdict.HELD),
        (Claim("x", 0.9, is_least=True), (0.8, 0.89, 2.0), Verdict.SHORT),
        (Claim("x", 1.5), (1.5,), Verdict.HELD),
        (Claim("x", 1.5), (1.51,), Verdict.SHORT),
        (Claim("x", 1.5), (float("nan"),), Verdict.SHORT),
        (Claim("x", 0.9, is_least=True), (float("nan"),), Verdict.SHORT),
    ],
)
def test_the_median_decides(claim: Claim, figures: tuple[float, ...], verdict: Verdict) -> None:
    """What is asked is compared with the middle figure; what is no number is short."""
    assert claim.judge(figures) is verdict


def test_what_a_part_said_before_it_died_is_kept(tmp_path: Path) -> None:
    """The rest of its claims failed, and say why; a torn line is no figure."""
    path = tmp_path / "told"
    told.Teller(path).figures(FIRST, 0.95)
    with path.open("a") as file:
        file.write('{"claim": "' + SECOND)
    first, second = rows_of(PART, told.read(path), "killed by signal 9")
    assert (first.verdict, first.figures) == (Verdict.HELD, (0.95,))
    assert (second.verdict, second.why) == (Verdict.FAILED, "killed by signal 9")


def test_a_part_that_dies_behind_its_last_word_failed(tmp_path: Path) -> None:
    """A process that says all and then crashes is not all right."""
    teller = told.Teller(tmp_path / "told")
    teller.figures(FIRST, 0.95)
    teller.figures(SECOND, 12.0)
    assert [row.verdict for row in rows_of(PART, told.read(tmp_path / "told"), "")] == [Verdict.HELD, Verdict.SEEN]
    rows = rows_of(PART, told.read(tmp_path / "told"), "killed by signal 11")
    assert [row.verdict for row in rows] == [Verdict.HELD, Verdict.FAILED]


def test_a_claim_that_nobody_makes_is_a_fault() -> None:
    """A misspelled name is not lost in silence, and a claim of which nothing was said failed."""
    with pytest.raises(ValueError, match=r"transfer: says \['speed'\]"):
        rows_of(PART, told.Told({"speed": (1.0,)}), "")
    assert {row.why for row in rows_of(PART, told.Told(), "")} == {"nothing was said of it"}


@pytest.mark.long
def test_every_fault_is_a_row_and_stops_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A part that raises fails alone, and says what went wrong and where."""
    words = ["--device", "cpu", "--only", "transfer,decoding", "--output", str(tmp_path)]
    words += ["--limit", str(processes.LIMIT), "--seconds", str(3 * processes.LIMIT)]
    assert gpu.main([*words, "--fault", "transfer=raise"]) == 1
    rows = _rows(tmp_path)
    assert {rows[claim].verdict for claim in _claims("transfer")} == {Verdict.FAILED}
    assert rows[FIRST].why.startswith("RuntimeError: a fault that was asked for at bench/proving/told.py:")
    assert {rows[claim].verdict for claim in _claims("decoding")} == {Verdict.SKIPPED}
    assert "2 failed, 4 skipped" in capsys.readouterr().out


@pytest.mark.long
def test_a_part_that_hangs_loses_itself_alone(tmp_path: Path) -> None:
    """It is ended at its limit, with all that it started, and the next one has its turn."""
    words = ["--device", "cpu", "--only", "transfer,decoding", "--output", str(tmp_path), "--fault", "transfer=hang"]
    assert gpu.main([*words, "--limit", "6"]) == 1
    rows = _rows(tmp_path)
    assert rows[FIRST].verdict is Verdict.FAILED
    assert rows[FIRST].why.startswith("was not done after 6 s")
    assert {rows[claim].verdict for claim in _claims("decoding")} == {Verdict.SKIPPED}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_who_stops_it_is_told_what_had_ended(
    number: signal.Signals, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The parts before keep their rows, the one under way is ended, and the status is that of the signal."""
    log = tmp_path / running.LOG.format("several")

    def stop() -> None:
        until = monotonic() + processes.LIMIT
        while not (log.exists() and log.stat().st_size) and monotonic() < until:  # its first word
            sleep(0.01)
        signal.pthread_kill(threading.main_thread().ident or 0, number)

    words = ["--device", "cpu", "--only", "decoding,several", "--output", str(tmp_path), "--fault", "several=hang"]
    words += ["--limit", str(processes.LIMIT), "--seconds", str(2 * processes.LIMIT)]
    user = threading.Thread(target=stop)
    user.start()
    try:
        assert gpu.main(words) == 128 + number
    finally:
        user.join()
    assert {name: row.verdict for name, row in _rows(tmp_path).items()} == dict.fromkeys(
        _claims("decoding"), Verdict.SKIPPED
    )
    assert f"stopped by {number.name}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("printed", "place"),
    [
        ("", ""),
        ('File "/usr/lib/python3/x.py", line 3, in f\nValueError: no', ""),
        ('File "{root}/bench/a.py", line 3, in f\n  File "{root}/voxload/b.py", line 7, in g\nE', " at voxload/b.py:7"),
        (
            (
                'Thread 0x1 (most recent call first):\n  File "{root}/bench/z.py", line 1 in f\n'
                'Thread 0x2 (most recent call first):\n  File "/usr/lib/python3/threading.py", line 9 in wait\n'
                '  File "{root}/voxload/b.py", line 7 in g\n  File "{root}/bench/a.py", line 3 in f\n'
            ),
            " at voxload/b.py:7",
        ),
    ],
)
def test_what_fails_points_at_its_line(printed: str, place: str, tmp_path: Path) -> None:
    """The innermost line of our own, of a traceback and of what is printed of a process that hangs."""
    log = tmp_path / "log"
    log.write_text(printed.replace("{root}", str(ROOT)))
    assert running.place_of(log) == place


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_any_part_may_be_killed(name: str, tmp_path: Path) -> None:
    """Each part, killed before its first word, is a row that failed."""
    part = chosen([name])[0]
    words = ["--device", "cpu", "--only", name, "--output", str(tmp_path), "--fault", f"{name}=kill"]
    assert gpu.main([*words, "--limit", "1800", "--seconds", "1800"]) in {0, 1}
    verdicts = {row.verdict: row.why for row in _rows(tmp_path).values()}
    if part.options:  # on the host it has nothing to measure, and is not begun
        assert set(verdicts) == {Verdict.SKIPPED}
    else:
        (why,) = verdicts.values()
        assert set(verdicts) == {Verdict.FAILED}
        # On a busy machine a rank of several may be given up before the part comes to its first word.
        assert why == "killed by signal 9" or (part.gpus > 1 and why.startswith("rank "))


@pytest.mark.long
def test_all_parts_run_on_the_host(tmp_path: Path) -> None:
    """At small sizes, by the same code: every claim has a figure, or says what it needs."""
    assert gpu.main(["--device", "cpu", "--output", str(tmp_path), "--limit", "300", "--seconds", "1800"]) in {0, 1}
    rows = _rows(tmp_path)
    assert set(rows) == {claim for name in NAMES for claim in _claims(name)}
    for name, row in rows.items():
        assert row.verdict not in {Verdict.FAILED, Verdict.NOT_RUN}, (name, row.why)
    assert rows["tests marked gpu: failures"].figures == (0.0,)
    outcomes = json.loads((tmp_path / "gpu.json").read_text())["details"]["tests"]["tests"]
    ended = [outcome for outcome in outcomes.values() if outcome != "skipped: needs a GPU"]
    assert rows["tests marked gpu: passed"].figures[0] == len(ended) > 0
    assert rows["two ranks: results that are others than one process's"].figures == (0.0,)
    for picture in ("cosmoflow.png", "unet3d.png"):
        assert (tmp_path / picture).read_bytes().startswith(b"\x89PNG")


def test_a_part_repeated_takes_the_place_of_its_figures() -> None:
    """What other parts found stays, unless it was found on another machine."""
    other = json.loads(json.dumps(Row("other", Claim("kept"), Verdict.SEEN, (1.0,)).document()))
    first = {"format": report.FORMAT, "machine": {"device": "A"}, "seconds": {"other": 1.0, PART.name: 2.0}}
    first |= {"rows": [other, Row(PART.name, PART.claims[0], Verdict.SHORT, (0.1,)).document()]}
    earlier = first | {"details": {"other": {"x": 1}, PART.name: {}}}
    again = report.document([running.skipped(PART, "why")], {"device": "A"})
    merged = report.kept(earlier, again)
    assert merged["rows"] == [other, *again["rows"]]
    assert merged["seconds"] == {"other": 1.0, PART.name: 0.0}
    assert merged["details"] == {"other": {"x": 1}, PART.name: {}}
    elsewhere = report.document([running.skipped(PART, "why")], {"device": "B"})
    assert report.kept(earlier, elsewhere) == elsewhere == report.kept({}, elsewhere)


@pytest.mark.parametrize("torn", ['{"format": 1, "mach', "[]", '{"format": 2}'])
def test_figures_that_cannot_be_kept_are_told_before_anything_runs(
    torn: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A torn or strange gpu.json costs no run."""
    (tmp_path / "gpu.json").write_text(torn)
    with pytest.raises(SystemExit, match="2"):
        gpu.main(["--device", "cpu", "--only", "decoding", "--output", str(tmp_path)])
    assert "remove it, or name another folder" in capsys.readouterr().err


def test_the_page_says_what_the_last_run_found(tmp_path: Path) -> None:
    """Without a run every line says so; with one, each claim has its figure, and new ones are still not run."""
    section = gpu_page.section(tmp_path / "none")
    assert section.startswith("Nothing of this has run on a GPU yet.")
    count = sum(len(part.claims) for part in PARTS)
    assert section.count("| not run |") == count
    last = tmp_path / "gpu.json"
    row = Row(PART.name, PART.claims[0], Verdict.HELD, (0.97, 0.95, 0.99))
    gone = Row("gone", Claim("a claim of an older version"), Verdict.SEEN, (1.0,))
    document: dict[str, Any] = report.document([], {"torch": "2.11.0"}) | {"rows": [row.document(), gone.document()]}
    last.write_text(json.dumps(document))
    section = gpu_page.section(last)
    assert section.startswith("The last run: torch 2.11.0.")
    assert f"| transfer | {FIRST} | >= 0.9 | 0.97 (0.95 to 0.99) | held |" in section
    assert "older version" not in section
    assert section.count("| not run |") == count - 1


def test_the_document_holds_the_tables() -> None:
    """What the script makes stands in docs/reference/gpu.md."""
    text = gpu_page.DOCUMENT.read_text(encoding="utf-8")
    assert gpu_page.DOCUMENTED.filled(text) == text, "run python bench/gpu_page.py --write"


def _claims(name: str) -> list[str]:
    return [claim.name for claim in chosen([name])[0].claims]


def _rows(output: Path) -> dict[str, Row]:
    return {row.claim.name: row for row in report.read_rows(output / "gpu.json")[1]}
