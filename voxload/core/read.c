#include "read.h"

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
};

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
        return ABSENT;
    const uint64_t offset = volume->offsets[chunk];
    if (offset > job->file_size || (uint64_t)size > job->file_size - offset)
        return FAILED;
    uint8_t *stored = room(space, STORED, (size_t)size + 1);
    if (!stored || !read_at(job->descriptor, stored, (uint64_t)size, offset))
        return FAILED;
    bool is_shuffled;
    const uint8_t *data = decode(&volume->pipeline, space, stored, (size_t)size, volume->masks[chunk], &is_shuffled);
    if (!data)
        return FAILED;
    const struct form form = {volume->width, is_shuffled, volume->is_swapped};
    if (volume->cast < 0)
        paste(data, volume->pipeline.nbytes, rows, count, form);
    else
        paste_cast(data, volume->pipeline.nbytes, rows, count, form, false, (enum stored)volume->stored,
                   (enum cast)volume->cast);
    return PASTED;
}

/* A chunk's first row is its task; the others have none. */
static void read_row(void *job, size_t number, struct workspace *space)
{
    const struct reading *reading = job;
    const struct row *row = &reading->rows[number];
    if (number && row[-1].chunk == row->chunk)
        return;
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
    struct reading job = {volume, descriptor, file_size, rows, count, outcomes};
    run_tasks(read_row, &job, count, threads);
}
