/* Voxels as stored, copied into a view that is turned, square by square.

   A square goes by way of buffers in the nearest cache, so each line of memory is touched once, even where lines lie a
   power of two apart and push each other out. */
#include "core.h"

#define SIZE 16
#define TARGET
#define NAMED(name) name
#include "vectors.h"

/* Voxels along a square: a line of 2-byte ones. Two buffers of 8-byte ones take half of the smallest near cache. */
enum { SIDE = 32 };

/* What is copied, by axes (c, a, b, k): the source's rows go along b, the target's along k. Strides count bytes and may
   be negative: what is unsigned wraps around. */
struct turning {
    uint64_t to, at; /* addresses */
    uint64_t extent[4];
    uint64_t target[4]; /* the last is a voxel's width or its negative */
    uint64_t source[4];
};

/* Copy a row of a square, most often whole: a call of memcpy takes longer than to move that. */
INLINE void copy_row(uint8_t *to, const uint8_t *at, uint64_t count, unsigned width)
{
    if (count == SIDE)
        for (unsigned place = 0; place < SIDE * width; place += 16)
            store(to + place, load(at + place, 16));
    else
        memcpy(to, at, count * width);
}

/* Turn the first `count` rows of so many columns, and those up to whole blocks of vectors. */
INLINE void turn_square(uint8_t *turned, const uint8_t *loaded, uint64_t count, uint64_t columns, unsigned width)
{
    const unsigned each = 16 / width;
    for (unsigned b = 0; b < columns; b += each)
        for (unsigned k = 0; k < count; k += each) {
            vector vectors[16];
#pragma GCC unroll 16
            for (unsigned number = 0; number < each; number++)
                vectors[number] = load(loaded + ((k + number) * SIDE + b) * width, 16);
            part_vectors(vectors, each, width);
#pragma GCC unroll 16
            for (unsigned number = 0; number < each; number++)
                store(turned + ((b + number) * SIDE + k) * width, vectors[number]);
        }
}

INLINE void turn_plane(const struct turning *turning, uint64_t to, uint64_t at, uint8_t *loaded, uint8_t *turned,
                       unsigned width)
{
    const struct turning own = *turning;
    const bool is_reversed = own.target[3] != width;
    for (uint64_t first = 0; first < own.extent[2]; first += SIDE) {
        const uint64_t height = own.extent[2] - first < SIDE ? own.extent[2] - first : SIDE;
        for (uint64_t begin = 0; begin < own.extent[3]; begin += SIDE) {
            const uint64_t count = own.extent[3] - begin < SIDE ? own.extent[3] - begin : SIDE;
            for (uint64_t k = 0; k < count; k++) {
                const uint64_t row = begin + (is_reversed ? count - 1 - k : k);
                copy_row(loaded + k * SIDE * width,
                         (const uint8_t *)(uintptr_t)(at + first * width + row * own.source[3]), height, width);
            }
            turn_square(turned, loaded, count, height, width);
            const uint64_t lowest = to + (is_reversed ? begin + count - 1 : begin) * own.target[3];
            for (uint64_t b = 0; b < height; b++)
                copy_row((uint8_t *)(uintptr_t)(lowest + (first + b) * own.target[2]), turned + b * SIDE * width, count,
                         width);
        }
    }
}

CLONES static void turn(const struct turning *turning, uint64_t width)
{
    /* Where a square is not whole, what was loaded before is turned with it: let that be bytes. */
    _Alignas(64) uint8_t loaded[SIDE * SIDE * 8] = {0};
    _Alignas(64) uint8_t turned[SIDE * SIDE * 8];
    for (uint64_t c = 0; c < turning->extent[0]; c++)
        for (uint64_t a = 0; a < turning->extent[1]; a++) {
            const uint64_t to = turning->to + c * turning->target[0] + a * turning->target[1];
            const uint64_t at = turning->at + c * turning->source[0] + a * turning->source[1];
            switch (width) {
            case 1: turn_plane(turning, to, at, loaded, turned, 1); break;
            case 2: turn_plane(turning, to, at, loaded, turned, 2); break;
            case 4: turn_plane(turning, to, at, loaded, turned, 4); break;
            default: turn_plane(turning, to, at, loaded, turned, 8);
            }
        }
}

EXPORT void turn_voxels(const struct turning *turning, uint64_t width)
{
    turn(turning, width);
}
