/* Every number that data claim is checked before a decoder sees it: some of them believe it. */
#include "decoders.h"

#include "bits.h"
#include "crc32c.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

struct decoders decoders;

/* Bytes that one stored byte can stand for: zstd's runs hold the most of all, a block of four bytes 2^17 of them
   (RFC 8878, section 3.1.1.2). */
enum { MOST_RATIO = 1 << 15 };

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
        case CRC32C:
        case LZF: is_known = decoders.lzf; break;
        case BITSHUFFLE:
            is_known = decoders.unshuffle_bits && (step->inner == 0 || (step->inner == 2 && decoders.lz4) ||
                       (step->inner == 3 && decoders.zstd_new && decoders.zstd));
            break;
        case FLETCHER32: is_known = place + 1 == pipeline->count || place == 0; break;
        default: break;
        }
        if (!is_known)
            return false;
    }
    return true;
}

static bool undo_zlib(struct workspace *space, const uint8_t *data, size_t size, uint8_t *out, size_t wanted)
{
    if (!space->deflate && !(space->deflate = decoders.deflate_new()))
        return false;
    size_t got;
    return decoders.zlib(space->deflate, data, size, out, wanted, &got) == 0 && got == wanted;
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

static bool undo_zstd(struct workspace *space, const uint8_t *data, size_t size, uint8_t *out, size_t wanted)
{
    if (!space->zstd && !(space->zstd = decoders.zstd_new()))
        return false;
    const size_t got = decoders.zstd(space->zstd, out, wanted, data, size);
    return !decoders.zstd_is_error(got) && got == wanted;
}

static bool undo_lz4(const uint8_t *data, size_t size, uint8_t *out, size_t wanted)
{
    return size <= INT_MAX && wanted <= INT_MAX &&
           decoders.lz4((const char *)data, (char *)out, (int)size, (int)wanted) == (int)wanted;
}

/* HDF5's filter 32004: decoded size in eight bytes, block size in four, big-endian; each block behind its stored size,
   and as it is where that is its decoded one. Source: hdf5_plugins, H5Zlz4.c. */
static bool undo_lz4_hdf5(const uint8_t *data, size_t size, uint8_t *out, size_t wanted)
{
    if (size < 12 || big64(data) != wanted)
        return false;
    const uint64_t block = big32(data + 8);
    if (!block)
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
                               : undo_zstd(space, data + at, stored, planes + done, length)))
            return false;
        at += stored;
        done += length;
    }
    if (size - at != rest)
        return false;
    memcpy(planes + body, data + at, rest);
    return decoders.unshuffle_bits(planes, out, wanted / step->width, step->width, block / step->width) == (int64_t)wanted;
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

const uint8_t *decode(const struct pipeline *pipeline, struct workspace *space, const uint8_t *data, size_t size,
                      uint32_t mask, struct span span, bool *is_shuffled)
{
    *is_shuffled = pipeline->is_shuffled && !(mask & 1);
    int next = ONE;
    for (uint64_t place = pipeline->count; place--;) {
        if (mask >> (place + pipeline->shift) & 1)
            continue;
        const struct step *step = &pipeline->steps[place];
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
        bool is_whole = *is_shuffled || place; /* what is wanted of it is the whole */
        size_t wanted = pipeline->nbytes; /* and four bytes for each checksum that was written before */
        for (uint64_t earlier = 0; earlier < place; earlier++) {
            if (mask >> (earlier + pipeline->shift) & 1)
                continue;
            if (pipeline->steps[earlier].filter != FLETCHER32 && pipeline->steps[earlier].filter != CRC32C)
                return NULL; /* what a compressor made of another's bytes has no size that is known: the careful way */
            wanted += 4;
        }
        if (wanted / MOST_RATIO > size)
            return NULL; /* no stream of so few bytes can be so long: memory is taken for what data can be */
        uint8_t *out = room(space, next, wanted);
        next = next == ONE ? OTHER : ONE;
        bool is_right = false;
        if (out)
            switch (step->filter) {
            case ZLIB: is_right = undo_zlib(space, data, size, out, wanted); break;
            case ZSTD: is_right = undo_zstd(space, data, size, out, wanted); break;
            case LZ4_HDF5: is_right = undo_lz4_hdf5(data, size, out, wanted); break;
            case LZ4_SIZED:
                is_right = size >= 4 && little32(data) == wanted && undo_lz4(data + 4, size - 4, out, wanted);
                break;
            case BLOSC:
                is_right = undo_blosc(data, size, out, wanted, is_whole ? (struct span){0, wanted} : span);
                break;
            case GZIP: is_right = undo_gzip(space, data, size, out, wanted); break;
            case LZF:
                is_right = size <= UINT_MAX && wanted <= UINT_MAX &&
                           decoders.lzf(data, (unsigned)size, out, (unsigned)wanted) == wanted;
                break;
            default: is_right = undo_bitshuffle(space, step, data, size, out, wanted);
            }
        if (!is_right)
            return NULL;
        data = out;
        size = wanted;
    }
    return size == pipeline->nbytes ? data : NULL;
}
