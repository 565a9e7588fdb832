/* Copies of blocks, and pairing heaps over them: the greatest key on top.

   Every copy is a row of one table; those that may be dropped are in the heap of their room. A pairing heap (Fredman,
   Sedgewick, Sleator and Tarjan 1986) lies in its rows: no capacity has to be guessed, and any row can be taken out.
   Of equal keys the row that was made first is above, so that all ranks see the same heap. */
#ifndef VOXLOAD_HEAP_H
#define VOXLOAD_HEAP_H

#include <stdint.h>

enum { NOWHERE, IN_HEAP, WAITING };

/* One copy, numbers alone as Python lays them out. A row number of -1 is none. */
struct copy {
    int64_t group, sample, tier;
    int64_t ready;   /* step from which on it is there */
    int64_t free;    /* first step at which it may be dropped */
    int64_t primary; /* whether it is its sample's primary */
    int64_t rank, key;
    int64_t next;  /* copy of its sample */
    int64_t queue; /* next one of those that wait, or are chosen */
    int64_t place; /* NOWHERE, IN_HEAP or WAITING */
    int64_t child, sibling, before;
};

/* Put a row into a heap by its key; return the new top. */
int64_t insert_copy(struct copy *rows, int64_t top, int64_t row);

/* Take a row out of its heap; return the new top. */
int64_t remove_copy(struct copy *rows, int64_t top, int64_t row);

#endif
