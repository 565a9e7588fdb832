"""Parts: what is proven, in which order, within which time, and what each part needs; imports nothing that may lack."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.proving.claim import Claim

_ENGINE = ("torch", "numpy", "h5py", "rich", "tqdm", "typing_extensions")
_LOADER = (
    *_ENGINE,
    "crc32c",
    "fsspec",
    "imagecodecs",
    "matplotlib",
    "ml_dtypes",
    "numcodecs",
    "pyarrow",
    "typer",
    "zarr",
)
_TESTS = (*_LOADER, "hypothesis", "pytest", "pytest_timeout")
JOINS = ("patch", "add")
"""Ways of joining halos whose cost is compared with that of padding."""


@dataclass(frozen=True, slots=True)
class Part:
    """One process of the run."""

    name: str
    """That of its function as well, behind ``prove_``."""
    limit: int
    """Seconds that it may take; what is left of the whole run may be less."""
    claims: tuple[Claim, ...]
    needs: tuple[str, ...] = _LOADER
    """Modules that must be importable."""
    options: tuple[str, ...] = ()
    """Modules of which one must be."""
    gpus: int = 1
    """How many it needs; on the host it runs as many processes."""
    home: str = ""
    """Module in this folder that has its function; empty for one of its own name."""

    def lacks(self, is_there: Callable[[str], bool], *, gpus: int) -> str:
        """Return what is missing here, as text; empty where nothing is.

        Parameters
        ----------
        is_there
            Tells whether a module can be imported.
        gpus
            How many there are.
        """
        missing = [name for name in self.needs if not is_there(name)]
        if missing:
            return f"needs {', '.join(missing)}"
        if self.options and not any(map(is_there, self.options)):
            return f"needs {' or '.join(self.options)}"
        return f"needs {self.gpus} GPUs, found {gpus}" if gpus < self.gpus else ""


def _at_most(name: str, wanted: float) -> Claim:
    return Claim(name, wanted)


def _at_least(name: str, wanted: float) -> Claim:
    return Claim(name, wanted, is_least=True)


def _stalls(title: str) -> tuple[Claim, ...]:
    """Return what is claimed of a network that trains."""
    return (
        _at_most(f"{title}: share of an epoch that is stall", 0.01),
        Claim(f"{title}: seconds of an epoch beyond its steps on resident batches"),
        Claim(f"{title}: samples a second"),
    )


PARTS = (
    Part("tests", 240, (_at_most("tests marked gpu: failures", 0), Claim("tests marked gpu: passed")), _TESTS),
    Part(
        "transfer",
        45,
        (
            _at_least("copies: bandwidth over a plain pinned copy", 0.9),
            Claim("copies: GB/s of the plain copy"),
        ),
    ),
    Part(
        "transforms",
        90,
        (
            _at_most("transforms: the slowest chain over the floor of memory bandwidth", 1.5),
            Claim("transforms: the slowest chain in torch, step by step, over the floor"),
            Claim("transforms: one call by itself, its launch and end included, over the floor"),
        ),
    ),
    Part("cosmoflow", 75, _stalls("CosmoFlow"), home="training"),
    Part("unet3d", 75, _stalls("U-Net"), home="training"),
    Part(
        "engine",
        75,
        (
            _at_most("engine on one rank: shard(model) over plain torch", 1.02),
            _at_most("engine on one rank: through the engine over plain torch", 1.02),
        ),
        _ENGINE,
    ),
    Part(
        "joins",
        90,
        (
            *(Claim(f"joins: time of {join} over padding") for join in JOINS),
            *(Claim(f"joins: activations of {join} over padding") for join in JOINS),
            Claim("halos: share of a padded step that copies and the engine's operators take"),
        ),
        _ENGINE,
        home="engine",
    ),
    Part(
        "decoding",
        40,
        (
            Claim("nvCOMP: GB/s of decoded zstd chunks"),
            Claim("nvCOMP: over decoding on the host and copying"),
            Claim("kvikIO: GB/s from a file to the device"),
            Claim("kvikIO: over reading and copying"),
        ),
        ("torch", "numpy", "numcodecs"),
        options=("nvidia.nvcomp", "kvikio"),
    ),
    Part(
        "several",
        75,
        (
            Claim("two ranks: speed to one process"),
            Claim("two ranks: share of a step that messages take beyond one without any"),
            _at_most("two ranks: results that are others than one process's", 0),
        ),
        _ENGINE,
        gpus=2,
        home="engine",
    ),
)
"""In the order of what is to be known first: the time for all may be over before the last."""
NAMES = tuple(part.name for part in PARTS)
BUDGET = 9 * 60
"""Seconds of a whole run at most."""


def is_there(name: str) -> bool:
    """Tell whether a module can be imported, without importing more than the packages around it."""
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:  # a package around it is not there
        return False


def chosen(names: Sequence[str]) -> tuple[Part, ...]:
    """Return the parts of some names, in the order of a run."""
    return tuple(part for part in PARTS if part.name in names)
