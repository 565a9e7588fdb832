#include "deinterleave.h"

#include "clones.h"
#include "core.h"

#include <string.h>

enum { MOST = 8 /* channels; the vectors of more do not fit the registers of a processor */ };

/* Rows of voxels that go to one row of chunks. */
struct slab {
    uint64_t to, at;           /* addresses */
    uint64_t count;            /* rows */
    uint64_t to_next, at_next; /* bytes from row to row */
    uint64_t width, wide;      /* voxels of a row, and of a chunk's row */
    uint64_t apart;            /* bytes from chunk to chunk */
    const uint64_t *rows;
};
typedef void part_slab(const struct slab *slab);

INLINE void copy_voxel(uint8_t *to, const uint8_t *at, uint64_t width)
{
    switch (width) { /* a size that is known is one instruction */
    case 1: *to = *at; break;
    case 2: memcpy(to, at, 2); break;
    case 4: memcpy(to, at, 4); break;
    default: memcpy(to, at, 8);
    }
}

INLINE void part_singly(uint8_t *to, const uint64_t *rows, const uint8_t *at, uint64_t count, uint64_t channels,
                        uint64_t width)
{
    for (uint64_t place = 0; place < count; place++)
        for (uint64_t channel = 0; channel < channels; channel++, at += width)
            copy_voxel(to + rows[channel] + place * width, at, width);
}

#define SIZE 16
#define TARGET
#define NAMED(name) name##_16
#include "deinterleave_rows.h"
#undef SIZE
#undef TARGET
#undef NAMED

#if defined(__x86_64__)
#define SIZE 32
#define TARGET __attribute__((target("avx2")))
#define NAMED(name) name##_32
#include "deinterleave_rows.h"
#undef SIZE
#undef TARGET
#undef NAMED
#endif

#if defined(__x86_64__) && !defined(__clang__)
#define SIZE 64
#define TARGET __attribute__((target("avx2,avx512f,avx512bw,avx512vbmi")))
#define NAMED(name) name##_64
#include "deinterleave_rows.h"
#undef SIZE
#undef TARGET
#undef NAMED
#endif

/* A run of more channels than there are functions for, by squares of as many voxels as a vector has. What is left at an
   end is copied with a square that goes over the one before. */
INLINE void part_squares(uint8_t *to, const uint64_t *rows, const uint8_t *at, uint64_t count, uint64_t channels,
                         unsigned width)
{
    const unsigned side = 16 / width;
    if (count < side || channels < side) {
        part_singly(to, rows, at, count, channels, width);
        return;
    }
    for (uint64_t place = 0; place < count; place += side) {
        const uint64_t first = place + side <= count ? place : count - side;
        for (uint64_t channel = 0; channel < channels; channel += side) {
            const uint64_t lowest = channel + side <= channels ? channel : channels - side;
            vector_16 square[16];
#pragma GCC unroll 16
            for (unsigned number = 0; number < side; number++)
                square[number] = load_16(at + ((first + number) * channels + lowest) * width, 16);
            part_vectors_16(square, side, width);
#pragma GCC unroll 16
            for (unsigned number = 0; number < side; number++)
                store_16(to + rows[lowest + number] + first * width, square[number]);
        }
    }
}

static void part_many(const struct slab *slab, uint64_t channels, uint64_t width)
{
    for (uint64_t number = 0; number < slab->count; number++) {
        uint64_t to_run = slab->to + number * slab->to_next, from_run = slab->at + number * slab->at_next;
        for (uint64_t left = slab->width; left;) {
            const uint64_t count = left < slab->wide ? left : slab->wide;
            uint8_t *to = (uint8_t *)(uintptr_t)to_run;
            const uint8_t *at = (const uint8_t *)(uintptr_t)from_run;
            switch (width) {
            case 1: part_squares(to, slab->rows, at, count, channels, 1); break;
            case 2: part_squares(to, slab->rows, at, count, channels, 2); break;
            case 4: part_squares(to, slab->rows, at, count, channels, 4); break;
            default: part_squares(to, slab->rows, at, count, channels, 8);
            }
            to_run += slab->apart;
            from_run += count * channels * width;
            left -= count;
        }
    }
}

static part_slab *find_part(uint64_t channels, uint64_t width)
{
    if (channels > MOST)
        return NULL;
    const unsigned which = width == 1 ? 0 : width == 2 ? 1 : width == 4 ? 2 : 3;
#if defined(__x86_64__) && !defined(__clang__)
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vbmi"))
        return parts_64[which][channels - 1];
#endif
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2"))
        return parts_32[which][channels - 1];
#endif
    return parts_16[which][channels - 1];
}

void part_band(const struct band *band, uint64_t channels, uint64_t width)
{
    part_slab *const part = find_part(channels, width);
    const uint64_t first = band->chunks + band->start[2] / band->chunk[2] * band->apart[2];
    const uint64_t row_size = band->extent[2] * width;
    /* Rows that follow each other in both are one. */
    const bool follow = band->extent[2] <= band->chunk[2] && band->to[1] == row_size &&
                        band->from[1] == channels * row_size;
    struct slab slab = {.to_next = band->to[1], .at_next = band->from[1], .apart = band->apart[2], .rows = band->rows};
    for (uint64_t a = 0; a < band->extent[0]; a++) {
        const uint64_t plane = band->start[0] + a;
        const uint64_t to = first + plane / band->chunk[0] * band->apart[0] + plane % band->chunk[0] * band->to[0];
        for (uint64_t b = 0, count; b < band->extent[1]; b += count) {
            const uint64_t row = band->start[1] + b, inside = row % band->chunk[1];
            const uint64_t left = band->extent[1] - b, room = band->chunk[1] - inside;
            count = left < room ? left : room;
            slab.to = to + row / band->chunk[1] * band->apart[1] + inside * band->to[1];
            slab.at = band->voxels + a * band->from[0] + b * band->from[1];
            slab.count = follow ? 1 : count;
            slab.width = follow ? count * band->extent[2] : band->extent[2];
            slab.wide = follow ? slab.width : band->chunk[2];
            if (part)
                part(&slab);
            else
                part_many(&slab, channels, width);
        }
    }
}

EXPORT void part_channels(const struct band *band, uint64_t channels, uint64_t width)
{
    part_band(band, channels, width);
}
