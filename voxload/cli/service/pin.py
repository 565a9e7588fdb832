"""``voxload serve pin``: have blocks near until somebody lets them go."""

from __future__ import annotations

from voxload.cli.options import AllowOutside
from voxload.cli.service.warm import (
    AsJson,
    Axes,
    Data,
    Dataset,
    Edge,
    Halo,
    Name,
    Ranks,
    Seed,
    Socket,
    Spatial,
    chosen,
    keep,
)

EPILOG = "Example: voxload serve pin universes/ --name universes, and later voxload serve free universes"
"""Shown at the end of the command's help."""


def pin(
    data: Data,
    *,
    dataset: Dataset = "",
    axes: Axes = "",
    spatial: Spatial = "1,1,1",
    ranks: Ranks = "",
    halo: Halo = 0,
    boundary: Edge = "zero",
    seed: Seed = None,
    name: Name = "",
    allow_outside: AllowOutside = False,
    socket: Socket = "auto",
    as_json: AsJson = False,
) -> None:
    """Have the service read blocks and keep them, until they are let go by voxload serve free NAME."""
    found = chosen(
        data, dataset, axes, spatial, ranks, halo=halo, boundary=boundary, seed=seed, allow_outside=allow_outside
    )
    keep(found, name or data, 0.0, socket=socket, as_json=as_json)
