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

/* Why a read did not begin. */
enum { NO_MEMORY = -1, IS_CHANGED = -2 };

/* Read boxes whose arrays begin `to` bytes further than they say, and return how many chunks were not pasted, or why
   it did not begin; writes the numbers of the first `room` of those chunks to `left`. With `is_again` not from files
   that are other ones than they were. */
int64_t read_at_address(const struct volume *volume, const struct wanted *boxes, uint64_t count, uint64_t to,
                        bool is_again, int threads, uint64_t *left, uint64_t room);

#endif
