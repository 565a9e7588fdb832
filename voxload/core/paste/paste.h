/* Rows of a plan, and what pastes them: from decoded chunks to where their voxels belong.

   A plan is a table of uint64 with one row for each part of a chunk that is wanted somewhere. All strides and places
   count bytes. Nothing is checked here: whoever makes a plan has checked every bound, and keeps the arrays alive. */
#ifndef VOXLOAD_PASTE_H
#define VOXLOAD_PASTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Sample, time step, channel, d, h, w; of an array with fewer axes the first ones are one long. The outer ones, which
   few arrays have, are looped over apart from the others. */
enum { AXES = 6, OUTER = 2, LINE = 64 };

/* How a part is copied: element by element, by runs along the last axis, or by whole lines past the caches. */
enum manner { BY_ELEMENT, BY_RUN, BY_LINE };

/* One part of a chunk. Axes stand in the order of the loops, the one that is contiguous in the target last. */
struct row {
    uint64_t extent[AXES]; /* elements */
    uint64_t source[AXES]; /* bytes between neighbours in the chunk */
    uint64_t target[AXES]; /* the same in memory */
    uint64_t first, stop;  /* bytes from the chunk's start to the first wanted element, and behind the last one */
    uint64_t to;           /* address of the first element in memory */
    uint64_t manner;
    uint64_t place[AXES]; /* the chunk's place in the grid */
    uint64_t chunk;       /* its number, counted along the grid */
    uint64_t box;         /* number of the box that wants it */
};

/* A box of a read. */
struct wanted {
    uint64_t start[AXES], stop[AXES]; /* in stored axis order */
    uint64_t target[AXES];            /* bytes between neighbours in memory, in stored axis order */
    uint64_t to;                      /* address of its first element */
    uint64_t axes[AXES];              /* in the order of the loops */
    uint64_t may_stream;              /* whether whole lines may be written past the caches */
};

/* How the elements of every chunk lie. */
struct grid {
    uint64_t extent[AXES];
    uint64_t stride[AXES]; /* bytes */
    uint64_t count[AXES];  /* chunks along each axis */
};

/* How the bytes of an element stand in a decoded chunk. */
struct form {
    uint64_t width;
    bool is_shuffled, is_swapped;
};

/* Rows that the plan of some boxes has; UINT64_MAX where one is empty. */
uint64_t count_rows(const struct wanted *boxes, size_t count, const struct grid *grid);

/* Write them. */
void tabulate(struct row *rows, const struct wanted *boxes, size_t count, const struct grid *grid, uint64_t width);

/* Paste rows out of one chunk of `size` bytes; a shuffled one has its bytes in planes, the lowest first. */
void paste(const uint8_t *chunk, uint64_t size, const struct row *rows, size_t count, struct form form);

/* Paste one row. */
void paste_one(const uint8_t *chunk, uint64_t size, const struct row *row, struct form form);

/* Paste rows whose `first` and `stop` are addresses. */
void paste_mapped(const struct row *rows, size_t count, struct form form);

/* Types that voxels can be stored as, and read as. */
enum stored_type { INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64, FLOAT16, FLOAT32, FLOAT64, STORED_TYPES };
enum cast { TO_FLOAT32, TO_FLOAT16, TO_BFLOAT16, CASTS };

/* The same, with every voxel rounded to another type; `is_mapped` as above. */
void paste_cast(const uint8_t *chunk, uint64_t size, const struct row *rows, size_t count, struct form form,
                bool is_mapped, enum stored_type stored, enum cast cast);

#endif
