"""What functions of torch do on blocks: one rule for each kind, found by the function."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from voxload.engine.forward.modes import SHIFTS
from voxload.engine.forward.rules.attending import ATTENTION, attend
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
from voxload.engine.forward.rules.contracting import EINSUM, PRODUCTS, einsum, multiply
from voxload.engine.forward.rules.drawing import DRAWS, draw
from voxload.engine.forward.rules.dropping import DROPOUTS, drop
from voxload.engine.forward.rules.indexing import INDEXING, index
from voxload.engine.forward.rules.joining import CONCATENATIONS, PARTITIONS, STACKS, concatenate, part, stack
from voxload.engine.forward.rules.normalising import NAMES, normalise
from voxload.engine.forward.rules.padding import PADDINGS, ROLLS, pad, roll
from voxload.engine.forward.rules.pointwise import FUNCTIONS, pointwise
from voxload.engine.forward.rules.pooling import ADAPTIVE_MAXIMA, adapt_maximum
from voxload.engine.forward.rules.reducing import ADAPTIVE, MINIMA, SUMS, adapt, reduce
from voxload.engine.forward.rules.reducing import MAXIMA as EXTREMA
from voxload.engine.forward.rules.reducing import MEANS as AVERAGES
from voxload.engine.forward.rules.regrouping import ORDERS, RESHAPES, reorder, reshape
from voxload.engine.forward.rules.resizing import RESIZES, resize
from voxload.engine.forward.rules.sharing import LAYER_NORM, RMS_NORM, SOFTMAX, norm, softmax
from voxload.engine.forward.rules.storing import STORES, store
from voxload.engine.forward.rules.transforming import ON_MODES, TRANSFORMS, shift, transform
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
from voxload.engine.forward.ruling import Rule

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
