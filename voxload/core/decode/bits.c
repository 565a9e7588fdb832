#include "bits.h"

#define UNPACK(type)                                                                                                   \
    for (size_t index = 0; index < count; index++) {                                                                   \
        uint64_t value = 0;                                                                                            \
        for (unsigned rest = bits; rest;) {                                                                            \
            if (!left) {                                                                                               \
                byte = *stream++;                                                                                      \
                left = 8;                                                                                              \
            }                                                                                                          \
            const unsigned take = left < rest ? left : rest;                                                           \
            left -= take;                                                                                              \
            rest -= take;                                                                                              \
            value = value << take | (byte >> left & ((1u << take) - 1));                                               \
        }                                                                                                              \
        ((type *)out)[index] = (type)(last && value == largest ? *last : value + add);                                 \
    }

void unpack_bits(const uint8_t *stream, unsigned bits, uint64_t add, const uint64_t *last, void *out, uint64_t width,
                 size_t count)
{
    const uint64_t largest = bits < 64 ? ((uint64_t)1 << bits) - 1 : UINT64_MAX;
    unsigned left = 0, byte = 0;
    switch (width) {
    case 1: UNPACK(uint8_t) break;
    case 2: UNPACK(uint16_t) break;
    case 4: UNPACK(uint32_t) break;
    default: UNPACK(uint64_t)
    }
}

int64_t walk_blocks(const uint8_t *data, uint64_t size, uint64_t at, int64_t (*places)[2], size_t count)
{
    for (size_t index = 0; index < count; index++) {
        if (at > size || size - at < 4)
            return -1;
        const uint64_t length = (uint64_t)data[at] << 24 | (uint64_t)data[at + 1] << 16 | (uint64_t)data[at + 2] << 8 | data[at + 3];
        at += 4;
        if (length > size - at)
            return -1;
        places[index][0] = (int64_t)at;
        places[index][1] = (int64_t)length;
        at += length;
    }
    return (int64_t)at;
}
