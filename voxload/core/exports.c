/* The read path as Python calls it: structures come apart, for numbers are what both sides agree upon. */
#include "core.h"

#include "bits.h"
#include "files.h"
#include "paste.h"
#include "pool.h"
#include "read.h"

#include <stdlib.h>

/* Plan boxes as `rows` rows; false, and nothing done, where they need another number. */
EXPORT bool plan_boxes(struct row *to, uint64_t rows, const struct wanted *boxes, uint64_t count,
                       const struct grid *grid, uint64_t width)
{
    if (count_rows(boxes, count, grid) != rows)
        return false;
    tabulate(to, boxes, count, grid, width);
    return true;
}

EXPORT void paste_chunk(const uint8_t *chunk, uint64_t size, const struct row *rows, uint64_t begin, uint64_t end,
                        uint64_t width, bool is_shuffled, bool is_swapped)
{
    paste(chunk, size, rows + begin, end - begin, (struct form){width, is_shuffled, is_swapped});
}

EXPORT void paste_memory(const struct row *rows, uint64_t begin, uint64_t end, uint64_t width, bool is_swapped)
{
    paste_mapped(rows + begin, end - begin, (struct form){width, false, is_swapped});
}

EXPORT void cast_chunk(const uint8_t *chunk, uint64_t size, const struct row *rows, uint64_t begin, uint64_t end,
                       uint64_t width, bool is_shuffled, bool is_swapped, uint64_t stored, uint64_t cast)
{
    paste_cast(chunk, size, rows + begin, end - begin, (struct form){width, is_shuffled, is_swapped}, false,
               (enum stored)stored, (enum cast)cast);
}

EXPORT void cast_memory(const struct row *rows, uint64_t begin, uint64_t end, uint64_t width, bool is_swapped,
                        uint64_t stored, uint64_t cast)
{
    paste_cast(NULL, 0, rows + begin, end - begin, (struct form){width, false, is_swapped}, true, (enum stored)stored,
               (enum cast)cast);
}

EXPORT void paste_named_files(const char *names, const struct file_job *jobs, uint64_t count, const struct row *rows,
                              uint8_t *chunk, uint64_t size, uint64_t width, bool is_swapped, uint8_t *done)
{
    paste_files(names, jobs, count, rows, chunk, size, (struct form){width, false, is_swapped}, done);
}

EXPORT int64_t load_named_file(const char *name, uint8_t *buffer, uint64_t room)
{
    return load_file(name, buffer, room);
}

EXPORT void unpack_numbers(const uint8_t *stream, uint64_t bits, uint64_t add, bool has_last, uint64_t last, void *out,
                           uint64_t width, uint64_t count)
{
    unpack_bits(stream, (unsigned)bits, add, has_last ? &last : NULL, out, width, count);
}

EXPORT int64_t find_blocks(const uint8_t *data, uint64_t size, uint64_t start, int64_t (*places)[2], uint64_t count)
{
    return walk_blocks(data, size, start, places, count);
}

EXPORT void set_decoders(const struct decoders *found)
{
    decoders = *found;
}

EXPORT bool can_read(const struct volume *volume)
{
    return can_decode(&volume->pipeline);
}

/* Read boxes. Returns how many chunks were not pasted, and writes the numbers of the first `room` of them to `left`;
   -1 where there is no memory for the plan. */
EXPORT int64_t read_boxes(const struct volume *volume, int64_t descriptor, uint64_t file_size, const struct wanted *boxes,
                          uint64_t count, int64_t threads, uint64_t *left, uint64_t room)
{
    const uint64_t wanted = count_rows(boxes, count, &volume->grid);
    struct row *rows = wanted < SIZE_MAX / (sizeof *rows + 1) ? malloc(wanted * (sizeof *rows + 1) + 1) : NULL;
    if (!rows)
        return -1;
    uint8_t *outcomes = (uint8_t *)(rows + wanted);
    tabulate(rows, boxes, count, &volume->grid, volume->width);
    if (count > 1)
        order_rows(rows, wanted);
    read_rows(volume, (int)descriptor, file_size, rows, wanted, outcomes, (int)threads);
    uint64_t missed = 0;
    for (uint64_t number = 0; number < wanted; number++) {
        if (outcomes[number] == PASTED || (number && rows[number - 1].chunk == rows[number].chunk))
            continue;
        if (missed < room)
            left[missed] = rows[number].chunk;
        missed++;
    }
    free(rows);
    return (int64_t)missed;
}

EXPORT void end_core_helpers(void)
{
    end_helpers();
}

EXPORT void forget_core_helpers(void)
{
    forget_helpers();
}
