/* Reads: all chunks of some boxes, fetched, decoded and pasted by one call. */
#ifndef VOXLOAD_READ_H
#define VOXLOAD_READ_H

#include "decode/decoders.h"
#include "paste/paste.h"
#include "source.h"

/* What is learnt of a volume once: how its chunks are stored, and where. Numbers of eight bytes alone, as Python lays
   them out. */
struct volume {
    struct grid grid;
    struct pipeline pipeline;
    uint64_t width, is_swapped;
    const uint32_t *checksums; /* of each chunk as stored; NULL where nothing is compared */
    const uint8_t *are_summed; /* whether the chunk was there when they were taken */
    uint64_t pipeline_number;  /* the same for volumes that decode alike; 0 where decoded chunks are not kept */
    int64_t stored, cast;      /* types, where voxels are read as others; -1 where as they are */
    struct source source;
};

enum outcome { PASTED, ABSENT, FAILED };

/* Read boxes; `outcomes` says of each row of the plan what became of its chunk. The rows stand in the order of chunks. */
void read_rows(const struct volume *volume, const struct row *rows, size_t count, uint8_t *outcomes, int threads);

/* Order rows by their chunks. */
void order_rows(struct row *rows, size_t count);

#endif
