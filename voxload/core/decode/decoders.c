/* Every number that data claim is checked before a decoder sees it: some of them believe it. */
#include "decoders.h"

#include "bits.h"
#include "crc32c.h"
#include "filters.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

struct decoders decoders;

static uint32_t big32(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static uint64_t big64(const uint8_t *at)
{
    return (uint64_t)big32(at) << 32 | big32(at + 4);
}

static uint32_t little32(const uint8_t *at)
{
    return (uint32_t)at[3] << 24 | (uint32_t)at[2] << 16 | (uint32_t)at[1] << 8 | at[0];
}

uint8_t *room(struct workspace *space, int buffer, size_t size)
{
    if (space->sizes[buffer] < size) {
        free(space->buffers[buffer]);
        space->buffers[buffer] = malloc(size);
        space->sizes[buffer] = space->buffers[buffer] ? size : 0;
    }
    return space->buffers[buffer];
}

void empty(struct workspace *space)
{
    for (int buffer = 0; buffer < 4; buffer++)
        free(space->buffers[buffer]);
    if (space->deflate)
        decoders.deflate_free(space->deflate);
    if (space->zstd)
        decoders.zstd_free(space->zstd);
    if (space->blosc2)
        decoders.blosc2_free(space->blosc2);
    *space = (struct workspace){0};
}

bool can_decode(const struct pipeline *pipeline)
{
    for (uint64_t place = 0; place < pipeline->count; place++) {
        const struct step *step = &pipeline->steps[place];
        bool is_known = false;
        switch (step->filter) {
        case ZLIB: is_known = decoders.deflate_new && decoders.deflate_free && decoders.zlib; break;
        case ZSTD: is_known = decoders.zstd_new && decoders.zstd_free && decoders.zstd && decoders.zstd_is_error; break;
        case LZ4_HDF5: case LZ4_SIZED: is_known = decoders.lz4; break;
        case BLOSC: is_known = decoders.blosc && decoders.blosc_part; break;
        case GZIP: is_known = decoders.deflate_new && decoders.deflate_free && decoders.gzip; break;
        case CRC32C: case IDLE: is_known = true; break;
        case LZF: is_known = decoders.lzf; break;
        case BITSHUFFLE:
            is_known = decoders.unshuffle_bits && (step->inner == 0 || (step->inner == 2 && decoders.lz4) ||
                       (step->inner == 3 && decoders.zstd_new && decoders.zstd));
            break;
        case FLETCHER32: is_known = place + 1 == pipeline->count || place == 0; break;
        case SZIP: is_known = decoders.szip && step->width && step->block && step->inner; break;
        case BZIP2: is_known = decoders.bzip2_begin && decoders.bzip2 && decoders.bzip2_end; break;
        case BLOSC2: is_known = decoders.blosc2_new && decoders.blosc2_free && decoders.blosc2; break;
        case SHUFFLE: is_known = step->width; break;
        case SCALE_OFFSET:
            is_known = step->width == 1 || step->width == 2 || step->width == 4 || step->width == 8;
            break;
        default: break;
        }
        if (!is_known)
            return false;
    }
    return true;
}

/* Decode at most `most` bytes; SIZE_MAX where data are not as they should be. */
static size_t undo_zlib(struct workspace *space, const uint8_t *data, size_t size, uint8_t *out, size_t most)
{
    if (!space->deflate && !(space->deflate = decoders.deflate_new()))
        return SIZE_MAX;
    size_t got;
    return decoders.zlib(space->deflate, data, size, out, most, &got) == 0 ? got : SIZE_MAX;
}

/* Members in a row decode to what they decode to in turn; zeros may pad the end. Source: RFC 1952, section 2.2. */
static bool undo_gzip(struct workspace *space, const uint8_t *data, size_t size, uint8_t *out, size_t wanted)
{
    if (!space->deflate && !(space->deflate = decoders.deflate_new()))
        return false;
    size_t done = 0;
    do {
        size_t took, got;
        if (decoders.gzip(space->deflate, data, size, out + done, wanted - done, &took, &got) != 0)
            return false;
        data += took;
        size -= took;
        done += got;
        while (size && !*data && done == wanted)
            data++, size--;
    } while (size);
    return done == wanted;
}

/* Likewise. */
static size_t undo_zstd(struct workspace *space, const uint8_t *data, size_t size, uint8_t *out, size_t most)
{
    if (!space->zstd && !(space->zstd = decoders.zstd_new()))
        return SIZE_MAX;
    const size_t got = decoders.zstd(space->zstd, out, most, data, size);
    return decoders.zstd_is_error(got) ? SIZE_MAX : got;
}

static bool undo_lz4(const uint8_t *data, size_t size, uint8_t *out, size_t wanted)
{
    return size <= INT_MAX && wanted <= INT_MAX &&
           decoders.lz4((const char *)data, (char *)out, (int)size, (int)wanted) == (int)wanted;
}

enum { LZ4_MOST = 0x7E000000 /* LZ4_MAX_INPUT_SIZE */ };

/* HDF5's filter 32004: decoded size in eight bytes, block size in four, big-endian; each block behind its stored size,
   and as it is where that is its decoded one. Source: hdf5_plugins, H5Zlz4.c. */
static bool undo_lz4_hdf5(const uint8_t *data, size_t size, uint8_t *out, size_t wanted)
{
    if (size < 12 || big64(data) != wanted)
        return false;
    const uint64_t block = big32(data + 8);
    if (!block || block > LZ4_MOST)
        return false;
    size_t at = 12;
    for (size_t done = 0; done < wanted;) {
        const size_t length = wanted - done < block ? wanted - done : block;
        if (size - at < 4)
            return false;
        const size_t stored = big32(data + at);
        at += 4;
        if (stored > size - at)
            return false;
        if (stored == length)
            memcpy(out + done, data + at, length);
        else if (!undo_lz4(data + at, stored, out + done, length))
            return false;
        at += stored;
        done += length;
    }
    return true;
}

/* Blosc 1: the library believes its header. Blocks are independent, so those that hold what is wanted are enough.
   Source: c-blosc 1.21, README_CHUNK_FORMAT. */
static bool undo_blosc(const uint8_t *data, size_t size, uint8_t *out, size_t wanted, struct span span)
{
    enum { HEADER = 16, IS_COPIED = 2 };
    if (size < HEADER || little32(data + 4) != wanted || little32(data + 12) != size || wanted > INT_MAX)
        return false;
    const uint64_t block = little32(data + 8), width = data[3];
    const uint64_t blocks = block ? (wanted + block - 1) / block : 0, table = HEADER + 4 * blocks;
    const uint64_t used = block ? (span.stop + block - 1) / block - span.first / block : blocks;
    if (used >= blocks || data[2] & IS_COPIED || !width || block % width || wanted % width || table > size)
        return decoders.blosc(data, out, wanted, 1) == (int)wanted;
    for (uint64_t place = 0; place < blocks; place++) {
        const uint64_t start = little32(data + HEADER + 4 * place);
        if (start < table || start >= size)
            return false;
    }
    const uint64_t first = span.first / block * block;
    const uint64_t stop = (span.stop + block - 1) / block * block, end = stop < wanted ? stop : wanted;
    return decoders.blosc_part(data, (int)(first / width), (int)((end - first) / width), out + first) == (int)(end - first);
}

/* Source: bitshuffle 0.5, bshuf_h5filter.c. */
static bool undo_bitshuffle(struct workspace *space, const struct step *step, const uint8_t *data, size_t size, uint8_t *out,
                            size_t wanted)
{
    if (wanted % step->width)
        return false;
    if (!step->inner)
        return size == wanted && decoders.unshuffle_bits(data, out, wanted / step->width, step->width, step->block) == (int64_t)wanted;
    if (size < 12 || big64(data) != wanted)
        return false;
    const uint64_t block = big32(data + 8);
    if (!block || block > 1u << 30 || block % (8 * step->width))
        return false;
    uint8_t *planes = room(space, PLANES, wanted);
    if (!planes)
        return false;
    const size_t rest = wanted % (8 * step->width), body = wanted - rest;
    size_t at = 12;
    for (size_t done = 0; done < body;) {
        const size_t length = body - done < block ? body - done : block;
        if (size - at < 4)
            return false;
        const size_t stored = big32(data + at);
        at += 4;
        if (stored > size - at)
            return false;
        if (!(step->inner == 2 ? undo_lz4(data + at, stored, planes + done, length)
                               : undo_zstd(space, data + at, stored, planes + done, length) == length))
            return false;
        at += stored;
        done += length;
    }
    if (size - at != rest)
        return false;
    memcpy(planes + body, data + at, rest);
    return decoders.unshuffle_bits(planes, out, wanted / step->width, step->width, block / step->width) == (int64_t)wanted;
}

/* Planes of bytes become elements again; what is left over of the last one stands behind them. */
static void undo_shuffle(const struct step *step, const uint8_t *data, size_t size, uint8_t *out)
{
    const size_t width = step->width, count = size / width;
    for (size_t place = 0; place < width; place++)
        for (size_t index = 0; index < count; index++)
            out[index * width + place] = data[place * count + index];
    memcpy(out + count * width, data + count * width, size % width);
}

/* HDF5's filter 3, over 16-bit words, the highest byte first. Source: HDF5 2.0, H5checksum.c. */
static uint32_t fletcher32(const uint8_t *data, size_t size)
{
    uint32_t low = 0, high = 0;
    size_t words = size / 2;
    while (words) {
        size_t piece = words > 360 ? 360 : words; /* as many as 32 bits hold the sums of */
        words -= piece;
        for (; piece; piece--, data += 2) {
            low += (uint32_t)data[0] << 8 | data[1];
            high += low;
        }
        low = (low & 0xFFFF) + (low >> 16);
        high = (high & 0xFFFF) + (high >> 16);
    }
    if (size % 2) {
        low += (uint32_t)*data << 8;
        high += low;
        low = (low & 0xFFFF) + (low >> 16);
        high = (high & 0xFFFF) + (high >> 16);
    }
    low = (low & 0xFFFF) + (low >> 16);
    high = (high & 0xFFFF) + (high >> 16);
    return high << 16 | low;
}

/* Bytes that a step was given. */
struct extent {
    size_t most; /* 0 where they cannot be told */
    bool is_known;
};

/* What a compressor made of others' bytes has no size that is known: of few is it known how long it is at most. */
static struct extent extent_below(const struct pipeline *pipeline, uint64_t place, uint32_t mask)
{
    struct extent found = {pipeline->nbytes, true};
    for (uint64_t earlier = 0; earlier < place; earlier++) {
        const struct step *step = &pipeline->steps[earlier];
        if (mask >> (earlier + pipeline->shift) & 1)
            continue;
        switch (step->filter) {
        case FLETCHER32: case CRC32C: found.most += 4; break;
        case SHUFFLE: case IDLE: break;
        case SCALE_OFFSET:
            if (found.is_known) {
                found = (struct extent){most_scale_offset_bytes(found.most), false};
                break;
            } /* fall through */
        default: return (struct extent){0};
        }
    }
    return found;
}

/* Undo one compressor; return how many bytes there are, or SIZE_MAX. */
static size_t undo(const struct step *step, struct workspace *space, const uint8_t *data, size_t size, uint8_t *out,
                   struct extent extent, struct span span)
{
    const size_t wanted = extent.most;
    bool is_right = false;
    if (step->filter == ZLIB)
        return undo_zlib(space, data, size, out, wanted);
    if (step->filter == ZSTD)
        return undo_zstd(space, data, size, out, wanted);
    if (step->filter == SHUFFLE && size <= wanted) {
        undo_shuffle(step, data, size, out);
        return size;
    }
    if (!extent.is_known)
        return SIZE_MAX; /* the careful way */
    switch (step->filter) {
    case LZ4_HDF5: is_right = undo_lz4_hdf5(data, size, out, wanted); break;
    case LZ4_SIZED: is_right = size >= 4 && little32(data) == wanted && undo_lz4(data + 4, size - 4, out, wanted); break;
    case BLOSC: is_right = undo_blosc(data, size, out, wanted, span); break;
    case GZIP: is_right = undo_gzip(space, data, size, out, wanted); break;
    case LZF:
        is_right = size <= UINT_MAX && wanted <= UINT_MAX &&
                   decoders.lzf(data, (unsigned)size, out, (unsigned)wanted) == wanted;
        break;
    case BITSHUFFLE: is_right = undo_bitshuffle(space, step, data, size, out, wanted); break;
    case SZIP: is_right = undo_szip(space, step, data, size, out, wanted); break;
    case BZIP2: is_right = undo_bzip2(data, size, out, wanted); break;
    case BLOSC2: is_right = undo_blosc2(space, step, data, size, out, wanted); break;
    default: is_right = undo_scale_offset(step, data, size, out, wanted);
    }
    return is_right ? wanted : SIZE_MAX;
}

const uint8_t *decode(const struct pipeline *pipeline, struct workspace *space, const uint8_t *data, size_t size,
                      uint32_t mask, struct span span, bool *is_shuffled)
{
    *is_shuffled = pipeline->is_shuffled && !(mask & 1);
    int next = ONE;
    for (uint64_t place = pipeline->count; place--;) {
        if (mask >> (place + pipeline->shift) & 1)
            continue;
        const struct step *step = &pipeline->steps[place];
        if (step->filter == IDLE)
            continue;
        if (step->filter == FLETCHER32) {
            if (size < 4 || fletcher32(data, size - 4) != little32(data + size - 4))
                return NULL;
            size -= 4;
            continue;
        }
        if (step->filter == CRC32C) {
            if (size < 4 || crc32c(data, size - 4) != little32(data + size - 4))
                return NULL;
            size -= 4;
            continue;
        }
        const struct extent wanted = extent_below(pipeline, place, mask);
        if (!wanted.most || wanted.most / MOST_RATIO > size)
            return NULL; /* no stream of so few bytes can be so long: memory is taken for what data can be */
        uint8_t *out = room(space, next, wanted.most);
        next = next == ONE ? OTHER : ONE;
        if (!out)
            return NULL;
        const bool is_part = !*is_shuffled && !place && wanted.is_known;
        size = undo(step, space, data, size, out, wanted, is_part ? span : (struct span){0, wanted.most});
        if (size == SIZE_MAX || (wanted.is_known && size != wanted.most))
            return NULL;
        data = out;
    }
    return size == pipeline->nbytes ? data : NULL;
}
