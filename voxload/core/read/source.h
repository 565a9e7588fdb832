/* Where the chunks of a volume are stored: at places of one file, in shards, or each in a file of its own. */
#ifndef VOXLOAD_SOURCE_H
#define VOXLOAD_SOURCE_H

#include "paste/paste.h"
#include "stamp.h"

enum source_kind { TABLE, SHARDS, FILES };

/* An open shard, as Python lays it out; one that is not open has no descriptor. */
struct shard {
    int64_t descriptor;       /* -1 where it is not open */
    uint64_t size;            /* of its file */
    const uint64_t *entries;  /* offset and length of each inner chunk */
    const struct stamp *stamp;
    const char *path;
};

/* Numbers of eight bytes alone, as Python lays them out. */
struct source {
    uint64_t kind;
    /* TABLE: one open file */
    int64_t descriptor;
    const struct stamp *stamp;
    const char *path;
    const uint64_t *offsets; /* of each chunk, counted along the grid */
    const int64_t *sizes;    /* as stored; -1 for one that was never written */
    const uint32_t *masks;
    uint64_t chunks;
    /* SHARDS */
    const struct shard *shards; /* counted along their grid */
    uint64_t inner[AXES];       /* chunks of a shard */
    uint64_t outer[AXES];       /* shards along each axis */
    /* FILES */
    const char *prefix; /* folder and what comes before a chunk's coordinates */
    uint64_t separator, axes;
    uint64_t most; /* bytes that a stored chunk can have */
};

/* A chunk as stored. */
struct stored {
    int descriptor;
    bool is_own; /* to be closed by whoever looked for it */
    uint64_t offset, size;
    uint32_t mask;
    struct stamp stamp; /* of its file */
};

enum found { IS_FOUND, IS_ABSENT, IS_WRONG };

/* Find a row's chunk; opens its file where it has one of its own. Ranges lie inside their files. */
enum found find_chunk(const struct source *source, const struct row *row, struct stored *to);

/* Tell whether the files that some rows are read from are what they were. */
bool source_is_unchanged(const struct source *source, const struct row *rows, uint64_t count);

#endif
