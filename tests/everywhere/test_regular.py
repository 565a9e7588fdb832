"""Pipes and devices given for files: every command refuses them at once and says what they are."""

from __future__ import annotations

import contextlib
import io
import os

import numpy as np
import pytest

from tests.support.launches import fork_launches
from voxload.cli.main import run

COMMANDS = {
    "info": "info PIPE",
    "info of a device": "info /dev/zero",
    "info of a catalogue": "info PIPE.parquet",
    "convert": "convert PIPE OUT",
    "convert of a device": "convert /dev/zero OUT",
    "targets in CSV": "convert RAW OUT --targets PIPE.csv",
    "targets in JSON": "convert RAW OUT --targets PIPE.json",
    "targets in Parquet": "convert RAW OUT --targets PIPE.parquet",
    "a scheduler's file": "convert RAW OUT --scheduler PIPE",
    "verify": "verify PIPE.parquet",
    "catalog list": "catalog list PIPE.parquet",
    "catalog merge": "catalog merge OUT.parquet PIPE.parquet PIPE.parquet",
    "bench report": "bench report PIPE",
    "bench compare": "bench compare PIPE PIPE",
    "simulate": "simulate --machine PIPE.toml",
    "infer": "infer RAW --checkpoint RUN",
}


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str]]:
    """Run all commands; none may wait for a writer that never comes: a test that hangs is ended."""
    folder = tmp_path_factory.mktemp("pipes")
    for suffix in ("", ".parquet", ".csv", ".json", ".toml"):
        os.mkfifo(folder / f"pipe{suffix}")
    (folder / "run").mkdir()
    os.mkfifo(folder / "run/checkpoint.pt")
    (folder / "raw").mkdir()
    np.save(folder / "raw/cube.npy", np.zeros((8, 8, 8), np.float32))
    words = {"PIPE": "pipe", "OUT": "out", "RAW": "raw", "RUN": "run"}

    def answer(command: str) -> tuple[int, str]:
        for word, name in words.items():
            command = command.replace(word, str(folder / name))
        with contextlib.redirect_stderr(io.StringIO()) as said:
            return run(command.split()), said.getvalue()

    with pytest.MonkeyPatch.context() as patch:
        fork_launches(patch)
        return {name: answer(command) for name, command in COMMANDS.items()}


@pytest.mark.few_cases(4)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_pipe_or_device_is_refused(name: str, answered: dict[str, tuple[int, str]]) -> None:
    """Opening it would wait for ever, or read for ever."""
    status, text = answered[name]
    assert status == 2
    assert ("found a device" if "device" in name else "found a named pipe") in text
    assert "write the data to a file and name that" in text
