/* Reads that were made before, of many samples at once, by one call: each opens its file, which must be what it was. */
#ifndef VOXLOAD_REPEAT_H
#define VOXLOAD_REPEAT_H

#include "read.h"

enum made_kind {
    CHUNKS, /* of a volume, decoded */
    RUNS,   /* of a file, read to where they belong */
    SPANS   /* of a file, from which rows are pasted */
};

/* A file that describes a volume; without a stamp there was none. */
struct seen {
    const char *path;
    const struct stamp *stamp;
};

struct run {
    uint64_t offset, to, length;
};

/* A part of a file, and the rows that are pasted from it, whose `first` and `stop` count from its first byte. */
struct sieved_span {
    uint64_t offset, length, begin, end;
};

/* How a read was made, into arrays that begin at address 0. Numbers of eight bytes alone, as Python lays them out. */
struct made_read {
    uint64_t kind, count; /* boxes, runs or spans */
    const struct seen *seen;
    uint64_t seen_count;
    /* CHUNKS */
    const struct volume *volume; /* of shards, its list names those that are needed by any descriptor */
    const struct wanted *boxes;
    uint64_t shard_count; /* in that list; at most MOST_LISTED */
    /* RUNS and SPANS */
    const char *path;
    const struct stamp *stamp;
    const struct run *runs;
    const struct sieved_span *spans;
    const struct row *rows;
    uint64_t width, is_swapped;
    int64_t stored, cast; /* as of a volume */
};
enum { MOST_LISTED = 64 };

struct repeat {
    const struct made_read *read;
    uint64_t to; /* where its arrays begin now */
};

/* Make reads again by up to `threads` threads; return how many of them did not come whole. */
size_t repeat_all(const struct repeat *repeats, size_t count, int threads);

#endif
