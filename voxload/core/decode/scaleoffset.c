/* HDF5's filter 6, which stores so many bits of each number in a row. Source: HDF5 2.0, H5Zscaleoffset.c. */
#include "filters.h"

#include "bits.h"

#include <string.h>

/* As HDF5 makes it: one byte more than whole ones. */
static size_t packed_bytes(size_t count, uint64_t bits)
{
    return count / 8 * bits + count % 8 * bits / 8 + 1;
}

enum { SCALE_HEADER = 21 };

size_t most_scale_offset_bytes(size_t size)
{
    return SCALE_HEADER + size + 1;
}

static void swap_numbers(uint8_t *numbers, uint64_t width, size_t count)
{
    for (size_t index = 0; index < count; index++)
        for (uint64_t low = 0; low < width / 2; low++) {
            uint8_t *number = numbers + index * width, byte = number[low];
            number[low] = number[width - 1 - low];
            number[width - 1 - low] = byte;
        }
}

/* As the library does it, in the arithmetic of the type: differences are signed integers there. */
#define FLOATS(number, whole, bits_of)                                                                                 \
    {                                                                                                                  \
        number least, factor = (number)scale;                                                                          \
        memcpy(&least, &low, sizeof least);                                                                            \
        for (size_t index = 0; index < count; index++) {                                                               \
            const bits_of difference = ((bits_of *)out)[index];                                                        \
            if (has_fill && difference == largest) {                                                                   \
                ((bits_of *)out)[index] = (bits_of)step->fill;                                                         \
                continue;                                                                                              \
            }                                                                                                          \
            number value = (number)(whole)difference;                                                                  \
            value = value / factor;                                                                                    \
            value = value + least;                                                                                     \
            memcpy((bits_of *)out + index, &value, sizeof value);                                                      \
        }                                                                                                              \
    }

static void undo_floats(const struct step *step, uint64_t least, uint64_t bits, uint8_t *out, size_t count)
{
    const bool has_fill = step->flags & HAS_FILL;
    const uint64_t largest = ((uint64_t)1 << bits) - 1;
    double scale;
    memcpy(&scale, &step->scale, sizeof scale);
    if (step->width == 4) {
        const uint32_t low = (uint32_t)least;
        FLOATS(float, int32_t, uint32_t)
    } else {
        const uint64_t low = least;
        FLOATS(double, int64_t, uint64_t)
    }
}

/* Bits of a difference in four bytes, the bytes of the least value in one, that value in eight, eight of padding, then
   the differences from it. The largest difference stands for the fill value. */
bool undo_scale_offset(const struct step *step, const uint8_t *data, size_t size, uint8_t *out, size_t wanted)
{
    const uint64_t width = step->width, all = 8 * width;
    const size_t count = wanted / width;
    if (wanted % width)
        return false;
    if (size < SCALE_HEADER || data[4] != 8)
        return false;
    uint64_t bits = 0, least = 0;
    for (int byte = 3; byte >= 0; byte--)
        bits = bits << 8 | data[byte];
    for (int byte = 12; byte >= 5; byte--)
        least = least << 8 | data[byte];
    const uint8_t *body = data + SCALE_HEADER;
    size -= SCALE_HEADER;
    if (bits > all || size != (bits == all ? wanted : bits ? packed_bytes(count, bits) : 1))
        return false;
    const uint64_t *fill = step->flags & HAS_FILL ? &step->fill : NULL;
    if (bits == all) {
        memcpy(out, body, wanted); /* in this machine's order, from which they are turned */
    } else if (step->flags & IS_FLOAT) {
        if (bits)
            unpack_bits(body, (unsigned)bits, 0, NULL, out, width, count);
        else
            memset(out, 0, wanted);
        undo_floats(step, least, bits, out, count);
    } else if (bits) {
        unpack_bits(body, (unsigned)bits, least, fill, out, width, count);
    } else {
        const uint64_t value = fill ? *fill : least;
        for (size_t index = 0; index < count; index++)
            memcpy(out + index * width, &value, width); /* its lowest bytes, on a little-endian machine */
    }
    if (step->flags & IS_BIG)
        swap_numbers(out, width, count);
    return true;
}
