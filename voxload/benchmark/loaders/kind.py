"""Kind: a loader of this package before it is told what to load, and what is checked before it is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pkgutil import resolve_name

import numpy as np
import torch

from voxload.benchmark.loaders.delivery import is_on_device
from voxload.benchmark.loaders.protocol import BenchLoader, LoaderKind, Task, Volume
from voxload.errors import UsageError
from voxload.readers.store import is_url

_PACKAGES = {"nvidia.dali": "nvidia-dali-cuda120"}
"""What to install for a module, where it is not called like it."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A loader of another library; see LoaderKind."""

    name: str
    title: str
    needs: tuple[str, ...]
    formats: tuple[str, ...]
    make: str
    """``module:name``, in this package, of what makes the loader of a task; `prepare` imports it."""
    least_threads: int = 0
    """Fewest threads or worker processes that it works with."""
    keeps_memory: bool = False
    """Whether it keeps blocks in memory when it is given some."""
    native_only: tuple[str, ...] = ()
    """Formats in which it reads voxels of this machine's byte order only."""
    reads_data: bool = False
    """Whether it reads the task's data set itself, and so whatever that can read, URLs too."""

    def build(self, task: Task) -> BenchLoader:
        """See LoaderKind."""
        check_installed(self)
        self._check_supply(task)
        if not self.reads_data:
            self._check_volumes(task.volumes)
        loader: BenchLoader = self.maker()(task)
        return loader

    def maker(self) -> Callable[[Task], BenchLoader]:
        """Return what makes the loader; raises ImportError where a library does not start."""
        found: Callable[[Task], BenchLoader] = resolve_name(f"{__package__}.{self.make}")
        return found

    def _check_supply(self, task: Task) -> None:
        supply = task.workload.supply
        if supply.disk or (supply.memory and not self.keeps_memory):
            raise UsageError(
                f"loader {self.name}",
                found="a disk that keeps blocks" if supply.disk else "memory that keeps blocks",
                expected="none, for it keeps nothing there",
                remedy="leave it out, or use --loader voxload",
            )
        if supply.policy:
            raise UsageError(
                f"loader {self.name}",
                found=f"policy {supply.policy!r}",
                expected="none, for it has one way of keeping blocks",
                remedy="leave it out, or use --loader voxload",
            )
        if supply.threads < self.least_threads:
            raise UsageError(
                f"threads of loader {self.name}", found=str(supply.threads), expected=f"{self.least_threads} or more"
            )
        if is_on_device(supply) and not torch.cuda.is_available():
            raise UsageError("device", found=f"no {supply.device} that torch can use", remedy="use --device cpu")

    def _check_volumes(self, volumes: tuple[Volume, ...]) -> None:
        if not volumes:
            raise UsageError("samples", found="none", expected="one or more")
        for volume in volumes:
            if volume.format not in self.formats:
                raise UsageError(
                    f"loader {self.name} on {volume.path}",
                    found=volume.format,
                    expected=f"one of {', '.join(self.formats)}",
                    remedy="convert the samples, or use another loader",
                )
            if volume.format in self.native_only and not np.dtype(volume.dtype).isnative:
                raise UsageError(
                    f"loader {self.name} on {volume.path}", found=volume.dtype, expected="this machine's byte order"
                )
            if is_url(volume.path):
                raise UsageError(f"loader {self.name} on {volume.path}", found="a URL", expected="a file or folder")
            if _form(volume) != _form(volumes[0]):
                raise UsageError(
                    f"loader {self.name} on {volume.path}",
                    found=_form(volume),
                    expected=f"{_form(volumes[0])} as {volumes[0].path}",
                    remedy="use samples of one shape, type and order of axes",
                )


def missing(kind: LoaderKind) -> tuple[str, ...]:
    """Return the modules that a loader needs and that are not there."""
    return tuple(name for name in kind.needs if not _is_there(name))


def prepare(kind: LoaderKind) -> None:
    """Import what a loader needs, and what makes it, so that no time of loading is spent on either.

    Raises what `check_installed` raises, and ImportError where a library does not start after all.
    """
    check_installed(kind)
    if isinstance(kind, Kind):
        kind.maker()


def check_installed(kind: LoaderKind) -> None:
    """Import what a loader needs.

    Raises UsageError, with what to install, where modules are missing or do not start.
    """
    absent = missing(kind)
    if absent:
        packages = " ".join(_PACKAGES.get(name, name) for name in absent)
        raise UsageError(
            f"loader {kind.name}",
            found=f"no module {', '.join(absent)}",
            expected="it to be installed",
            remedy=f"pip install {packages}",
        )
    for name in kind.needs:
        try:
            import_module(name)
        except ImportError as error:
            raise UsageError(
                f"loader {kind.name}",
                found=f"module {name}, which does not start: {error}",
                remedy=f"pip install --force-reinstall {_PACKAGES.get(name, name)}",
            ) from error


def _is_there(module: str) -> bool:
    """Tell whether a module can be imported, without importing more of it than its parents."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _form(volume: Volume) -> str:
    return f"{volume.dtype} {volume.axes} {volume.shape}"
