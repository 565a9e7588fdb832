"""Files of machines: those that are shipped, those that a calibration writes, and those with slips of the pen."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from importlib.resources import files as resources
from pathlib import Path

import pytest

from voxload.errors import NotFoundError, UsageError
from voxload.plan.costs.kernels import ANY, KernelPoints, Measured
from voxload.plan.costs.speeds import Roofline
from voxload.plan.platform import files
from voxload.plan.platform.calibration import Calibration, Company, Sharing
from voxload.prefetch import machines

TEMPLATE = (resources(machines.__name__) / "template.toml").read_text(encoding="utf-8")
CALIBRATION = Calibration(
    ranks=2,
    device="cpu",
    name='a "quoted" \\ name',
    memory=2**33,
    overheads=(1e-6, -2e-6, 3e-6),
    kernels=(KernelPoints(ANY, ((100.0, 50.0), (67108864.0, 33554432.0)), (1e-5, 1e-3)),),
    sharing=(
        Sharing(1, 0.9),
        Sharing(2, 1.0, 1.1, 1.2, 1e-4, 1e-9, 2e-4, 3e-9, 5e-3, 0.1),
        Sharing(4, 2.0, 1.0, 1.5, 3e-4, 2e-9, 6e-4, 4e-9, 9e-3, 0.2),
    ),
)


def test_points_of_another_version_are_refused(tmp_path: Path) -> None:
    """Rather than read as others: a calibration is as old as the file is."""
    path = tmp_path / "machine.toml"
    points = KernelPoints("aten.convolution Mkldnn", ((8.0,) * 8,), (1e-3,))
    files.write(replace(CALIBRATION, kernels=(points,)), path, name="box", day=date(2026, 1, 2))
    with pytest.raises(UsageError, match=r"Mkldnn.*of \[9\] numbers.*11 numbers above 0.*calibrate again"):
        files.load(str(path))


def test_shipped_machines_say_where_their_figures_are_from() -> None:
    """And what a plan needs; those that voxload simulate knows too have storage."""
    assert {"abci", "h100", "lassen", "pizdaint"} == set(files.names())
    for name in files.names():
        found = files.load(name)
        assert found.source
        assert found.calibration is None
        kernels = found.kernels("float32", 1)
        assert isinstance(kernels, Roofline)
        assert kernels.flops < found.device.flops["float32"] * 1.0001
        assert (found.storage is not None) == (name in machines.names())
    assert files.load("lassen").fabric(4, is_alone=False).between.seconds_per_byte == pytest.approx(1 / 25e9)


def test_the_template_is_a_machine() -> None:
    """Of its share, convolutions reach that much."""
    found = files.load("template")
    assert found.device.flops["float32"] == pytest.approx(0.7 * 15e12)
    assert found.storage == machines.load("template")


def test_what_was_measured_is_read_again(tmp_path: Path) -> None:
    """Every figure, to six digits; names with quotes too."""
    path = tmp_path / "machine.toml"
    files.write(CALIBRATION, path, name='my "box"', day=date(2026, 1, 2))
    found = files.load(str(path))
    assert found.name == 'my "box"'
    assert "2026-01-02" in found.source
    assert found.calibration == CALIBRATION  # whole numbers exactly: kernels change at sizes
    assert found.storage is None
    assert isinstance(found.kernels("float32", 2), Measured)


def test_measured_links_are_those_of_as_many_ranks(tmp_path: Path) -> None:
    """Or of the next larger number that was measured; a sum over some of them waits as halos do, or a little longer."""
    path = tmp_path / "machine.toml"
    files.write(CALIBRATION, path, name="box", day=date(2026, 1, 2))
    found = files.load(str(path))
    assert [found.fabric(ranks, is_alone=True).within.latency for ranks in (2, 3, 4, 16)] == [1e-4, 3e-4, 3e-4, 3e-4]
    fabric = found.fabric(2, is_alone=True)
    assert fabric.all_reduce(1000, [0, 1]) == pytest.approx(2e-4 + 3e-6)
    several = found.fabric(4, is_alone=True)
    assert several.all_reduce(0, [0, 1]) == pytest.approx(3e-4)
    assert several.all_reduce(0, [0, 1, 2]) == pytest.approx(4.5e-4)
    assert several.all_reduce(0, [0, 1, 2, 3]) == pytest.approx(6e-4)
    assert several.gradients == 9e-3
    assert [found.stand_in(ranks) for ranks in (1, 2, 3, 4, 16)] == [0, 0, 4, 0, 4]


def test_ranks_compute_as_fast_as_their_company_lets_them(tmp_path: Path) -> None:
    """Alone, beside replicas and beside blocks of one sample; more than were measured share what those had."""
    path = tmp_path / "machine.toml"
    files.write(CALIBRATION, path, name="box", day=date(2026, 1, 2))
    found = files.load(str(path))

    def slowdown(ranks: int, company: Company = Company.APART) -> float:
        kernels = found.kernels("float32", ranks, company)
        assert isinstance(kernels, Measured)
        return kernels.slowdown

    assert slowdown(1) == 0.9
    assert [slowdown(2, each) for each in (Company.APART, Company.REPLICAS, Company.BLOCKS)] == [1.0, 1.1, 1.2]
    assert slowdown(4, Company.BLOCKS) == 3.0
    assert slowdown(3) == pytest.approx(1.5)
    assert slowdown(8) == pytest.approx(4.0)


def test_ranks_that_share_a_host_share_its_memory(tmp_path: Path) -> None:
    """Those of a GPU have their own."""
    path = tmp_path / "machine.toml"
    files.write(CALIBRATION, path, name="box", day=date(2026, 1, 2))
    found = files.load(str(path))
    assert [found.memory(ranks) for ranks in (1, 2, 8)] == [2**33, 2**33, 2**31]
    assert files.load("lassen").memory(4) == 2**34


def test_a_network_between_nodes_that_nobody_measured_is_not_made_up(tmp_path: Path) -> None:
    """A plan on several nodes is refused until the file says what it does."""
    path = tmp_path / "machine.toml"
    files.write(CALIBRATION, path, name="box", day=date(2026, 1, 2))
    with pytest.raises(UsageError, match=r"network between nodes.*links.between"):
        files.load(str(path)).fabric(2, is_alone=False)
    text = path.read_text(encoding="utf-8")
    for line in ("[links.between]", "latency = 0.00002", 'bytes_per_second = "12.5GB"'):
        assert f"# {line}" in text
        text = text.replace(f"# {line}", line)
    path.write_text(text, encoding="utf-8")
    assert files.load(str(path)).fabric(2, is_alone=False).between.latency == 2e-5


def test_what_was_not_measured_is_refused(tmp_path: Path) -> None:
    """Another type, or more ranks than devices."""
    path = tmp_path / "machine.toml"
    files.write(CALIBRATION, path, name="box", day=date(2026, 1, 2))
    with pytest.raises(UsageError, match="not bfloat16"):
        files.load(str(path)).kernels("bfloat16", 1)
    with pytest.raises(UsageError, match="no speed for bfloat16"):
        files.load("lassen").kernels("bfloat16", 1)
    with pytest.raises(UsageError, match="5 ranks on a node"):
        files.load("lassen").kernels("float32", 5)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[device]", "[devise]", "devise: found unknown"),
        ("bandwidth =", "bandwith =", r"\[device\] bandwidth: found nothing"),
        ("share = 0.7", 'share = "most"', "a number above 0"),
        ("float32 = 15e12", "float32 = 0", "a number above 0"),
        ("watts = 300", "watts = 300\nwats = 3", "wats"),
        ("[links.between]", "[links.betwen]", "between"),
    ],
)
def test_slips_are_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    """With the file, the table and the entry."""
    path = tmp_path / "own.toml"
    path.write_text(TEMPLATE.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(UsageError, match=message):
        files.load(str(path))


def test_machines_that_are_not_there() -> None:
    """All that are, are named."""
    with pytest.raises(NotFoundError, match=r"abci.*lassen"):
        files.load("summit")
    with pytest.raises(UsageError, match=r"nothing about devices.*calibrate"):
        files.load("nopfs-cluster")
