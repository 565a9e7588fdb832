"""Checkpoints of a stranger: nothing in them is run, and nobody is told to let them run."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest
import torch

from voxload.cli.main import run
from voxload.errors import DataError
from voxload.training.checkpoint import CHECKPOINT, Checkpoint


class Evil:
    """An object whose pickle makes a folder."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[object, tuple[str]]:
        """Say what to call where it is unpickled."""
        return os.mkdir, (str(self._mark),)


@pytest.mark.parametrize("is_torchs", [True, False])
def test_an_evil_checkpoint_is_refused_in_our_own_words(tmp_path: Path, *, is_torchs: bool) -> None:
    """Torch's message says how to switch the protection off; ours does not, in training and in inference."""
    mark, path = tmp_path / "ran", tmp_path / CHECKPOINT
    if is_torchs:
        torch.save({"version": 1, "plan": Evil(mark)}, path)
    else:
        path.write_bytes(pickle.dumps(Evil(mark), protocol=2))
    with pytest.raises(DataError, match="nothing was run") as caught:
        Checkpoint.read(tmp_path)
    assert not any(word in str(caught.value) for word in ("weights_only", "add_safe_globals", "pytorch.org"))
    assert not mark.exists()


@pytest.mark.long
def test_inference_says_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On the command line, where the ranks read the checkpoint."""
    mark = tmp_path / "ran"
    torch.save({"version": 1, "plan": Evil(mark)}, tmp_path / CHECKPOINT)
    status = run(["infer", str(tmp_path), "--checkpoint", str(tmp_path), "--output", str(tmp_path / "out")])
    said = capsys.readouterr().err
    assert status == 1
    assert "nothing was run" in said
    assert "weights_only" not in said
    assert not mark.exists()
