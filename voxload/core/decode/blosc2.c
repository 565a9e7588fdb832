/* Blosc2: chunks in a contiguous frame, as HDF5's filter 32026 stores them.

   Sources: c-blosc2 2.x, README_CFRAME_FORMAT, README_CHUNK_FORMAT and README_B2ND_METALAYER. A frame is a header with
   named metalayers, one chunk, the chunk's place as a chunk of its own, and a trailer. Arrays of two and more axes lie
   in the chunk block by block, and blocks at the far edges are padded.

   Every number is checked here before c-blosc2 sees the chunk: it believes some of them, and looks up foreign codecs by
   running a Python interpreter. */
#include "filters.h"

#include <limits.h>
#include <string.h>

enum {
    FRAME_HEADER = 97, /* bytes up to the first metalayer */
    CHUNK_HEADER = 32,
    EXTENDED = 5,
    FOREIGN = 5,        /* from this number on the codecs and filters of a chunk come from elsewhere */
    DELTA = 3,          /* undone with the first block, which must be all undone by then: else with what lay there before */
    TRUNCATION = 4,
    KNOWN_FLAGS = 0x71, /* a dictionary, and the kind of a run: others mean chunks that lie elsewhere */
    MOST_AXES = 8,
};

static uint64_t big(const uint8_t *at, int bytes)
{
    uint64_t value = 0;
    for (int byte = 0; byte < bytes; byte++)
        value = value << 8 | at[byte];
    return value;
}

static uint64_t little32(const uint8_t *at)
{
    return (uint64_t)at[3] << 24 | (uint64_t)at[2] << 16 | (uint64_t)at[1] << 8 | at[0];
}

/* Decode a chunk that begins with `data` into all of `out`; `is_last` tells that nothing may follow it. */
static bool decode_chunk(struct workspace *space, const uint8_t *data, size_t size, uint8_t *out, size_t wanted, bool is_last)
{
    if (size < CHUNK_HEADER)
        return false;
    const uint64_t flags = data[2], decoded = little32(data + 4), block = little32(data + 8), stored = little32(data + 12);
    if (decoded != wanted || stored < CHUNK_HEADER || stored > size || (is_last && stored != size))
        return false;
    if ((flags & EXTENDED) != EXTENDED || flags >> 5 >= FOREIGN || !block || block > decoded || decoded > INT_MAX)
        return false;
    bool is_moved = false;
    for (int filter = 16; filter < 22; filter++) {
        if (data[filter] >= FOREIGN || (data[filter] == DELTA && is_moved))
            return false;
        is_moved |= data[filter] && data[filter] != TRUNCATION;
    }
    if (data[31] & ~KNOWN_FLAGS || stored > INT_MAX)
        return false;
    if (!space->blosc2) {
        const struct blosc2_parameters alone = {.threads = 1};
        if (!(space->blosc2 = decoders.blosc2_new(alone)))
            return false;
    }
    if (decoders.blosc2(space->blosc2, data, (int32_t)stored, out, (int32_t)wanted) == (int)wanted)
        return true;
    decoders.blosc2_free(space->blosc2); /* what a failure leaves in it is nobody's promise */
    space->blosc2 = NULL;
    return false;
}

/* How an array lies in its chunk. */
struct blocks {
    uint64_t axes, extent[MOST_AXES], width[MOST_AXES];
    uint64_t elements, padded; /* of the array, and with what pads its blocks */
};

/* Multiply; false beyond what a chunk can have. */
static bool grow(uint64_t *product, uint64_t factor)
{
    if (factor > INT_MAX || (factor && *product > INT_MAX / factor))
        return false;
    *product *= factor;
    return true;
}

/* Read shape, chunk shape and block shape of the metalayer that begins at `at`; false unless one chunk holds the array. */
static bool parse_array(const uint8_t *header, size_t size, uint64_t at, struct blocks *blocks)
{
    if (at + 3 > size)
        return false;
    const uint64_t axes = blocks->axes = header[at + 2];
    at += 3;
    if (!axes || axes > MOST_AXES || at + 3 + 19 * axes > size)
        return false;
    const uint8_t *shape = header + at + 1, *chunk = shape + 9 * axes + 1, *block = chunk + 5 * axes + 1;
    blocks->elements = blocks->padded = 1;
    for (uint64_t axis = 0; axis < axes; axis++) {
        const uint64_t extent = big(shape + 9 * axis + 1, 8), width = big(block + 5 * axis + 1, 4);
        if (extent != big(chunk + 5 * axis + 1, 4) || !width || width > extent)
            return false;
        if (!grow(&blocks->elements, extent) || !grow(&blocks->padded, (extent + width - 1) / width * width))
            return false;
        blocks->extent[axis] = extent;
        blocks->width[axis] = width;
    }
    return true;
}

/* Find the metalayer of an array; its axes are 0 where the header has none. */
static bool parse_layers(const uint8_t *header, size_t size, struct blocks *blocks)
{
    uint64_t at = 94;
    blocks->axes = 0;
    for (uint64_t layers = big(header + 92, 2); layers; layers--) {
        if (at >= size)
            return false;
        const uint64_t length = header[at] & 0x1F;
        if (at + 6 + length > size)
            return false;
        const uint8_t *name = header + at + 1;
        const uint64_t place = big(name + length + 1, 4);
        if (length == 4 && !memcmp(name, "b2nd", 4))
            return parse_array(header, size, place + 5, blocks);
        if (length == 7 && !memcmp(name, "caterva", 7))
            return false;
        at += 6 + length;
    }
    return true;
}

/* Take an array out of its blocks. */
static void join(const struct blocks *blocks, const uint8_t *padded, uint8_t *out, size_t itemsize)
{
    const uint64_t axes = blocks->axes, last = axes - 1;
    uint64_t start[MOST_AXES] = {0}, stride[MOST_AXES];
    uint64_t step = itemsize, size = itemsize;
    for (uint64_t axis = axes; axis--;) {
        stride[axis] = step;
        step *= blocks->extent[axis];
        size *= blocks->width[axis];
    }
    for (;; padded += size) {
        uint64_t at[MOST_AXES] = {0}, lines = 1, offset = 0;
        for (uint64_t axis = 0; axis < last; axis++)
            lines *= blocks->width[axis];
        const uint64_t left = blocks->extent[last] - start[last], width = blocks->width[last];
        for (uint64_t line = 0; line < lines; line++, offset += width * itemsize) {
            uint64_t to = start[last] * itemsize;
            bool is_inside = true;
            for (uint64_t axis = 0; axis < last; axis++) {
                is_inside &= start[axis] + at[axis] < blocks->extent[axis];
                to += (start[axis] + at[axis]) * stride[axis];
            }
            if (is_inside)
                memcpy(out + to, padded + offset, (left < width ? left : width) * itemsize);
            for (uint64_t axis = last; axis-- && ++at[axis] == blocks->width[axis];)
                at[axis] = 0;
        }
        uint64_t axis = axes;
        while (axis-- && (start[axis] += blocks->width[axis]) >= blocks->extent[axis])
            start[axis] = 0;
        if (axis == UINT64_MAX)
            return;
    }
}

/* A run has no chunk: its kind stands in its place. */
static bool fill_run(uint8_t kind, uint8_t *out, size_t wanted, size_t itemsize)
{
    enum { ZEROS = 1, NANS = 2 };
    if (kind == ZEROS) {
        memset(out, 0, wanted);
        return true;
    }
    if (kind != NANS || (itemsize != 4 && itemsize != 8))
        return false;
    const uint32_t single = 0x7FC00000;
    const uint64_t twice = (uint64_t)0x7FF8 << 48;
    for (size_t at = 0; at + itemsize <= wanted; at += itemsize)
        memcpy(out + at, itemsize == 4 ? (const void *)&single : &twice, itemsize);
    return wanted % itemsize == 0;
}

bool undo_blosc2(struct workspace *space, const struct step *step, const uint8_t *data, size_t size, uint8_t *out,
                 size_t wanted)
{
    if (size < FRAME_HEADER || memcmp(data + 2, "b2frame", 8))
        return false;
    const uint64_t start = big(data + 11, 4), all = big(data + 16, 8), nbytes = big(data + 30, 8);
    const uint64_t stored = big(data + 39, 8), itemsize = big(data + 48, 4);
    if (all != size || start < FRAME_HEADER || start > all || stored > all - start || !itemsize || itemsize > INT_MAX)
        return false;
    struct blocks blocks;
    if (!parse_layers(data, start, &blocks))
        return false;
    uint64_t decoded = wanted;
    if (blocks.axes) {
        uint64_t bytes = itemsize;
        decoded = itemsize;
        if (!grow(&bytes, blocks.elements) || bytes != wanted || !grow(&decoded, blocks.padded))
            return false;
        const uint64_t *extents = (const uint64_t *)(uintptr_t)step->options;
        if (extents && (step->block != blocks.axes || memcmp(extents, blocks.extent, 8 * blocks.axes)))
            return false;
    }
    if (nbytes != decoded)
        return false;
    uint8_t place[8];
    if (!decode_chunk(space, data + start + stored, size - start - stored, place, sizeof place, false))
        return false;
    if (place[7] & 0x80)
        return fill_run(place[7] & 7, out, wanted, itemsize);
    if (big(place, 8) || decoded / MOST_RATIO > stored)
        return false;
    uint8_t *lies = blocks.axes ? room(space, PLANES, decoded) : out;
    if (!lies || !decode_chunk(space, data + start, stored, lies, decoded, true))
        return false;
    if (blocks.axes)
        join(&blocks, lies, out, itemsize);
    return true;
}
