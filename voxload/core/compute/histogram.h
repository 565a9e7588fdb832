/* Tables of how often keys occur. A table is zero between calls: what lists its keys zeroes them. */
#ifndef VOXLOAD_HISTOGRAM_H
#define VOXLOAD_HISTOGRAM_H

#include <stdint.h>

enum {
    KEYS = 1 << 16,
    LANES = 4,  /* tables that take turns: an increment need not wait for that of an equal neighbour */
    APART = 80, /* places by which equal keys of two tables are not a power of two apart: they would push each other out
                   of caches */
};

typedef uint32_t lane[KEYS + APART];

/* List the keys from `first` to `last` that occur, ascending, and how often, from the place `different` on; return the
   place behind. Key `k` is counted at `k ^ flip` of the tables; what is counted there becomes zero. */
uint64_t list_keys(lane *counts, uint32_t (*found)[KEYS], uint64_t different, uint64_t first, uint64_t last,
                   uint64_t flip);

#endif
