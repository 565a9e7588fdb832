/* The read path as Python calls it: structures come apart, for numbers are what both sides agree upon. */
#include "core.h"

#include "ahead.h"
#include "decode/bits.h"
#include "chunkcache.h"
#include "files.h"
#include "paste/paste.h"
#include "pool.h"
#include "read.h"
#include "repeat.h"
#include "stamp.h"

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
               (enum stored_type)stored, (enum cast)cast);
}

EXPORT void cast_memory(const struct row *rows, uint64_t begin, uint64_t end, uint64_t width, bool is_swapped,
                        uint64_t stored, uint64_t cast)
{
    paste_cast(NULL, 0, rows + begin, end - begin, (struct form){width, false, is_swapped}, true, (enum stored_type)stored,
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

EXPORT int64_t read_boxes(const struct volume *volume, const struct wanted *boxes, uint64_t count, int64_t threads,
                          uint64_t *left, uint64_t room)
{
    return read_at_address(volume, boxes, count, 0, false, (int)threads, left, room);
}

/* The same of boxes that were read before, from files that must be what they were; whether all came. */
EXPORT bool read_again(const struct volume *volume, const struct wanted *boxes, uint64_t count, uint64_t to,
                       int64_t threads)
{
    return !read_at_address(volume, boxes, count, to, true, (int)threads, NULL, 0);
}

/* Paste rows out of memory again, as types where `cast` is not negative, to arrays that begin at `to`. False, and
   nothing done, where the file that is mapped is not what it was, or a look at three rows finds one not in memory. */
EXPORT bool copy_again(const struct stamp *stamp, const char *path, const struct row *rows, uint64_t count, uint64_t to,
                       uint64_t width, bool is_swapped, int64_t stored, int64_t cast)
{
    if (!is_unchanged(path, stamp))
        return false;
    for (int probe = 0; probe < 3; probe++)
        if (is_cold_page(rows[(count - 1) * probe / 2].first))
            return false;
    const struct form form = {width, false, is_swapped};
    for (uint64_t number = 0; number < count; number++) {
        struct row row = rows[number];
        row.to += to;
        if (cast < 0)
            paste_mapped(&row, 1, form);
        else
            paste_cast(NULL, 0, &row, 1, form, true, (enum stored_type)stored, (enum cast)cast);
    }
    return true;
}

EXPORT void map_shared_pages(uint64_t address, uint64_t length)
{
    map_pages(address, length);
}

EXPORT uint64_t repeat_reads(const struct repeat *repeats, uint64_t count, int64_t threads)
{
    return repeat_all(repeats, count, (int)threads);
}

EXPORT void end_core_helpers(void)
{
    end_helpers();
}

EXPORT void limit_kept_chunks(uint64_t budget)
{
    limit_kept(budget);
}

EXPORT void count_kept_chunks(struct cache_figures *figures)
{
    count_kept(figures);
}

/* In a forked child, which has none of the parent's threads. */
EXPORT void forget_parent(void)
{
    forget_helpers();
    forget_kept();
}
