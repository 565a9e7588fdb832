/* These judge nothing: a read whose file is another one than it was, or of which a part is not as it should be, is left
   undone, and the careful way in Python finds out why. */
#include "repeat.h"

#include "ahead.h"
#include "files.h"
#include "pool.h"

#include <string.h>
#include <unistd.h>

struct job {
    const struct repeat *repeats;
    int threads; /* for each */
    size_t failed;
};

static bool read_all(const struct made_read *read, const struct volume *volume, uint64_t to, int threads)
{
    return !read_at_address(volume, read->boxes, read->count, to, false, threads, NULL, 0);
}

static bool repeat_table(const struct made_read *read, struct volume *volume, uint64_t to, int threads)
{
    const int descriptor = open_unchanged(volume->source.path, volume->source.stamp);
    if (descriptor < 0)
        return false;
    volume->source.descriptor = descriptor;
    const bool is_done = read_all(read, volume, to, threads);
    close(descriptor);
    return is_done;
}

static bool repeat_shards(const struct made_read *read, struct volume *volume, uint64_t to, int threads)
{
    struct shard shards[MOST_LISTED];
    if (read->shard_count > MOST_LISTED)
        return false;
    memcpy(shards, volume->source.shards, read->shard_count * sizeof *shards);
    volume->source.shards = shards;
    bool are_open = true;
    for (uint64_t number = 0; number < read->shard_count; number++)
        if (shards[number].descriptor >= 0) {
            shards[number].descriptor =
                are_open ? open_unchanged(shards[number].path, shards[number].stamp) : -1;
            are_open = are_open && shards[number].descriptor >= 0;
        }
    const bool is_done = are_open && read_all(read, volume, to, threads);
    for (uint64_t number = 0; number < read->shard_count; number++)
        if (shards[number].descriptor >= 0)
            close((int)shards[number].descriptor);
    return is_done;
}

static bool repeat_chunks(const struct made_read *read, uint64_t to, int threads)
{
    struct volume volume = *read->volume;
    switch (volume.source.kind) {
    case TABLE: return repeat_table(read, &volume, to, threads);
    case SHARDS: return repeat_shards(read, &volume, to, threads);
    default: return read_all(read, &volume, to, threads);
    }
}

static bool read_runs(const struct made_read *read, int descriptor, uint64_t to)
{
    for (uint64_t number = 0; number < read->count; number++) {
        const struct run *run = &read->runs[number];
        if (!read_at(descriptor, (uint8_t *)(uintptr_t)(to + run->to), run->length, run->offset))
            return false;
    }
    return true;
}

static void paste_span(const struct made_read *read, const struct sieved_span *span, const uint8_t *data, uint64_t to)
{
    const struct form form = {read->width, false, read->is_swapped};
    for (uint64_t number = span->begin; number < span->end; number++) {
        struct row row = read->rows[number];
        row.to += to;
        if (read->cast < 0)
            paste(data, span->length, &row, 1, form);
        else
            paste_cast(data, span->length, &row, 1, form, false, (enum stored_type)read->stored, (enum cast)read->cast);
    }
}

static bool paste_spans(const struct made_read *read, int descriptor, uint64_t to, struct workspace *space)
{
    for (uint64_t number = 0; number < read->count; number++) {
        const struct sieved_span *span = &read->spans[number];
        uint8_t *data = room(space, STORED, span->length + 1);
        if (!data || !read_at(descriptor, data, span->length, span->offset))
            return false;
        paste_span(read, span, data, to);
    }
    return true;
}

static void announce_runs(const struct made_read *read, int descriptor)
{
    const struct run *runs = read->runs;
    if (is_cold(descriptor, runs[0].offset) || is_cold(descriptor, runs[read->count - 1].offset))
        for (uint64_t number = 0; number < read->count; number++)
            announce(descriptor, runs[number].offset, runs[number].length);
}

/* One span is read at once, by a request that needs no announcing. */
static void announce_spans(const struct made_read *read, int descriptor)
{
    const struct sieved_span *spans = read->spans;
    if (read->count > 1 && (is_cold(descriptor, spans[0].offset) || is_cold(descriptor, spans[read->count - 1].offset)))
        for (uint64_t number = 0; number < read->count; number++)
            announce(descriptor, spans[number].offset, spans[number].length);
}

static bool repeat_plain(const struct made_read *read, uint64_t to, struct workspace *space)
{
    const int descriptor = open_unchanged(read->path, read->stamp);
    if (descriptor < 0)
        return false;
    bool is_done;
    if (read->kind == RUNS) {
        announce_runs(read, descriptor);
        is_done = read_runs(read, descriptor, to);
    } else {
        announce_spans(read, descriptor);
        is_done = paste_spans(read, descriptor, to, space);
    }
    close(descriptor);
    return is_done;
}

static void repeat_one(void *job, size_t number, struct workspace *space)
{
    struct job *all = job;
    const struct made_read *read = all->repeats[number].read;
    const uint64_t to = all->repeats[number].to;
    bool is_done = true;
    for (uint64_t one = 0; is_done && one < read->seen_count; one++)
        is_done = is_as_seen(read->seen[one].path, read->seen[one].stamp);
    if (is_done)
        is_done = read->kind == CHUNKS ? repeat_chunks(read, to, all->threads) : repeat_plain(read, to, space);
    if (!is_done)
        __atomic_fetch_add(&all->failed, 1, __ATOMIC_RELAXED);
}

size_t repeat_all(const struct repeat *repeats, size_t count, int threads)
{
    const int each = count < (size_t)threads ? (threads + (int)count - 1) / (int)count : 1;
    struct job job = {repeats, each, 0};
    if (count)
        run_tasks(repeat_one, &job, count, threads);
    return job.failed;
}
