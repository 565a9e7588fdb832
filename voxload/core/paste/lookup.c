/* Values of 8 or 16 bits, each turned into what a table holds for it: results are so many bytes, whatever their type.

   A processor writes once a cycle, which is what bounds these loops. */
#include "core.h"

#include "clones.h"

#include <string.h>

enum { TILE = 512 /* values of a row, where rows lie within each other: all of them stay in the nearest cache */ };

/* Rows of elements; strides count bytes. */
struct rows {
    uint8_t *at;
    int64_t row, step;
};

INLINE size_t value_at(const uint8_t *at, int stored)
{
    uint16_t value;
    if (stored == 1)
        return *at;
    memcpy(&value, at, sizeof value);
    return value;
}

INLINE void copy_result(uint8_t *to, const uint8_t *at, int width)
{
    switch (width) { /* a size that is known is one instruction */
    case 1: *to = *at; break;
    case 2: memcpy(to, at, 2); break;
    case 4: memcpy(to, at, 4); break;
    default: memcpy(to, at, 8);
    }
}

INLINE void look_up_run(uint8_t *restrict to, int64_t to_step, const uint8_t *restrict table,
                        const uint8_t *restrict from, int64_t from_step, int64_t count, int stored, int width)
{
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC unroll 8
#endif
    for (int64_t place = 0; place < count; place++)
        copy_result(to + place * to_step, table + value_at(from + place * from_step, stored) * (size_t)width, width);
}

INLINE void look_up(struct rows to, const uint8_t *table, int64_t apart, struct rows from, int64_t rows, int64_t count,
                    int stored, int width)
{
    const bool are_one = !apart && to.row == width && to.step == rows * width; /* channels last */
    if (are_one && from.row == stored && from.step == rows * stored) {
        count *= rows;
        rows = 1;
        to.step = width;
        from.step = stored;
    }
    if (to.step == width && from.step == stored) {
        for (int64_t row = 0; row < rows; row++)
            look_up_run(to.at + row * to.row, width, table + row * apart, from.at + row * from.row, stored, count,
                        stored, width);
        return;
    }
    for (int64_t begin = 0; begin < count; begin += TILE)
        for (int64_t row = 0; row < rows; row++)
            look_up_run(to.at + row * to.row + begin * to.step, to.step, table + row * apart,
                        from.at + row * from.row + begin * from.step, from.step,
                        count - begin < TILE ? count - begin : TILE, stored, width);
}

/* Look up `rows` rows of `count` values of `stored` bytes, 1 or 2; results are `width` bytes, 1, 2, 4 or 8. A row's
   table is `apart` bytes from that of the row before it: 0 where all have one. */
EXPORT CLONES void look_up_rows(uint8_t *to, int64_t to_row, int64_t to_step, const uint8_t *table, int64_t apart,
                                uint8_t *from, int64_t from_row, int64_t from_step, int64_t rows, int64_t count,
                                uint64_t stored, uint64_t width)
{
    const struct rows target = {to, to_row, to_step}, source = {from, from_row, from_step};
    switch (stored << 4 | width) {
    case 0x11: look_up(target, table, apart, source, rows, count, 1, 1); break;
    case 0x12: look_up(target, table, apart, source, rows, count, 1, 2); break;
    case 0x14: look_up(target, table, apart, source, rows, count, 1, 4); break;
    case 0x18: look_up(target, table, apart, source, rows, count, 1, 8); break;
    case 0x21: look_up(target, table, apart, source, rows, count, 2, 1); break;
    case 0x22: look_up(target, table, apart, source, rows, count, 2, 2); break;
    case 0x24: look_up(target, table, apart, source, rows, count, 2, 4); break;
    default: look_up(target, table, apart, source, rows, count, 2, 8);
    }
}
