#include "read.h"

#include "ahead.h"
#include "crc32c.h"
#include "files.h"
#include "pool.h"

#include <stdlib.h>

struct reading {
    const struct volume *volume;
    int descriptor;
    uint64_t file_size;
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

static bool is_stored(const struct volume *volume, uint64_t chunk)
{
    return chunk < volume->chunks && volume->sizes[chunk] >= 0;
}

/* Tell whether a read will wait for the device, by the first chunk, one in the middle and the last. */
static bool will_wait(const struct reading *job)
{
    if (job->count < FEW)
        return false;
    for (int probe = 0; probe < 3; probe++) {
        const uint64_t chunk = job->rows[(job->count - 1) * probe / 2].chunk;
        if (is_stored(job->volume, chunk) && is_cold(job->descriptor, job->volume->offsets[chunk]))
            return true;
    }
    return false;
}

/* Announce the next chunk that nobody announced; 0 where there is none. */
static uint64_t announce_next(struct reading *job)
{
    for (;;) {
        const size_t number = __atomic_fetch_add(&job->ahead, 1, __ATOMIC_RELAXED);
        if (number >= job->count) {
            __atomic_store_n(&job->ahead, job->count, __ATOMIC_RELAXED);
            return 0;
        }
        const uint64_t chunk = job->rows[number].chunk;
        if (starts_chunk(job->rows, number) && is_stored(job->volume, chunk))
            return 1 + announce(job->descriptor, job->volume->offsets[chunk], (uint64_t)job->volume->sizes[chunk]);
    }
}

static int by_chunk(const void *one, const void *other)
{
    const uint64_t a = ((const struct row *)one)->chunk, b = ((const struct row *)other)->chunk;
    return (a > b) - (a < b);
}

void order_rows(struct row *rows, size_t count)
{
    qsort(rows, count, sizeof *rows, by_chunk);
}

static enum outcome paste_chunk(const struct reading *job, const struct row *rows, size_t count, struct workspace *space)
{
    const struct volume *volume = job->volume;
    const uint64_t chunk = rows->chunk;
    if (chunk >= volume->chunks)
        return FAILED;
    const int64_t size = volume->sizes[chunk];
    if (size < 0)
        return ABSENT; /* which is right or wrong by what the checksums say: the careful way asks them */
    const uint64_t offset = volume->offsets[chunk];
    const uint64_t most = volume->pipeline.nbytes + volume->pipeline.nbytes / 8 + (1 << 16); /* what compressors make */
    if (offset > job->file_size || (uint64_t)size > job->file_size - offset || (uint64_t)size > most)
        return FAILED;
    struct span span = {rows->first, rows->stop};
    for (size_t number = 1; number < count; number++) {
        span.first = rows[number].first < span.first ? rows[number].first : span.first;
        span.stop = rows[number].stop > span.stop ? rows[number].stop : span.stop;
    }
    const struct pipeline *pipeline = &volume->pipeline;
    /* What is stored as it is and compared with nothing need not come whole. */
    const bool is_plain =
        !pipeline->count && !pipeline->is_shuffled && !volume->checksums && (uint64_t)size == pipeline->nbytes;
    const struct span part = is_plain ? span : (struct span){0, (uint64_t)size};
    uint8_t *stored = room(space, STORED, (size_t)size + 1);
    if (!stored || !read_at(job->descriptor, stored + part.first, part.stop - part.first, offset + part.first))
        return FAILED;
    if (volume->checksums &&
        (!volume->are_summed[chunk] || chunk_checksum(stored, (size_t)size) != volume->checksums[chunk]))
        return FAILED;
    bool is_shuffled;
    const uint8_t *data =
        decode(pipeline, space, stored, (size_t)size, volume->masks[chunk], span, &is_shuffled);
    if (!data)
        return FAILED;
    const struct form form = {volume->width, is_shuffled, volume->is_swapped};
    if (volume->cast < 0)
        paste(data, pipeline->nbytes, rows, count, form);
    else
        paste_cast(data, pipeline->nbytes, rows, count, form, false, (enum stored)volume->stored,
                   (enum cast)volume->cast);
    return PASTED;
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
    const uint8_t outcome = (uint8_t)paste_chunk(reading, row, count, space);
    for (size_t one = 0; one < count; one++)
        reading->outcomes[number + one] = outcome;
}

void read_rows(const struct volume *volume, int descriptor, uint64_t file_size, const struct row *rows, size_t count, uint8_t *outcomes,
               int threads)
{
    struct reading job = {volume, descriptor, file_size, rows, count, outcomes, count};
    if (will_wait(&job)) {
        job.ahead = 0;
        for (uint64_t done = 0, one; done < AHEAD_BYTES && (one = announce_next(&job)); done += one)
            ;
    }
    run_tasks(read_row, &job, count, threads);
}
