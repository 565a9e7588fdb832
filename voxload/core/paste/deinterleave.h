/* Channels that alternate in memory, each copied into a row of its own.

   Copied one by one voxels take as long as compressing them does; as vectors that are zipped, little longer than any
   copy. */
#ifndef VOXLOAD_DEINTERLEAVE_H
#define VOXLOAD_DEINTERLEAVE_H

#include <stdint.h>

/* A band of voxels and the chunks that it goes to. Axes are d, h and w; strides count bytes, and may be negative: what
   is unsigned wraps around. */
struct band {
    uint64_t chunks, voxels; /* addresses */
    uint64_t extent[3];      /* of the band */
    uint64_t chunk[3];       /* extents of a chunk */
    uint64_t start[3];       /* where the first voxel belongs: along w at the begin of a chunk */
    uint64_t apart[3];       /* from chunk to chunk */
    uint64_t to[2];          /* from plane to plane and from row to row in a chunk */
    uint64_t from[2];        /* the same among the voxels */
    uint64_t rows[];         /* of each channel: bytes from a chunk's begin to its first voxel */
};

/* Copy voxels of 1, 2, 4 or 8 bytes, channels fastest, into rows of the chunks, which are contiguous. */
void part_band(const struct band *band, uint64_t channels, uint64_t width);

#endif
