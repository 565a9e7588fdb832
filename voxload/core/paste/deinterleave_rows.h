/* Rows of a slab, parted by vectors of SIZE bytes; included once for each size, as vectors.h is. */
#if SIZE == 64
#include "wide_vectors.h"
#else
#include "vectors.h"
#endif

/* Fill `depth` vectors of each channel. */
INLINE TARGET void NAMED(part_block)(uint8_t *to, const uint64_t *rows, const uint8_t *at, unsigned channels,
                                     unsigned width, unsigned depth)
{
    NAMED(vector) vectors[4][MOST];
#pragma GCC unroll 4
    for (unsigned deep = 0; deep < depth; deep++) {
        NAMED(load_block)(vectors[deep], at + deep * channels * SIZE, channels);
        NAMED(part_vectors)(vectors[deep], channels, width);
    }
#pragma GCC unroll 8
    for (unsigned channel = 0; channel < channels; channel++)
#pragma GCC unroll 4
        for (unsigned deep = 0; deep < depth; deep++)
            NAMED(store)(to + rows[channel] + deep * SIZE, vectors[deep][channel]);
}

INLINE TARGET void NAMED(part_run)(uint8_t *to, const uint64_t *rows, const uint8_t *at, uint64_t count,
                                   unsigned channels, unsigned width)
{
    const uint64_t each = SIZE / width;
    /* Rows of eight channels may push each other out of the nearest cache: all of a line is written at once. */
    const unsigned depth = channels == MOST ? 64 / SIZE : 1;
    uint64_t left = count;
    for (; left >= each * depth; left -= each * depth, to += depth * SIZE, at += channels * depth * SIZE)
        NAMED(part_block)(to, rows, at, channels, width, depth);
    if (depth > 1)
        for (; left >= each; left -= each, to += SIZE, at += channels * SIZE)
            NAMED(part_block)(to, rows, at, channels, width, 1);
    if (!left)
        return;
    if (count >= each) { /* over the end of the vectors before */
        const uint64_t back = (each - left) * width;
        NAMED(part_block)(to - back, rows, at - channels * back, channels, width, 1);
        return;
    }
#if SIZE == 64
    part_run_32(to, rows, at, left, channels, width);
#elif SIZE == 32
    part_run_16(to, rows, at, left, channels, width);
#else
    part_singly(to, rows, at, left, channels, width);
#endif
}

INLINE TARGET void NAMED(part_rows)(const struct slab *slab, unsigned channels, unsigned width)
{
    const struct slab own = *slab; /* what is stored might change another, for all that a compiler knows */
    uint64_t rows[MOST];
    memcpy(rows, own.rows, channels * sizeof *rows);
    for (uint64_t number = 0; number < own.count; number++) {
        uint64_t to = own.to + number * own.to_next, at = own.at + number * own.at_next;
        for (uint64_t left = own.width; left;) {
            const uint64_t count = left < own.wide ? left : own.wide;
            NAMED(part_run)((uint8_t *)(uintptr_t)to, rows, (const uint8_t *)(uintptr_t)at, count, channels, width);
            to += own.apart;
            at += count * channels * width;
            left -= count;
        }
    }
}

#define ROWS(channels, width)                                                                                          \
    TARGET static void NAMED(part_##channels##_of_##width)(const struct slab *slab)                                    \
    {                                                                                                                  \
        NAMED(part_rows)(slab, channels, width);                                                                       \
    }
#define ALL_ROWS(width)                                                                                                \
    ROWS(1, width) ROWS(2, width) ROWS(3, width) ROWS(4, width) ROWS(5, width) ROWS(6, width) ROWS(7, width)           \
    ROWS(8, width)
ALL_ROWS(1)
ALL_ROWS(2)
ALL_ROWS(4)
ALL_ROWS(8)

#define NAME(channels, width) NAMED(part_##channels##_of_##width)
#define ALL_NAMES(width)                                                                                               \
    {NAME(1, width), NAME(2, width), NAME(3, width), NAME(4, width), NAME(5, width), NAME(6, width), NAME(7, width),   \
     NAME(8, width)}
static part_slab *const NAMED(parts)[4][MOST] = {ALL_NAMES(1), ALL_NAMES(2), ALL_NAMES(4), ALL_NAMES(8)};

#undef ROWS
#undef ALL_ROWS
#undef NAME
#undef ALL_NAMES
