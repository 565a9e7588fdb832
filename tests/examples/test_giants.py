"""The giant auto-encoder: its parts on several ranks learn what one process does, and move to other ranks."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from examples.giants import autoencoder
from tests.readers.shards import archives
from tests.support import processes
from tests.support.ranks import printed_by_ranks

ROOT = Path(__file__).parents[2]
GIANTS = ROOT / "examples" / "giants"
_STEP = re.compile(r"loss (\S+)")


def _clips(folder: Path, count: int, shape: tuple[int, int, int]) -> Path:
    """Write shards of smooth clips."""
    rng = np.random.default_rng(0)
    folder.mkdir()
    for shard in range(2):
        members = {}
        for number in range(shard, count, 2):
            base = rng.integers(0, 256, (*(extent // 2 for extent in shape), 3))
            clip = base.repeat(2, 0).repeat(2, 1).repeat(2, 2).astype(np.uint8)
            members[f"{number:03}.mkv"] = archives.clip(clip)
        archives.archive(folder / f"c-{shard:06}.tar", members)
    return folder


def _losses(clips: Path, ranks: int, *words: str) -> list[float]:
    printed = printed_by_ranks(GIANTS / "train.py", str(clips / "*.tar"), *words, ranks=ranks)
    return [float(found) for found in _STEP.findall(printed)]


def test_parts_learn_what_one_process_does_and_move(tmp_path: Path) -> None:
    """Three steps in float64 on four ranks are those of one; two ranks go on from what four have written."""
    clips = _clips(tmp_path / "clips", 12, (4, 16, 16))
    common = ("--network", "small", "--dtype", "float64")
    alone = _losses(clips, 1, *common, "--steps", "6")
    place = str(tmp_path / "run")
    first = _losses(clips, 4, *common, "--steps", "3", "--checkpoint", place)
    rest = _losses(clips, 2, *common, "--steps", "6", "--checkpoint", place)
    assert len(first) == len(rest) == 3
    assert [*first, *rest] == pytest.approx(alone, rel=1e-12)
    assert alone[-1] < alone[0]


def test_it_has_fifteen_billion_weights() -> None:
    """In three layers up, and as many down; the scaled one has more than two hundred million."""
    with torch.device("meta"):
        counts = [sum(each.numel() for each in make().parameters()) for make in (autoencoder.giant, autoencoder.scaled)]
    assert 15e9 <= counts[0] < 15.5e9
    assert counts[1] >= 2e8


@pytest.mark.long
def test_the_giant_is_planned_for_ninety_eight_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What each rank has, how long a step is, and that a whole of the weights does not fit."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    words = ["plan", "examples.giants.autoencoder:giant", "--sample", "3,8,128,128", "--machine", "h100"]
    words += ["--batch", "784", "--ranks", "392", "--nodes", "98", "--wrapper"]
    command = [str(Path(sys.executable).parent / "voxload"), *words]
    done = processes.run([*command, "fsdp-modules"], capture_output=True, text=True, cwd=ROOT)
    assert "Best by time: 392 x 1x1x1, 392 ranks" in done.stdout
    whole = processes.run([*command, "fsdp"], check=False, capture_output=True, text=True, cwd=ROOT)
    assert whole.returncode == 2
    assert "memory of a rank while fsdp.reduce_scatter of ''" in whole.stderr
