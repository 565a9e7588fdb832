/* What all tiers of a line keep, and what is known of its use; `voxload/prefetch/policies/copies.py` says what the
   tables mean, and lays them out. Numbers of eight bytes alone. */
#ifndef VOXLOAD_COPIES_H
#define VOXLOAD_COPIES_H

#include "heap.h"

#include <stdbool.h>
#include <stdint.h>

enum { MEMORY, DISK, TIERS };

#define NEVER ((int64_t)1 << 40) /* a next use beyond all steps: none is known */
#define CLASS ((int64_t)1 << 42) /* what one rank adds to a key */

/* One sample. */
struct block {
    int64_t head, count; /* its first copy, and how many */
    int64_t use, end;    /* the next known use, and the end of the known ones */
    int64_t size;        /* bytes */
    int64_t seen;        /* the last step at which it was looked at */
};

/* One tier of one group: number TIERS * group + tier. */
struct tier_room {
    int64_t bytes, left;
    int64_t spare; /* bytes of copies that cost no read of the storage */
    int64_t top;   /* of the heap */
};

/* One known use; they stand in the order of samples, then of time. */
struct use {
    int64_t step, user;
};

/* One drop that is planned. */
struct drop {
    int64_t group, step, sample;
};

struct marks {
    int64_t rows, drops; /* so far */
    int64_t queues[3];   /* heads of the lists of copies that wait */
};

/* Addresses, as Python writes them down. */
struct work {
    struct copy *rows;
    struct block *blocks;
    struct tier_room *rooms;
    struct marks *marks;
    struct use *uses;
    struct drop *drops;
};
_Static_assert(sizeof(struct work) == 6 * sizeof(uint64_t), "Python lays out addresses of eight bytes");

/* Sum of two numbers of bytes. Blocks and rooms of absurd sizes wrap around, which is no worse than wrong. */
static inline int64_t sum_bytes(int64_t one, int64_t other)
{
    return (int64_t)((uint64_t)one + (uint64_t)other);
}

static inline int64_t larger(int64_t one, int64_t other)
{
    return one > other ? one : other;
}

/* The step of a sample's next known use behind a step; NEVER where there is none. */
int64_t next_use(const struct work *work, int64_t sample, int64_t after);

/* The same of one group's uses alone. */
int64_t own_use(const struct work *work, int64_t sample, int64_t group, int64_t after);

/* Set the ranks and keys of all copies of a sample, after one came, went or was used. */
void rank_copies(const struct work *work, int64_t sample);

/* Let a copy wait until it may be dropped: at the step `until`, two ahead at most. */
void hold_copy(const struct work *work, int64_t row, int64_t until);

/* Put the copies that may be dropped from this step on into their heaps. */
void release_copies(const struct work *work, int64_t step);

/* Enter the copies that are there before a step; the first of each sample is its primary. */
void enter_copies(const struct work *work, int64_t step);

/* Make a copy, which is stored at a step; return its row. It is the primary where it is the first. */
int64_t add_copy(const struct work *work, int64_t group, int64_t sample, int64_t tier, int64_t step);

/* A group's copy of a sample, or -1. */
int64_t find_copy(const struct work *work, int64_t group, int64_t sample);

/* The copy that serves other groups, or -1: the primary, or an older one while that has just been stored. */
int64_t find_other_copy(const struct work *work, int64_t sample, int64_t step);

/* Make room in a tier by dropping copies with keys above `floor`, the greatest first; or return false and change
   nothing. */
bool make_room(const struct work *work, int64_t room, int64_t size, int64_t floor, int64_t step);

#endif
