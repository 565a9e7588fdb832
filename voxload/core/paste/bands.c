/* Bands of an open flat file, read and parted without Python between.

   Between two bands there is nothing but the system's call, so they may be short enough for the nearest large cache. */
#define _POSIX_C_SOURCE 200809L
#define _FILE_OFFSET_BITS 64

#include "core.h"
#include "deinterleave.h"

#include <unistd.h>

/* Where the runs of a band end among all runs, and the bytes of one. */
struct run_end {
    uint64_t last, length;
};

/* Read bands from the `first` on and part them; return the number of the first that the system did not give at once, or
   how many bands there are. Whoever calls finds out why: a call that was interrupted is not asked for again here.

   `places` are where runs begin in the file, less `begin`; `plans` are bands of `channels` rows each, one after the
   other, whose voxels are as contiguous as the runs that make them up. */
EXPORT int64_t read_bands(int64_t descriptor, uint64_t begin, uint64_t first, const uint64_t *places,
                          const struct run_end *ends, const uint64_t *plans, uint64_t bands, uint64_t channels,
                          uint64_t width)
{
    const uint64_t columns = sizeof(struct band) / sizeof *plans + channels;
    uint64_t run = first ? ends[first - 1].last : 0;
    for (uint64_t number = first; number < bands; number++) {
        const struct band *band = (const struct band *)(const void *)(plans + number * columns);
        uint64_t at = band->voxels;
        for (; run < ends[number].last; run++) {
            const uint64_t length = ends[number].length;
            if (pread((int)descriptor, (void *)(uintptr_t)at, length, (off_t)(begin + places[run])) != (int64_t)length)
                return (int64_t)number;
            at += length;
        }
        part_band(band, channels, width);
    }
    return (int64_t)bands;
}
