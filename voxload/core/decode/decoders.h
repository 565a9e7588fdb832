/* The decoders' own functions, found when the module is loaded, and what undoes the filters of a chunk by them. */
#ifndef VOXLOAD_DECODERS_H
#define VOXLOAD_DECODERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How a blosc2 context decodes, as blosc2.h declares it; newer libraries have more at the end, which zeros stand for. */
struct blosc2_parameters {
    int threads;
    void *super_chunk, *filter, *filter_parameters;
    int64_t more[4];
};

/* As the libraries declare them; NULL where a library was not found. */
struct decoders {
    void *(*deflate_new)(void);
    void (*deflate_free)(void *);
    int (*zlib)(void *, const void *, size_t, void *, size_t, size_t *);
    int (*gzip)(void *, const void *, size_t, void *, size_t, size_t *, size_t *);
    void *(*zstd_new)(void);
    size_t (*zstd_free)(void *);
    size_t (*zstd)(void *, void *, size_t, const void *, size_t);
    unsigned (*zstd_is_error)(size_t);
    int (*lz4)(const char *, char *, int, int);
    int (*blosc)(const void *, void *, size_t, int);
    int (*blosc_part)(const void *, int, int, void *);
    int64_t (*unshuffle_bits)(const void *, void *, size_t, size_t, size_t);
    unsigned (*lzf)(const void *, unsigned, void *, unsigned);
    int (*szip)(void *, size_t *, const void *, size_t, void *);
    int (*bzip2_begin)(void *, int, int);
    int (*bzip2)(void *);
    int (*bzip2_end)(void *);
    void *(*blosc2_new)(struct blosc2_parameters);
    void (*blosc2_free)(void *);
    int (*blosc2)(void *, const void *, int32_t, void *, int32_t);
};
enum { DECODERS = sizeof(struct decoders) / sizeof(void *) };
extern struct decoders decoders;

/* One filter that changes the bytes of a chunk. */
enum filter {
    ZLIB, GZIP, ZSTD, LZ4_HDF5, LZ4_SIZED, BLOSC, LZF, BITSHUFFLE, FLETCHER32, CRC32C, SZIP, BZIP2, BLOSC2,
    SCALE_OFFSET, SHUFFLE, IDLE, FILTERS
};
struct step {
    uint64_t filter;
    uint64_t width;   /* bytes of an element */
    uint64_t block;   /* BITSHUFFLE, SZIP: elements of a block; BLOSC2: axes of a chunk */
    uint64_t inner;   /* BITSHUFFLE: its compressor; SZIP: elements of a line */
    uint64_t options; /* SZIP: as it was given them; BLOSC2: address of the extents of a chunk, or 0 */
    uint64_t flags, fill, scale; /* SCALE_OFFSET; the scale is a double */
};
enum { IS_BIG = 1, HAS_FILL = 2, IS_FLOAT = 4 };
enum { MOST_STEPS = 8 };

/* How the chunks of a volume are stored: steps in the order of writing. */
struct pipeline {
    struct step steps[MOST_STEPS];
    uint64_t count, shift; /* place of the first step in the filter mask */
    uint64_t nbytes;       /* of a decoded chunk */
    uint64_t is_shuffled;
};

/* Tells whether all functions that a pipeline needs are there. */
bool can_decode(const struct pipeline *pipeline);

/* One thread's memory, which grows to the largest chunk and is used again. */
struct workspace {
    uint8_t *buffers[4];
    size_t sizes[4];
    void *deflate, *zstd, *blosc2;
};
enum { STORED, ONE, OTHER, PLANES };

/* Room for `size` bytes; NULL where there is no memory. */
uint8_t *room(struct workspace *space, int buffer, size_t size);
void empty(struct workspace *space);

/* Bytes of a decoded chunk that are wanted. */
struct span {
    uint64_t first, stop;
};

/* Undo the filters of a chunk; NULL where its data are not as they should be. Bytes beyond the span may be anything
   where the chunk is not shuffled. `is_shuffled` tells whether the bytes still lie in planes. The result lies in `data`
   or in the workspace. */
const uint8_t *decode(const struct pipeline *pipeline, struct workspace *space, const uint8_t *data, size_t size,
                      uint32_t mask, struct span span, bool *is_shuffled);

#endif
