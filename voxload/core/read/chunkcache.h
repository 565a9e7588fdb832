/* Decoded chunks that the process keeps for its next reads, by what is stored. */
#ifndef VOXLOAD_CHUNKCACHE_H
#define VOXLOAD_CHUNKCACHE_H

#include <stdbool.h>
#include <stdint.h>

/* What tells a chunk from all others: its file as it was, where it lies there, what it is compared with and how it is
   decoded. Two that are equal hold the same bytes, whoever asks. */
struct chunk_key {
    uint64_t device, inode, file_size, written, changed; /* the file's stamp */
    uint64_t offset, size, mask, pipeline, checksum;
};

/* A decoded chunk that is kept. */
struct kept_chunk {
    struct chunk_key key;
    uint8_t *data;
    uint64_t nbytes;
    bool is_shuffled;
    int users; /* reads that paste from it now: it stays meanwhile */
    struct kept_chunk *next, *before, *after; /* in its bucket, and in the order of the last uses */
};

/* Return a kept chunk, to be dropped after its use; NULL where there is none. */
struct kept_chunk *find_kept(const struct chunk_key *key);
void drop_kept(struct kept_chunk *chunk);

/* Tell whether a chunk that is to be decoded now is worth keeping: whether it was decoded before so short a time ago
   that it would have been there still. Data of which nothing comes again so soon are never kept, and cost nothing. */
bool is_worth_keeping(const struct chunk_key *key, uint64_t nbytes);

/* Keep a copy of a decoded chunk, in place of those used longest ago; nothing where there is no room. */
void keep_chunk(const struct chunk_key *key, const uint8_t *data, uint64_t nbytes, bool is_shuffled);

/* Most bytes that are kept; 0 keeps nothing and forgets what there is. */
void limit_kept(uint64_t budget);

/* What was found, what was decoded though the cache was asked, what made room, how many are kept, and their bytes. */
struct cache_figures {
    uint64_t hits, misses, evictions, chunks, nbytes;
};
void count_kept(struct cache_figures *figures);

/* Start empty, in a forked child: what other threads held there stays held. */
void forget_kept(void);

#endif
