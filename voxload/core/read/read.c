#include "read.h"

#include "ahead.h"
#include "chunkcache.h"
#include "decode/crc32c.h"
#include "files.h"
#include "pool.h"

#include <stdlib.h>
#include <unistd.h>

enum outcome { PASTED, ABSENT, FAILED };

struct reading {
    const struct volume *volume;
    const struct row *rows;
    size_t count;
    uint8_t *outcomes;
    size_t ahead; /* the first row whose chunk was not announced; as many as there are where none need be */
};

enum { FEW = 4 /* fewer chunks are asked for at once anyway, by the threads that decode them */ };

static bool starts_chunk(const struct row *rows, size_t number)
{
    return !number || rows[number - 1].chunk != rows[number].chunk;
}

static void let_go(const struct stored *stored)
{
    if (stored->is_own)
        close(stored->descriptor);
}

/* Tell whether a read will wait for the device, by the first chunk, one in the middle and the last. */
static bool will_wait(const struct reading *job)
{
    if (job->count < FEW)
        return false;
    for (size_t probe = 0; probe < 3; probe++) {
        struct stored stored;
        if (find_chunk(&job->volume->source, &job->rows[(job->count - 1) * probe / 2], &stored) != IS_FOUND)
            continue;
        const bool waits = is_cold(stored.descriptor, stored.offset);
        let_go(&stored);
        if (waits)
            return true;
    }
    return false;
}

/* Announce the next chunk that nobody announced, and return more than its bytes; 0 where there is none. */
static uint64_t announce_next(struct reading *job)
{
    for (;;) {
        const size_t number = __atomic_fetch_add(&job->ahead, 1, __ATOMIC_RELAXED);
        if (number >= job->count) {
            __atomic_store_n(&job->ahead, job->count, __ATOMIC_RELAXED);
            return 0;
        }
        struct stored stored;
        if (!starts_chunk(job->rows, number) ||
            find_chunk(&job->volume->source, &job->rows[number], &stored) != IS_FOUND)
            continue;
        announce(stored.descriptor, stored.offset, stored.size);
        let_go(&stored);
        return 1 + stored.size;
    }
}

static int by_chunk(const void *one, const void *other)
{
    const uint64_t a = ((const struct row *)one)->chunk, b = ((const struct row *)other)->chunk;
    return (a > b) - (a < b);
}

static void order_rows(struct row *rows, size_t count)
{
    qsort(rows, count, sizeof *rows, by_chunk);
}

static struct span span_of(const struct row *rows, size_t count)
{
    struct span span = {rows->first, rows->stop};
    for (size_t number = 1; number < count; number++) {
        span.first = rows[number].first < span.first ? rows[number].first : span.first;
        span.stop = rows[number].stop > span.stop ? rows[number].stop : span.stop;
    }
    return span;
}

static void paste_decoded(const struct volume *volume, const uint8_t *data, bool is_shuffled, const struct row *rows,
                          size_t count)
{
    const struct form form = {volume->width, is_shuffled, volume->is_swapped};
    const uint64_t nbytes = volume->pipeline.nbytes;
    if (volume->cast < 0)
        paste(data, nbytes, rows, count, form);
    else
        paste_cast(data, nbytes, rows, count, form, false, (enum stored_type)volume->stored, (enum cast)volume->cast);
}

static struct chunk_key key_of(const struct volume *volume, const struct stored *stored, uint64_t chunk)
{
    const struct stamp *file = &stored->stamp;
    const uint64_t checksum = volume->checksums ? (uint64_t)volume->checksums[chunk] + 1 : 0;
    return (struct chunk_key){file->device, file->inode, file->size, (uint64_t)file->written, (uint64_t)file->changed,
                              stored->offset, stored->size, stored->mask, volume->pipeline_number, checksum};
}

/* Paste what is wanted of a stored chunk; whether that could be done. */
static bool paste_stored(const struct volume *volume, const struct stored *stored, const struct row *rows, size_t count,
                         struct workspace *space)
{
    const struct pipeline *pipeline = &volume->pipeline;
    const uint64_t chunk = rows->chunk;
    if (volume->checksums && !volume->are_summed[chunk])
        return false;
    const bool may_keep = volume->pipeline_number && pipeline->count && stored->stamp.is_settled;
    const struct chunk_key key = key_of(volume, stored, chunk);
    struct kept_chunk *kept = may_keep ? find_kept(&key) : NULL;
    if (kept) {
        paste_decoded(volume, kept->data, kept->is_shuffled, rows, count);
        drop_kept(kept);
        return true;
    }
    const bool keeps = may_keep && is_worth_keeping(&key, pipeline->nbytes);
    const struct span span = keeps ? (struct span){0, pipeline->nbytes} : span_of(rows, count);
    /* What is stored as it is and compared with nothing need not come whole. */
    const bool is_plain =
        !pipeline->count && !pipeline->is_shuffled && !volume->checksums && stored->size == pipeline->nbytes;
    const struct span part = is_plain ? span : (struct span){0, stored->size};
    uint8_t *data = room(space, STORED, stored->size + 1);
    if (!data || !read_at(stored->descriptor, data + part.first, part.stop - part.first, stored->offset + part.first))
        return false;
    if (volume->checksums && chunk_checksum(data, stored->size) != volume->checksums[chunk])
        return false;
    bool is_shuffled;
    const uint8_t *decoded = decode(pipeline, space, data, stored->size, stored->mask, span, &is_shuffled);
    if (!decoded)
        return false;
    paste_decoded(volume, decoded, is_shuffled, rows, count);
    if (keeps)
        keep_chunk(&key, decoded, pipeline->nbytes, is_shuffled);
    return true;
}

/* What is absent is right or wrong by what metadata and checksums say, which the careful way asks. */
static enum outcome paste_chunk(const struct volume *volume, const struct row *rows, size_t count,
                                struct workspace *space)
{
    struct stored stored = {.is_own = false};
    switch (find_chunk(&volume->source, rows, &stored)) {
    case IS_ABSENT: return ABSENT;
    case IS_WRONG: return FAILED;
    default: break;
    }
    const bool is_done = paste_stored(volume, &stored, rows, count, space);
    let_go(&stored);
    return is_done ? PASTED : FAILED;
}

/* A chunk's first row is its task; the others have none. */
static void read_row(void *job, size_t number, struct workspace *space)
{
    struct reading *reading = job;
    const struct row *row = &reading->rows[number];
    if (!starts_chunk(reading->rows, number))
        return;
    if (__atomic_load_n(&reading->ahead, __ATOMIC_RELAXED) < reading->count)
        announce_next(reading);
    size_t count = 1;
    while (number + count < reading->count && row[count].chunk == row->chunk)
        count++;
    const uint8_t outcome = (uint8_t)paste_chunk(reading->volume, row, count, space);
    for (size_t one = 0; one < count; one++)
        reading->outcomes[number + one] = outcome;
}

/* Read rows, which stand in the order of their chunks; `outcomes` says of each what became of its chunk. */
static void read_rows(const struct volume *volume, const struct row *rows, size_t count, uint8_t *outcomes, int threads)
{
    struct reading job = {volume, rows, count, outcomes, count};
    if (will_wait(&job)) {
        job.ahead = 0;
        for (uint64_t done = 0, one; done < AHEAD_BYTES && (one = announce_next(&job)); done += one)
            ;
    }
    run_tasks(read_row, &job, count, threads);
}

enum { FEW_ROWS = 16 /* a small read's plan stands on the stack */ };

int64_t read_at_address(const struct volume *volume, const struct wanted *boxes, uint64_t count, uint64_t to,
                        bool is_again, int threads, uint64_t *left, uint64_t room)
{
    const uint64_t wanted = count_rows(boxes, count, &volume->grid);
    struct row few[FEW_ROWS], *rows = few;
    uint8_t few_outcomes[FEW_ROWS], *outcomes = few_outcomes;
    if (wanted > FEW_ROWS) {
        rows = wanted < SIZE_MAX / (sizeof *rows + 1) ? malloc(wanted * (sizeof *rows + 1)) : NULL;
        if (!rows)
            return NO_MEMORY;
        outcomes = (uint8_t *)(rows + wanted);
    }
    tabulate(rows, boxes, count, &volume->grid, volume->width);
    for (uint64_t number = 0; to && number < wanted; number++)
        rows[number].to += to;
    if (count > 1)
        order_rows(rows, wanted);
    int64_t result = 0;
    if (is_again && !source_is_unchanged(&volume->source, rows, wanted))
        result = IS_CHANGED;
    else
        read_rows(volume, rows, wanted, outcomes, threads);
    for (uint64_t number = 0; result >= 0 && number < wanted; number++) {
        if (outcomes[number] == PASTED || (number && rows[number - 1].chunk == rows[number].chunk))
            continue;
        if ((uint64_t)result < room)
            left[result] = rows[number].chunk;
        result++;
    }
    if (rows != few)
        free(rows);
    return result;
}
