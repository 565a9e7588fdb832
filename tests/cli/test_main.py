"""The program: exit status, one-line errors, help with examples."""

from __future__ import annotations

import inspect
import os
import signal
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import stamina

from tests.support import processes
from tests.support.launches import fork_launches
from voxload.cli.commands import COMMANDS, GROUPS
from voxload.cli.main import run, show_retries
from voxload.errors import UsageError


@pytest.mark.long
def test_every_command_has_help_with_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    """Help ends with status 0 and shows a call that can be copied."""
    for command in ("convert", "info", "verify", "simulate", "infer", "train", "demo"):
        assert run([command, "--help"]) == 0
        assert f"Example: voxload {command}" in " ".join(capsys.readouterr().out.split())
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("voxload ")


def test_the_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever is loaded for a call, the program's help knows all commands, and so does the error of an unknown one."""
    for arguments in ([], ["--help"], ["--traceback", "--help"]):
        run(arguments)
        printed = capsys.readouterr().out
        assert all(f" {name} " in printed for name in (*COMMANDS, *GROUPS))
    assert run(["confert"]) == 2
    assert "'convert'" in capsys.readouterr().err
    for name, group in GROUPS.items():
        for arguments in ([name], [name, "--help"], ["--traceback", name, "--help"]):
            run(arguments)
            printed = capsys.readouterr().out
            assert all(f" {inner} " in printed for inner in group.commands)
    assert run(["bench", "compere"]) == 2
    assert "'compare'" in capsys.readouterr().err


def test_the_lists_say_what_the_commands_say() -> None:
    """Lists of commands are printed without loading them: what they say is each command's own first paragraph."""
    for command in (*COMMANDS.values(), *(command for group in GROUPS.values() for command in group.commands.values())):
        first, _, _ = (inspect.getdoc(getattr(command.load(), command.function)) or "").partition("\n\n")
        assert command.summary == " ".join(first.split())


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder with a good file, a truncated one, and one that is nothing."""
    monkeypatch.chdir(tmp_path)
    with h5py.File("good.h5", "w") as file:
        file["volume"] = np.zeros((16, 16, 16), np.int16)
        file["four"] = np.zeros((16, 16, 16, 2), np.int16)
    whole = Path("good.h5").read_bytes()
    Path("cut.h5").write_bytes(whole[: len(whole) // 2])
    Path("nothing.bin").write_bytes(b"\0" * 100)
    return tmp_path


WRONG: dict[str, tuple[list[str], int, str]] = {
    "no such command": (["frobnicate"], 2, "frobnicate"),
    "no such option": (["info", "good.h5", "--frobnicate"], 2, "--frobnicate"),
    "no path": (["info"], 2, "'path'"),
    "missing path": (["info", "none.h5"], 2, "none.h5: found no such file"),
    "nothing known": (["info", "nothing.bin"], 2, "nothing.bin: found the signature of no known format"),
    "truncated": (["info", "cut.h5", "--dataset", "volume"], 1, "cut.h5: found Unable to synchronously open file"),
    "several volumes": (["info", "good.h5", "--spatial", "2,1,1"], 2, "2 volumes, expected one; name one with --d"),
    "unknown dataset": (["info", "good.h5", "--dataset", "x"], 2, "no dataset 'x', expected one of"),
    "axes unknown": (["info", "good.h5", "--dataset", "four"], 2, "four axes without names"),
    "grid too fine": (["info", "good.h5", "--dataset", "volume", "--spatial", "32,1,1"], 2, "more ranks than voxels"),
    "no grid": (["info", "good.h5", "--dataset", "volume", "--spatial", "2x2"], 2, "--spatial: found '2x2'"),
    "empty source": (["convert", "empty", "out"], 2, "empty"),
    "no catalogue": (["train", "none.parquet"], 2, "none.parquet: found no such file"),
    "world and grid": (["train", "none.parquet", "--spatial", "2,2,2", "--nproc", "12"], 2, "world size 12"),
    "no epochs": (["train", "none.parquet", "--epochs", "0"], 2, "0 epochs"),
}


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("case", WRONG)
def test_errors_are_one_line(case: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong call ends with 2 and failed work with 1, with one line that says what was found."""
    fork_launches(monkeypatch)
    arguments, status, words = WRONG[case]
    Path("empty").mkdir()
    assert run(arguments) == status
    printed = capfd.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert printed.err.startswith("voxload: ")
    assert words in printed.err


@pytest.mark.usefixtures("files")
def test_a_traceback_is_there_for_the_asking() -> None:
    """With --traceback the error itself comes out."""
    with pytest.raises(UsageError, match="no such file"):
        run(["info", "none.h5", "--traceback"])


@pytest.mark.long
@pytest.mark.usefixtures("files")
def test_a_notebooks_way_of_drawing_is_not_taken_over() -> None:
    """A kernel hands its own to what it starts, where it need not be installed; it was an error of matplotlib's."""
    words = [str(Path(sys.executable).with_name("voxload")), "bench", "report", "missing.json"]
    environ = os.environ | {"MPLBACKEND": "nothing"}
    ran = processes.run(words, env=environ, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert ran.stderr == "voxload: missing.json: found no such file, expected a result of voxload bench run --output\n"


def test_ctrl_c_ends_quietly() -> None:
    """An interrupt ends with status 130 and one line, not with a traceback."""
    program = """if True:
        import signal, sys, threading, types
        from voxload.cli import commands, main

        # A shell that starts its jobs in the background has them ignore the signal; a person's terminal does not.
        signal.signal(signal.SIGINT, signal.default_int_handler)

        def hang() -> None:
            sys.stdout.write("ready")
            sys.stdout.flush()
            threading.Event().wait()

        commands.COMMANDS = {"hang": commands.Command("voxload.cli.hang", "hang", "Hang.")}
        sys.modules["voxload.cli.hang"] = types.SimpleNamespace(EPILOG="", hang=hang)
        sys.exit(main.run(["hang"]))
    """
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            assert process.stdout.read(5) == "ready"
            process.send_signal(signal.SIGINT)
            assert process.wait(processes.LIMIT) == 130
            assert process.stderr.read() == "voxload: interrupted\n"
        finally:
            process.kill()


def test_ctrl_c_ends_quietly_while_the_commands_load() -> None:
    """The signal comes in the middle of the imports, before anything of the program has run."""
    program = """if True:
        import os, signal, sys

        signal.signal(signal.SIGINT, signal.default_int_handler)

        class Interrupted:
            def find_spec(self, name, path=None, target=None):
                if name == "typer":
                    os.kill(os.getpid(), signal.SIGINT)

        sys.meta_path.insert(0, Interrupted())
        from voxload.cli.start import main
        main()
    """
    done = processes.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr, done.stdout) == (130, "voxload: interrupted\n", "")


@pytest.mark.parametrize("more", [[], ["--traceback"]])
def test_a_warning_is_one_line(more: list[str]) -> None:
    """What a command warns of is told as errors are; with --traceback as Python does, with its place."""
    program = """if True:
        import sys, types, warnings
        from voxload.cli import commands, main, start

        def warn() -> None:
            warnings.warn("first\\nsecond\x1b[2J", RuntimeWarning, stacklevel=1)

        commands.COMMANDS = {"warn": commands.Command("voxload.cli.warn", "warn", "Warn.")}
        sys.modules["voxload.cli.warn"] = types.SimpleNamespace(EPILOG="", warn=warn)
        start.main()
    """
    done = processes.run([sys.executable, "-c", program, "warn", *more], capture_output=True, text=True)
    if more:
        assert "RuntimeWarning" in done.stderr
    else:
        assert done.stderr == "voxload: warning: first second\\x1b[2J\n"


def test_a_retry_is_told_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Who waits for a storage sees which attempt failed, why, and when the next one comes."""
    show_retries()
    show_retries()
    calls = iter([ConnectionError("no route\nto host"), None])
    for attempt in stamina.retry_context(on=ConnectionError, attempts=3, wait_initial=0, wait_jitter=0, wait_max=0):
        with attempt:
            error = next(calls)
            if error is not None:
                raise error
    assert capsys.readouterr().err.splitlines() == ["voxload: attempt 1 failed, next in 0.0 s: no route\\nto host"]
