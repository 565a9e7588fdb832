"""``voxload plan``: tables, figures, plans and pictures, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from voxload.catalog.table import Catalog, Entry
from voxload.cli.description import Description
from voxload.cli.main import run
from voxload.cli.planning.applied import training_choice
from voxload.errors import UsageError
from voxload.plan import Plan, load

PLAN = ["plan", "cosmoflow", "--sample", "4,32,32,32", "--batch", "8", "--machine", "lassen", "--ranks", "1..8"]


def test_the_table_fits_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Of 80 columns; best first, with why it is best and how sure that is, and layers where they are asked for."""
    assert run([*PLAN, "--explain", "features.0"]) == 0
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    assert "Best by time:" in printed
    assert "published figures" in printed
    assert "features.0.0" in printed
    assert "features.1.0" not in printed


def test_figures_plan_and_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The plan is the first of the setups, and no setup of the Pareto table beats another."""
    plan, picture = tmp_path / "plan.json", tmp_path / "plan.png"
    assert run([*PLAN, "--json", "--goal", "cost", "--output", str(plan), "--plot", str(picture)]) == 0
    figures = json.loads(capsys.readouterr().out)
    best, found = figures["setups"][0], load(plan)
    assert (list(found.spatial), found.groups, found.samples) == (best["spatial"], best["groups"], best["samples"])
    assert found.predicted["step_seconds"] == best["step_seconds"]
    assert best["ranks"] * best["step_seconds"] == min(
        each["ranks"] * each["step_seconds"] for each in figures["setups"]
    )
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert {each["ranks"] for each in figures["setups"]} == {1, 2, 4, 8}
    assert best["memory_bytes"]["total"] == sum(
        value for name, value in best["memory_bytes"].items() if name != "total"
    )


@pytest.mark.long
def test_layers_are_chosen_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the best setups with blocks; those that use the grid otherwise are told, and stand in the plan."""
    path = tmp_path / "plan.json"
    words = ["plan", "unet3d", "--sample", "1,64,64,64", "--batch", "1", "--machine", "lassen", "--ranks", "4"]
    assert run([*words, "--layers", "1", "--output", str(path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    with_layers = [each for each in answer["setups"] if each["layers"]]
    assert with_layers
    in_space = [each for each in answer["setups"] if not each["layers"]]
    assert answer["setups"][0]["step_seconds"] <= min(each["step_seconds"] for each in in_space)
    assert load(path).layers == answer["setups"][0]["layers"]
    assert run([*words, "--layers", "1"]) == 0
    printed = capsys.readouterr().out
    assert f" +{len(with_layers[0]['layers'])}" in printed
    if answer["setups"][0]["layers"]:
        assert "do not cut space alone" in printed
    assert max(map(len, printed.splitlines())) <= 80


def test_pipelines_are_tried(capsys: pytest.CaptureFixture[str]) -> None:
    """Of up to as many stages as are asked for; the table has what they wait, and still fits."""
    assert run([*PLAN, "--stages", "2", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)["setups"]
    staged = [each for each in figures if each["stages"] == 2]
    assert staged
    assert all(len(each["cuts"]) == 1 and each["microbatches"] == each["samples"] for each in staged)
    assert all(each["ranks"] % 2 == 0 and each["seconds"]["waiting"] > 0 for each in staged)
    assert run([*PLAN, "--stages", "2", "--rows", "40"]) == 0
    printed = capsys.readouterr().out
    assert " p2 " in printed
    assert "wait: for other stages" in printed
    assert max(map(len, printed.splitlines())) <= 80


def _memory(words: list[str], capsys: pytest.CaptureFixture[str]) -> int:
    """Return the bytes that a rank has in the best setup."""
    assert run([*words, "--json"]) == 0
    return int(json.loads(capsys.readouterr().out)["setups"][0]["memory_bytes"]["total"])


@pytest.mark.long
def test_modules_run_again_where_memory_is_short(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """If they may; which ones is told, and stands in the plan. Without, the error says what is in the way."""
    path = tmp_path / "plan.json"
    words = ["plan", "unet3d", "--sample", "1,64,64,64", "--batch", "1", "--machine", "lassen", "--ranks", "1"]
    most, least = (_memory([*words, *more], capsys) for more in ([], ["--checkpointing", "--goal", "memory"]))
    assert least < most
    words += ["--memory", str((most + least) // 2)]
    assert run(words) == 2
    assert "checkpoint activations" in capsys.readouterr().err
    assert run([*words, "--checkpointing", "--output", str(path)]) == 0
    printed = capsys.readouterr().out
    found = load(path)
    assert found.recompute
    assert f" r{len(found.recompute)} " in printed
    assert f"Modules that run again in the backward pass: {', '.join(found.recompute)}"[:70] in printed
    assert max(map(len, printed.splitlines())) <= 80


def test_two_plans_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What differs is listed; a plan does not differ from itself; what is none is refused."""
    for name, goal in (("a", "time"), ("b", "ranks")):
        assert run([*PLAN, "--goal", goal, "--output", str(tmp_path / f"{name}.json")]) == 0
    capsys.readouterr()
    assert run(["plan", "diff", str(tmp_path / "a.json"), str(tmp_path / "b.json")]) == 0
    printed = capsys.readouterr().out
    assert "ranks" in printed
    assert "optimizer" not in printed
    assert run(["plan", "diff", str(tmp_path / "a.json"), str(tmp_path / "a.json")]) == 0
    assert "equal" in capsys.readouterr().out
    (tmp_path / "c.json").write_text('{"format": "voxload plan 9"}')
    assert run(["plan", "diff", str(tmp_path / "a.json"), str(tmp_path / "c.json")]) == 1
    assert "plan again" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "no such file"),
        ('{"format": "vox', "a file that voxload plan --output wrote"),
        ('{"format": "voxload plan 1", "model": "unet3d"}', "fields missing"),
        ("[]", "a file that voxload plan --output wrote"),
    ],
)
def test_what_is_no_plan_is_named(
    tmp_path: Path, text: str | None, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With its path, whatever is wrong with it."""
    path = tmp_path / "plan.json"
    if text is not None:
        path.write_text(text)
    assert run(["plan", "diff", str(path), str(path)]) == (2 if text is None else 1)
    error = capsys.readouterr().err
    assert f"plan {path}" in error
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--memory", "10MiB"], "memory of a rank.*the largest tensor is.*split each sample"),
        (["--ranks", "0..8"], "--ranks"),
        (["--ranks", "eight"], "--ranks"),
        (["--sample", "32,32,32"], "--sample"),
        (["--sample", "4,32,32,16"], "cubes"),
        (["--goal", "fame"], "--goal"),
        (["--amp", "bf16"], "no speed for bfloat16"),
        (["--optimizer", "lion"], "optimiser"),
        (["--machine", "summit"], "neither a name nor a file"),
        (["--explain", "nothing"], "features.0.0"),
    ],
)
def test_what_cannot_be_planned_is_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line that says what to do."""
    assert run([*PLAN, *arguments]) != 0
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert all(part in error for part in message.split(".*"))


def _written(folder: Path) -> Path:
    path = folder / "plan.json"
    Plan("cosmoflow", (1, 32, 32, 32), "lassen", (2, 1, 1), 1, 2).write(path)
    return path


def test_training_takes_a_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Network, blocks, batch and ranks are the plan's; other ranks, or a stranger's network, are refused."""
    monkeypatch.delenv("RANK", raising=False)
    chosen = training_choice(_written(tmp_path), 1)
    assert (chosen.model, chosen.variant, chosen.spatial) == ("cosmoflow", "", (2, 1, 1))
    assert (chosen.batch_size, chosen.processes, chosen.layers) == (2, 2, {})
    assert run(["train", str(tmp_path), "--plan", str(_written(tmp_path)), "--spatial", "1,2,1"]) == 2
    with pytest.raises(UsageError, match="found 4 ranks, expected 2"):
        training_choice(_written(tmp_path), 4)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert training_choice(_written(tmp_path), 1).processes == 1
    Plan("cosmoflow", (1, 32, 32, 32), "lassen", (2, 1, 1), 1, 2, "sgd").write(tmp_path / "plan.json")
    with pytest.raises(UsageError, match="adam in float32"):
        training_choice(tmp_path / "plan.json", 1)
    Plan("os:getcwd", (1, 32, 32, 32), "lassen", (2, 1, 1), 1, 2).write(tmp_path / "plan.json")
    with pytest.raises(UsageError, match=r"script of your own: shard"):
        training_choice(tmp_path / "plan.json", 1)
    staged = Plan("cosmoflow", (1, 32, 32, 32), "lassen", (1, 1, 1), 1, 2, stages=2, microbatches=2, cuts=("head_0",))
    staged.write(tmp_path / "plan.json")
    with pytest.raises(UsageError, match="a pipeline of 2 stages"):
        training_choice(tmp_path / "plan.json", 1)


def test_help_and_guide_say_which_plans_training_takes() -> None:
    """What is refused is said beforehand: in the option's help, and beside the table of who reads a plan."""
    options = {each.name: each.settings["help"] for each in Description.read("voxload.cli.network.train").parameters}
    guide = " ".join((Path(__file__).parents[2] / "docs/guides/planning.md").read_text().split())
    assert "Adam in float32 under DDP" in options["plan_file"]
    assert "`voxload train --plan` runs only plans for Adam in float32 under DDP" in guide


def _catalog(folder: Path) -> Path:
    """Write a few small volumes with targets, and their catalogue."""
    rng, entries = np.random.default_rng(0), []
    for number in range(8):
        path = folder / f"{number}.h5"
        with h5py.File(path, "w") as file:
            file["x"] = rng.poisson(3.0, (1, 32, 32, 32)).astype("i2")
        targets = {"mean": float(number)}
        entries.append(Entry(str(number), path.name, "x", (1, 32, 32, 32), "<i2", "CDHW", 65536, targets))
    Catalog.from_entries(entries, folder).write(folder / "catalog.parquet")
    return folder


def test_a_plan_for_other_samples_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What it says of time and memory would be of something else; the answer says how to plan again."""
    catalog = str(_catalog(tmp_path))
    Plan("cosmoflow", (1, 64, 64, 64), "lassen", (2, 1, 1), 1, 2).write(tmp_path / "plan.json")
    assert run(["train", catalog, "--plan", str(tmp_path / "plan.json"), "--output", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert "found a plan for (1, 64, 64, 64)" in error
    assert "--sample 1,32,32,32" in error


@pytest.mark.long
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"layers": {"features.1.0": "filter,space,space", "head.1": "channel,space,space"}},
        {"recompute": ("features.0", "features.1")},
    ],
    ids=["space", "layers", "recompute"],
)
def test_a_plan_is_trained(more: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By two processes, which each read half of every sample; whatever layers use the grid for, or run again."""
    plan, output = tmp_path / "plan.json", tmp_path / "run"
    Plan("cosmoflow", (1, 32, 32, 32), "lassen", (2, 1, 1), 1, 2, **more).write(plan)
    catalog = str(_catalog(tmp_path))
    assert run(["train", catalog, "--plan", str(plan), "--epochs", "1", "--output", str(output), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert len(result["ranks"]) == 2
    assert json.loads((output / "result.json").read_text())["epochs"]


def test_a_conversion_cuts_chunks_for_a_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For the ranks that will read; its grid and another one at once are refused."""
    plan, raw = _written(tmp_path), tmp_path / "raw.npy"
    np.save(raw, np.zeros((64, 64, 64), "i2"))
    for more in (["--plan", str(plan)], ["--spatial", "2,1,1"]):
        assert run(["convert", str(raw), str(tmp_path / "out"), "--dry-run", "--json", *more]) == 0
    planned, asked = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert planned | {"seconds_estimated": 0} == asked | {"seconds_estimated": 0}
    assert run(["convert", str(raw), str(tmp_path / "out"), "--plan", str(plan), "--spatial", "2,1,1"]) == 2
    assert "beside --plan" in capsys.readouterr().err
