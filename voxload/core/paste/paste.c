/* The one pass that takes voxels from decoded chunks to where they belong.

   Undoing the byte shuffle, turning the byte order, turning the axes, cropping and pasting are one loop, so that a
   voxel is written once. A voxel is so many bytes, whatever its type. */
#include "paste.h"

#include "clones.h"

#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

enum { AHEAD = 8 /* rows asked for before they are copied, where they lie too far apart to be guessed */ };

typedef uint8_t bytes16 __attribute__((vector_size(16)));

static void cut(struct row *row, const struct wanted *box, const struct grid *grid, uint64_t width)
{
    uint64_t first = 0, last = 0, to = box->to;
    for (int turn = 0; turn < AXES; turn++) {
        const uint64_t axis = box->axes[turn], begin = row->place[axis] * grid->extent[axis];
        const uint64_t end = begin + grid->extent[axis], stride = grid->stride[axis];
        const uint64_t lo = box->start[axis] > begin ? box->start[axis] : begin;
        const uint64_t hi = box->stop[axis] < end ? box->stop[axis] : end;
        row->extent[turn] = hi - lo;
        row->source[turn] = stride;
        row->target[turn] = box->target[axis];
        first += (lo - begin) * stride;
        last += (hi - begin - 1) * stride;
        to += (lo - box->start[axis]) * box->target[axis];
    }
    row->first = first;
    row->stop = last + width;
    row->to = to;
    const bool is_run = row->source[AXES - 1] == width && row->target[AXES - 1] == width;
    const bool are_lines = row->extent[AXES - 1] * width % LINE == 0 && to % LINE == 0;
    row->manner = !is_run ? BY_ELEMENT : box->may_stream && are_lines ? BY_LINE : BY_RUN;
}

uint64_t count_rows(const struct wanted *boxes, size_t count, const struct grid *grid)
{
    uint64_t rows = 0;
    for (size_t number = 0; number < count; number++) {
        uint64_t own = 1;
        for (int axis = 0; axis < AXES; axis++) {
            const uint64_t lo = boxes[number].start[axis], hi = boxes[number].stop[axis];
            if (lo >= hi || !grid->extent[axis])
                return UINT64_MAX;
            own *= (hi - 1) / grid->extent[axis] - lo / grid->extent[axis] + 1;
        }
        rows += own;
    }
    return rows;
}

void tabulate(struct row *rows, const struct wanted *boxes, size_t count, const struct grid *grid, uint64_t width)
{
    for (size_t number = 0; number < count; number++) {
        const struct wanted *box = &boxes[number];
        uint64_t lo[AXES], hi[AXES];
        for (int axis = 0; axis < AXES; axis++) {
            lo[axis] = box->start[axis] / grid->extent[axis];
            hi[axis] = (box->stop[axis] - 1) / grid->extent[axis];
        }
        uint64_t at[AXES];
        memcpy(at, lo, sizeof at);
        for (int axis = 0; axis >= 0; rows++) {
            *rows = (struct row){.box = number};
            for (int turn = 0; turn < AXES; turn++) {
                rows->place[turn] = at[turn];
                rows->chunk = rows->chunk * grid->count[turn] + at[turn];
            }
            cut(rows, box, grid, width);
            for (axis = AXES - 1; axis >= 0 && at[axis] == hi[axis]; axis--)
                at[axis] = lo[axis];
            if (axis >= 0)
                at[axis]++;
        }
    }
}

/* Write 16 bytes at any address, or past the caches at an aligned one. */
INLINE void put(uint8_t *to, bytes16 value, bool streams)
{
#if defined(__SSE2__)
    if (streams)
        _mm_stream_si128((__m128i *)to, (__m128i)value);
    else
#endif
        memcpy(to, &value, sizeof value);
}

INLINE bytes16 get(const uint8_t *at)
{
    bytes16 value;
    memcpy(&value, at, sizeof value);
    return value;
}

/* Order what was streamed before all that this thread does next: such stores order nothing themselves. */
INLINE void settle(void)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

/* A call of memcpy takes longer than to move a row of a small chunk. */
INLINE void copy_run(uint8_t *to, const uint8_t *at, uint64_t size)
{
    if (size < 16 || size > 1024) {
        memcpy(to, at, size);
        return;
    }
    const uint64_t last = size - 16;
    for (uint64_t place = 0; place < last; place += 16)
        put(to + place, get(at + place), false);
    put(to + last, get(at + last), false); /* over the end of the one before, where the size is no multiple */
}

INLINE void copy_element(uint8_t *to, const uint8_t *at, uint64_t width)
{
    switch (width) { /* a size that is known is one instruction */
    case 1: *to = *at; break;
    case 2: memcpy(to, at, 2); break;
    case 4: memcpy(to, at, 4); break;
    default: memcpy(to, at, 8);
    }
}

INLINE void paste_runs(const struct row *row, const uint8_t *start, uint64_t width)
{
    const uint64_t *extent = row->extent + OUTER, *source = row->source + OUTER, *target = row->target + OUTER;
    const uint64_t size = extent[3] * width, lines = size / LINE + 1;
    const bool is_apart = source[2] > size + LINE && lines <= 16;
    for (uint64_t a = 0; a < extent[0]; a++)
        for (uint64_t b = 0; b < extent[1]; b++)
            for (uint64_t c = 0; c < extent[2]; c++) {
                const uint8_t *at = start + a * source[0] + b * source[1] + c * source[2];
                uint8_t *to = (uint8_t *)(uintptr_t)(row->to + a * target[0] + b * target[1] + c * target[2]);
                if (is_apart)
                    for (uint64_t d = 0; d < lines; d++)
                        __builtin_prefetch((const void *)((uintptr_t)at + AHEAD * source[2] + d * LINE));
                copy_run(to, at, size);
            }
}

INLINE void paste_lines(const struct row *row, const uint8_t *start, uint64_t width)
{
    const uint64_t *extent = row->extent + OUTER, *source = row->source + OUTER, *target = row->target + OUTER;
    const uint64_t size = extent[3] * width;
    for (uint64_t a = 0; a < extent[0]; a++)
        for (uint64_t b = 0; b < extent[1]; b++)
            for (uint64_t c = 0; c < extent[2]; c++) {
                const uint8_t *at = start + a * source[0] + b * source[1] + c * source[2];
                uint8_t *to = (uint8_t *)(uintptr_t)(row->to + a * target[0] + b * target[1] + c * target[2]);
                for (uint64_t d = 0; d < size; d += 16)
                    put(to + d, get(at + d), true);
            }
    settle();
}

typedef uint16_t __attribute__((aligned(1), may_alias)) any16;
typedef uint32_t __attribute__((aligned(1), may_alias)) any32;
typedef uint64_t __attribute__((aligned(1), may_alias)) any64;

/* Elements that lie so many bytes apart into a run. Where compilers know the stride, they take vectors apart. */
#define PICK(type, stride)                                                                                             \
    for (uint64_t place = 0; place < count; place++)                                                                   \
        ((type *)to)[place] = *(const type *)(at + place * (stride));                                                  \
    return;

/* Vectors put together out of single elements are slower than these: the asm, which does nothing, forbids them. */
#define PICK_ONE(type)                                                                                                 \
    _Pragma("GCC unroll 4") for (uint64_t place = 0; place < count; place++, at += stride) {                           \
        uint64_t one = *(const type *)at;                                                                              \
        __asm__("" : "+r"(one));                                                                                       \
        ((type *)to)[place] = (type)one;                                                                               \
    }                                                                                                                  \
    return;

INLINE void pick_run(uint8_t *restrict to, const uint8_t *restrict at, uint64_t stride, uint64_t count, uint64_t width)
{
    switch (width << 8 | (stride <= 16 ? stride : 0)) {
    case 1 << 8 | 2: PICK(uint8_t, 2)
    case 1 << 8 | 3: PICK(uint8_t, 3)
    case 1 << 8 | 4: PICK(uint8_t, 4)
    case 2 << 8 | 4: PICK(any16, 4)
    case 2 << 8 | 6: PICK(any16, 6)
    case 2 << 8 | 8: PICK(any16, 8)
    case 4 << 8 | 8: PICK(any32, 8)
    case 4 << 8 | 12: PICK(any32, 12)
    case 4 << 8 | 16: PICK(any32, 16)
    case 8 << 8 | 16: PICK(any64, 16)
    }
    switch (width) {
    case 1: PICK_ONE(uint8_t)
    case 2: PICK_ONE(any16)
    case 4: PICK_ONE(any32)
    default: PICK_ONE(any64)
    }
}

INLINE void paste_elements(const struct row *row, const uint8_t *start, uint64_t width)
{
    const uint64_t *extent = row->extent + OUTER, *source = row->source + OUTER, *target = row->target + OUTER;
    for (uint64_t a = 0; a < extent[0]; a++)
        for (uint64_t b = 0; b < extent[1]; b++)
            for (uint64_t c = 0; c < extent[2]; c++) {
                const uint8_t *at = start + a * source[0] + b * source[1] + c * source[2];
                uint8_t *to = (uint8_t *)(uintptr_t)(row->to + a * target[0] + b * target[1] + c * target[2]);
                if (target[3] == width)
                    pick_run(to, at, source[3], extent[3], width);
                else
                    for (uint64_t d = 0; d < extent[3]; d++)
                        copy_element(to + d * target[3], at + d * source[3], width);
            }
}

/* Put elements together byte by byte; `plane` is how far apart the bytes of one lie, and may be negative. */
INLINE void gather_run(uint8_t *to, uint64_t step, const uint8_t *at, uint64_t stride, int64_t plane, uint64_t count,
                       uint64_t width)
{
    for (uint64_t d = 0; d < count; d++)
        for (uint64_t k = 0; k < width; k++)
            to[d * step + k] = *(at + d * stride + (int64_t)k * plane);
}

#if defined(__clang__)
#define ZIP(kind, low, high, ...) ((bytes16)__builtin_shufflevector((kind)(low), (kind)(high), __VA_ARGS__))
#else
#define ZIP(kind, low, high, ...) ((bytes16)__builtin_shuffle((kind)(low), (kind)(high), (kind){__VA_ARGS__}))
#endif
typedef uint16_t pairs8 __attribute__((vector_size(16)));
typedef uint32_t fours4 __attribute__((vector_size(16)));

INLINE bytes16 low1(bytes16 a, bytes16 b) { return ZIP(bytes16, a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23); }
INLINE bytes16 high1(bytes16 a, bytes16 b) { return ZIP(bytes16, a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31); }
INLINE bytes16 low2(bytes16 a, bytes16 b) { return ZIP(pairs8, a, b, 0, 8, 1, 9, 2, 10, 3, 11); }
INLINE bytes16 high2(bytes16 a, bytes16 b) { return ZIP(pairs8, a, b, 4, 12, 5, 13, 6, 14, 7, 15); }
INLINE bytes16 low4(bytes16 a, bytes16 b) { return ZIP(fours4, a, b, 0, 4, 1, 5); }
INLINE bytes16 high4(bytes16 a, bytes16 b) { return ZIP(fours4, a, b, 2, 6, 3, 7); }

/* Put 16 elements of 2, 4 or 8 bytes together out of their planes. */
INLINE void weave2(uint8_t *to, const uint8_t *at, int64_t plane, bool streams)
{
    const bytes16 a = get(at), b = get(at + plane);
    put(to, low1(a, b), streams);
    put(to + 16, high1(a, b), streams);
}

INLINE void weave4(uint8_t *to, const uint8_t *at, int64_t plane, bool streams)
{
    const bytes16 a = get(at), b = get(at + plane), c = get(at + 2 * plane), d = get(at + 3 * plane);
    const bytes16 ab = low1(a, b), AB = high1(a, b), cd = low1(c, d), CD = high1(c, d);
    put(to, low2(ab, cd), streams);
    put(to + 16, high2(ab, cd), streams);
    put(to + 32, low2(AB, CD), streams);
    put(to + 48, high2(AB, CD), streams);
}

INLINE void weave8(uint8_t *to, const uint8_t *at, int64_t plane, bool streams)
{
    bytes16 in[8], two[8], four[8];
    for (int k = 0; k < 8; k++)
        in[k] = get(at + k * plane);
    for (int k = 0; k < 4; k++) { /* two[k]: bytes 2k and 2k + 1 of elements 0 to 7; two[4 + k]: of 8 to 15 */
        two[k] = low1(in[2 * k], in[2 * k + 1]);
        two[4 + k] = high1(in[2 * k], in[2 * k + 1]);
    }
    for (int half = 0; half < 2; half++)
        for (int k = 0; k < 2; k++) { /* bytes 4k to 4k + 3, of the elements in four */
            four[4 * half + k] = low2(two[4 * half + 2 * k], two[4 * half + 2 * k + 1]);
            four[4 * half + 2 + k] = high2(two[4 * half + 2 * k], two[4 * half + 2 * k + 1]);
        }
    for (int k = 0; k < 4; k++) {
        put(to + 32 * k, low4(four[2 * k], four[2 * k + 1]), streams);
        put(to + 32 * k + 16, high4(four[2 * k], four[2 * k + 1]), streams);
    }
}

/* Elements that are next to each other in their planes and in the target. */
INLINE void weave_run(uint8_t *to, const uint8_t *at, int64_t plane, uint64_t count, uint64_t width, bool streams)
{
    uint64_t done = 0;
    if (width == 2)
        for (; done + 16 <= count; done += 16)
            weave2(to + done * 2, at + done, plane, streams);
    else if (width == 4)
        for (; done + 16 <= count; done += 16)
            weave4(to + done * 4, at + done, plane, streams);
    else
        for (; done + 16 <= count; done += 16)
            weave8(to + done * 8, at + done, plane, streams);
    gather_run(to + done * width, width, at + done, 1, plane, count - done, width);
}

/* Turn the bytes of elements that are next to each other in both. */
INLINE void swap_run(uint8_t *to, const uint8_t *at, uint64_t count, uint64_t width, bool streams)
{
    const uint64_t size = count * width;
    uint64_t done = 0;
    for (; done + 16 <= size; done += 16) {
        const bytes16 in = get(at + done);
        if (width == 2)
            put(to + done, ZIP(bytes16, in, in, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14), streams);
        else if (width == 4)
            put(to + done, ZIP(bytes16, in, in, 3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12), streams);
        else
            put(to + done, ZIP(bytes16, in, in, 7, 6, 5, 4, 3, 2, 1, 0, 15, 14, 13, 12, 11, 10, 9, 8), streams);
    }
    gather_run(to + done, width, at + done + width - 1, width, -1, (size - done) / width, width);
}

/* Put a part together from its chunk's first byte; `plane` is 0 where the bytes of an element are together. */
INLINE void assemble(const struct row *row, const uint8_t *start, uint64_t plane, struct form form)
{
    const uint64_t *extent = row->extent + OUTER, *source = row->source + OUTER, *target = row->target + OUTER;
    const uint64_t width = form.width, shrunk = plane ? width : 1;
    int64_t step = plane ? (int64_t)plane : 1;
    const uint8_t *lowest = start + row->first / shrunk;
    if (form.is_swapped) {
        lowest += (int64_t)(width - 1) * step;
        step = -step;
    }
    const bool is_run = target[3] == width && source[3] / shrunk == (plane ? 1 : width);
    const bool streams = row->manner == BY_LINE;
    for (uint64_t a = 0; a < extent[0]; a++)
        for (uint64_t b = 0; b < extent[1]; b++)
            for (uint64_t c = 0; c < extent[2]; c++) {
                const uint64_t along = a * source[0] + b * source[1] + c * source[2];
                const uint8_t *at = lowest + along / shrunk;
                uint8_t *to = (uint8_t *)(uintptr_t)(row->to + a * target[0] + b * target[1] + c * target[2]);
                if (!is_run)
                    gather_run(to, target[3], at, source[3] / shrunk, step, extent[3], width);
                else if (plane)
                    weave_run(to, at, step, extent[3], width, streams);
                else
                    swap_run(to, at + 1 - width, extent[3], width, streams);
            }
    if (streams)
        settle();
}

INLINE void paste_inner(const uint8_t *start, uint64_t size, const struct row *row, struct form form)
{
    if (form.width > 1 && (form.is_shuffled || form.is_swapped))
        assemble(row, start, form.is_shuffled ? size / form.width : 0, form);
    else if (row->manner == BY_RUN)
        paste_runs(row, start + row->first, form.width);
    else if (row->manner == BY_LINE)
        paste_lines(row, start + row->first, form.width);
    else
        paste_elements(row, start + row->first, form.width);
}

/* Apart from the others, whose code is repeated where it is called. */
static __attribute__((noinline)) void paste_outer(const uint8_t *start, uint64_t size, const struct row *row,
                                                  struct form form)
{
    struct row part = *row;
    part.extent[0] = part.extent[1] = 1;
    for (uint64_t a = 0; a < row->extent[0]; a++)
        for (uint64_t b = 0; b < row->extent[1]; b++) {
            part.first = row->first + a * row->source[0] + b * row->source[1];
            part.to = row->to + a * row->target[0] + b * row->target[1];
            paste_one(start, size, &part, form);
        }
}

INLINE void paste_part(const uint8_t *start, uint64_t size, const struct row *row, struct form form)
{
    if (row->extent[0] == 1 && row->extent[1] == 1) /* nearly always */
        paste_inner(start, size, row, form);
    else
        paste_outer(start, size, row, form);
}

CLONES void paste_one(const uint8_t *chunk, uint64_t size, const struct row *row, struct form form)
{
    paste_part(chunk, size, row, form);
}

CLONES void paste(const uint8_t *chunk, uint64_t size, const struct row *rows, size_t count, struct form form)
{
    for (size_t number = 0; number < count; number++)
        paste_part(chunk, size, &rows[number], form);
}

CLONES void paste_mapped(const struct row *rows, size_t count, struct form form)
{
    for (size_t number = 0; number < count; number++) {
        struct row row = rows[number];
        const uint8_t *start = (const uint8_t *)(uintptr_t)row.first;
        row.first = 0;
        paste_part(start, 0, &row, form);
    }
}
