/* Rules: the buffers of all chunks, with a lump sum for each, never exceed the budget; a chunk in use is never evicted;
   the buffer of an evicted one serves the next of its size, for fresh pages cost as much as a copy into them. */
#include "chunkcache.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    BUCKETS = 1 << 12,
    SEEN = 1 << 12,      /* sets of chunks of which it is remembered when they were decoded last */
    WAYS = 4,            /* chunks of a set: where two have one place, each is forgotten for the other */
    LUMP = 256,          /* what a chunk counts beside its bytes */
    SHARE = 4            /* the longest chunk that is kept takes this part of the budget: of longer ones few would fit */
};

/* When a chunk was decoded last, in bytes that were decoded before it. */
struct seen {
    uint64_t mark, moment;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct kept_chunk *buckets[BUCKETS], *newest, *oldest;
static struct seen seen[SEEN][WAYS];
static uint64_t budget, moment;
static struct cache_figures counted;

static uint64_t hash_of(const struct chunk_key *key)
{
    const uint64_t *numbers = (const uint64_t *)key;
    uint64_t hash = 0x9E3779B97F4A7C15u;
    for (size_t place = 0; place < sizeof *key / sizeof *numbers; place++) {
        hash = (hash ^ numbers[place]) * 0xFF51AFD7ED558CCDu;
        hash ^= hash >> 32;
    }
    return hash;
}

static void unlink_use(struct kept_chunk *chunk)
{
    *(chunk->before ? &chunk->before->after : &newest) = chunk->after;
    *(chunk->after ? &chunk->after->before : &oldest) = chunk->before;
}

static void link_newest(struct kept_chunk *chunk)
{
    chunk->before = NULL;
    chunk->after = newest;
    *(newest ? &newest->before : &oldest) = chunk;
    newest = chunk;
}

static struct kept_chunk **place_of(const struct chunk_key *key)
{
    struct kept_chunk **place = &buckets[hash_of(key) % BUCKETS];
    while (*place && memcmp(&(*place)->key, key, sizeof *key))
        place = &(*place)->next;
    return place;
}

/* Take a chunk out of the tables; its memory is the caller's. */
static void take_out(struct kept_chunk *chunk)
{
    *place_of(&chunk->key) = chunk->next;
    unlink_use(chunk);
    counted.chunks--;
    counted.nbytes -= chunk->nbytes + LUMP;
}

static void give_back(struct kept_chunk *chunk)
{
    if (chunk)
        free(chunk->data);
    free(chunk);
}

/* Evict chunks until `nbytes` more fit. Sets `spare` to one of that size if there was one; false where what is in use
   leaves no room. */
static bool make_room(uint64_t nbytes, struct kept_chunk **spare)
{
    struct kept_chunk *chunk = oldest;
    while (counted.nbytes + nbytes + LUMP > budget && chunk) {
        struct kept_chunk *newer = chunk->before;
        if (!chunk->users) {
            take_out(chunk);
            counted.evictions++;
            if (!*spare && chunk->nbytes == nbytes)
                *spare = chunk;
            else
                give_back(chunk);
        }
        chunk = newer;
    }
    return counted.nbytes + nbytes + LUMP <= budget;
}

struct kept_chunk *find_kept(const struct chunk_key *key)
{
    pthread_mutex_lock(&lock);
    struct kept_chunk *chunk = budget ? *place_of(key) : NULL;
    if (chunk) {
        chunk->users++;
        unlink_use(chunk);
        link_newest(chunk);
        counted.hits++;
    }
    pthread_mutex_unlock(&lock);
    return chunk;
}

void drop_kept(struct kept_chunk *chunk)
{
    pthread_mutex_lock(&lock);
    chunk->users--;
    pthread_mutex_unlock(&lock);
}

/* Return what is remembered of a chunk, or else the oldest of what may make way for it. */
static struct seen *seen_of(uint64_t hash)
{
    struct seen *some = seen[hash % SEEN], *found = some;
    for (int way = 0; way < WAYS && found->mark != hash; way++)
        if (some[way].mark == hash || some[way].moment < found->moment)
            found = &some[way];
    return found;
}

bool is_worth_keeping(const struct chunk_key *key, uint64_t nbytes)
{
    const uint64_t hash = hash_of(key);
    pthread_mutex_lock(&lock);
    bool is_worth = false;
    if (budget && nbytes <= budget / SHARE) {
        struct seen *last = seen_of(hash);
        is_worth = last->mark == hash && moment - last->moment <= budget;
        moment += nbytes + LUMP;
        *last = (struct seen){hash, moment};
        counted.misses++;
    }
    pthread_mutex_unlock(&lock);
    return is_worth;
}

void keep_chunk(const struct chunk_key *key, const uint8_t *data, uint64_t nbytes, bool is_shuffled)
{
    struct kept_chunk *chunk = NULL;
    pthread_mutex_lock(&lock);
    /* Another thread may have kept it meanwhile. Room is taken before the copy is made, without the lock. */
    const bool has_room = budget && !*place_of(key) && make_room(nbytes, &chunk);
    if (has_room)
        counted.nbytes += nbytes + LUMP;
    pthread_mutex_unlock(&lock);
    if (!has_room) {
        give_back(chunk);
        return;
    }
    if (!chunk && (chunk = malloc(sizeof *chunk)) && !(chunk->data = malloc(nbytes))) {
        free(chunk);
        chunk = NULL;
    }
    if (chunk) {
        memcpy(chunk->data, data, nbytes);
        chunk->key = *key;
        chunk->nbytes = nbytes;
        chunk->is_shuffled = is_shuffled;
        chunk->users = 0;
        chunk->next = NULL;
    }
    pthread_mutex_lock(&lock);
    struct kept_chunk **place = place_of(key);
    if (chunk && !*place && counted.nbytes <= budget) {
        *place = chunk;
        link_newest(chunk);
        counted.chunks++;
        chunk = NULL;
    } else {
        counted.nbytes -= nbytes + LUMP;
    }
    pthread_mutex_unlock(&lock);
    give_back(chunk);
}

void limit_kept(uint64_t bytes)
{
    pthread_mutex_lock(&lock);
    budget = bytes;
    memset(seen, 0, sizeof seen);
    moment = budget; /* a mark of zero is of no chunk that was decoded within a budget from here */
    struct kept_chunk *chunk = oldest;
    while (chunk) { /* those in use go as others take their place */
        struct kept_chunk *newer = chunk->before;
        if (!chunk->users) {
            take_out(chunk);
            give_back(chunk);
        }
        chunk = newer;
    }
    counted.hits = counted.misses = counted.evictions = 0;
    pthread_mutex_unlock(&lock);
}

void count_kept(struct cache_figures *figures)
{
    pthread_mutex_lock(&lock);
    *figures = counted;
    pthread_mutex_unlock(&lock);
}

void forget_kept(void)
{
    pthread_mutex_init(&lock, NULL);
    memset(buckets, 0, sizeof buckets); /* what they held is lost: other threads of the parent may have been at it */
    memset(seen, 0, sizeof seen);
    newest = oldest = NULL;
    moment = budget;
    counted = (struct cache_figures){0};
}
