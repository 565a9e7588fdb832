#define _POSIX_C_SOURCE 200809L
#include "source.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 };

static enum found in_table(const struct source *source, uint64_t chunk, struct stored *to)
{
    if (chunk >= source->chunks)
        return IS_WRONG;
    if (source->sizes[chunk] < 0)
        return IS_ABSENT;
    *to = (struct stored){(int)source->descriptor, false, source->offsets[chunk], (uint64_t)source->sizes[chunk],
                          source->masks[chunk], *source->stamp};
    const uint64_t size = source->stamp->size;
    return to->offset > size || to->size > size - to->offset || to->size > source->most ? IS_WRONG : IS_FOUND;
}

/* The number of a row's shard, and of its chunk in there. */
static uint64_t shard_of(const struct source *source, const struct row *row, uint64_t *inner)
{
    uint64_t shard = 0;
    *inner = 0;
    for (int axis = 0; axis < AXES; axis++) {
        shard = shard * source->outer[axis] + row->place[axis] / source->inner[axis];
        *inner = *inner * source->inner[axis] + row->place[axis] % source->inner[axis];
    }
    return shard;
}

static enum found in_shard(const struct source *source, const struct row *row, struct stored *to)
{
    uint64_t inner;
    const struct shard *shard = &source->shards[shard_of(source, row, &inner)];
    if (shard->descriptor < 0)
        return IS_ABSENT;
    const uint64_t offset = shard->entries[2 * inner], size = shard->entries[2 * inner + 1];
    if (offset == UINT64_MAX && size == UINT64_MAX)
        return IS_ABSENT;
    *to = (struct stored){(int)shard->descriptor, false, offset, size, 0, *shard->stamp};
    return offset > shard->size || size > shard->size - offset || size > source->most ? IS_WRONG : IS_FOUND;
}

static enum found in_file(const struct source *source, const struct row *row, struct stored *to)
{
    char name[PATH_BYTES];
    int length = snprintf(name, sizeof name, "%s", source->prefix);
    for (uint64_t turn = 0; turn < source->axes && length < PATH_BYTES; turn++) {
        const unsigned long long index = row->place[AXES - source->axes + turn];
        length += turn ? snprintf(name + length, sizeof name - (size_t)length, "%c%llu", (char)source->separator, index)
                       : snprintf(name + length, sizeof name - (size_t)length, "%llu", index);
    }
    if (length >= PATH_BYTES)
        return IS_WRONG;
    const int descriptor = open_stamped(name, &to->stamp);
    if (descriptor < 0)
        return errno == ENOENT ? IS_ABSENT : IS_WRONG;
    to->descriptor = descriptor;
    to->is_own = true;
    to->offset = 0;
    to->size = to->stamp.size;
    to->mask = 0;
    if (to->size && to->size <= source->most)
        return IS_FOUND;
    close(descriptor);
    return IS_WRONG;
}

enum found find_chunk(const struct source *source, const struct row *row, struct stored *to)
{
    switch (source->kind) {
    case TABLE: return in_table(source, row->chunk, to);
    case SHARDS: return in_shard(source, row, to);
    default: return in_file(source, row, to);
    }
}

bool source_is_unchanged(const struct source *source, const struct row *rows, uint64_t count)
{
    if (source->kind == TABLE)
        return is_unchanged(source->path, source->stamp);
    if (source->kind == FILES)
        return true; /* nothing is remembered of them */
    uint64_t last = UINT64_MAX, inner;
    for (uint64_t number = 0; number < count; number++) {
        const uint64_t shard = shard_of(source, &rows[number], &inner);
        if (shard == last)
            continue;
        last = shard;
        if (source->shards[shard].descriptor < 0 ||
            !is_unchanged(source->shards[shard].path, source->shards[shard].stamp))
            return false;
    }
    return true;
}
