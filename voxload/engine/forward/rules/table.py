"""Table of rules: what functions of torch do on blocks, by the function."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from voxload.engine.forward.rule import Rule
from voxload.engine.forward.rules.channels import (
    ALONG,
    EXPANSIONS,
    LINEAR,
    PRELU,
    REPEATS,
    along,
    expand,
    linear,
    prelu,
    repeat,
)
from voxload.engine.forward.rules.fourier import ON_MODES, SHIFTS, TRANSFORMS, shift, transform
from voxload.engine.forward.rules.indexing import INDEXING, STORES, index, store
from voxload.engine.forward.rules.interpolation import RESIZES, resize
from voxload.engine.forward.rules.normalising import LAYER_NORM, NAMES, RMS_NORM, SOFTMAX, norm, normalise, softmax
from voxload.engine.forward.rules.padding import PADDINGS, ROLLS, pad, roll
from voxload.engine.forward.rules.pointwise import FUNCTIONS, pointwise
from voxload.engine.forward.rules.products import ATTENTION, EINSUM, PRODUCTS, attend, einsum, multiply
from voxload.engine.forward.rules.randomness import DRAWS, DROPOUTS, draw, drop
from voxload.engine.forward.rules.rearranging import (
    CONCATENATIONS,
    ORDERS,
    PARTITIONS,
    RESHAPES,
    STACKS,
    concatenate,
    part,
    reorder,
    reshape,
    stack,
)
from voxload.engine.forward.rules.reducing import ADAPTIVE, ADAPTIVE_MAXIMA, MINIMA, SUMS, adapt, adapt_maximum, reduce
from voxload.engine.forward.rules.reducing import MAXIMA as EXTREMA
from voxload.engine.forward.rules.reducing import MEANS as AVERAGES
from voxload.engine.forward.rules.windows import (
    CONVOLUTIONS,
    MAXIMA,
    MEANS,
    TRANSPOSED,
    convolution,
    maximum,
    mean,
    transposed,
)

RULES: Mapping[Any, Rule] = {
    **dict.fromkeys(FUNCTIONS, pointwise),
    **dict.fromkeys(RESHAPES, reshape),
    **dict.fromkeys(ORDERS, reorder),
    **dict.fromkeys(CONCATENATIONS, concatenate),
    **dict.fromkeys(PARTITIONS, part),
    **dict.fromkeys(CONVOLUTIONS, convolution),
    **dict.fromkeys(TRANSPOSED, transposed),
    **dict.fromkeys(MAXIMA, maximum),
    **dict.fromkeys(MEANS, mean),
    **dict.fromkeys(NAMES, normalise),
    **dict.fromkeys(LINEAR, linear),
    **dict.fromkeys(ALONG, along),
    **dict.fromkeys(SOFTMAX, softmax),
    **dict.fromkeys(LAYER_NORM | RMS_NORM, norm),
    **dict.fromkeys(EXPANSIONS, expand),
    **dict.fromkeys(REPEATS, repeat),
    **dict.fromkeys(DROPOUTS, drop),
    **dict.fromkeys(DRAWS, draw),
    **dict.fromkeys(INDEXING, index),
    **dict.fromkeys(STACKS, stack),
    **dict.fromkeys(PADDINGS, pad),
    **dict.fromkeys(ROLLS, roll),
    **dict.fromkeys(PRELU, prelu),
    **dict.fromkeys(PRODUCTS, multiply),
    **dict.fromkeys(EINSUM, einsum),
    **dict.fromkeys(SUMS | AVERAGES | EXTREMA | MINIMA, reduce),
    **dict.fromkeys(ADAPTIVE, adapt),
    **dict.fromkeys(ADAPTIVE_MAXIMA, adapt_maximum),
    **dict.fromkeys(RESIZES, resize),
    **dict.fromkeys(STORES, store),
    **dict.fromkeys(ATTENTION, attend),
    **dict.fromkeys(TRANSFORMS, transform),
    **dict.fromkeys(SHIFTS, shift),
}
"""By the function that is called. What has no rule runs on whole tensors."""
RULES_ON_MODES: Mapping[Any, Rule] = ON_MODES
"""Those for spectra of which some modes are kept."""
MEETING: frozenset[Rule] = frozenset([pointwise, concatenate, stack, multiply, einsum, store])
"""Rules for functions of several tensors, of which any may be a volume; others are of their first argument."""
WRITERS: frozenset[Rule] = frozenset([pointwise, drop, store])
"""Rules that know of functions that write into what they are given."""
