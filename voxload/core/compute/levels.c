/* Numbers as few bits each: their signs, or a few levels.

   A row of numbers becomes `bits` of its bytes for each eight numbers: with p numbers a byte, byte j has numbers j,
   j + n, j + 2 n, ... of the row, n = count / p, from its lowest bits up. So neighbours stay neighbours, and each of
   the p parts of a row is read, shifted and put in as vectors are. Each number is read once. */
#include "clones.h"
#include "core.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 1024 }; /* bytes at once: they stay in the nearest cache while all parts are put in */

/* Put one part of a row's signs in; return how many are no numbers. */
INLINE uint64_t put_signs(const float *restrict numbers, const uint8_t *restrict ties, uint64_t count, unsigned shift,
                          uint8_t *restrict packed)
{
    uint32_t nans = 0;
    for (uint64_t place = 0; place < count; place++) {
        const float number = numbers[place];
        const uint8_t is_zero = number == 0.0F, is_more = number > 0.0F;
        nans += number != number;
        packed[place] |= (uint8_t)((is_more | (is_zero & ties[place])) << shift);
    }
    return nans;
}

/* Put one part of a row's levels in; return how many are no numbers. */
INLINE uint64_t put_levels(const float *restrict numbers, uint64_t count, float limit, unsigned shift,
                           uint8_t *restrict packed)
{
    uint32_t nans = 0;
    for (uint64_t place = 0; place < count; place++) {
        const float number = numbers[place];
        const float low = number < -limit ? -limit : number;
        const float level = low > limit ? limit : low;
        nans += number != number;
        packed[place] |= (uint8_t)((unsigned)(int)(rintf(level == level ? level : 0.0F) + limit) << shift);
    }
    return nans;
}

/* Signs of rows of numbers, a bit each: 1 of what is more than zero. Of zeros every second one is 1, those whose place in
   the row is odd where `odd` is 1, else even. Returns how many are no numbers. `count` is a multiple of 16. */
EXPORT CLONES uint64_t pack_signs(const float *numbers, uint64_t rows, uint64_t count, uint64_t odd, uint8_t *packed)
{
    const uint64_t part = count / 8;
    uint8_t ties[BLOCK];
    for (uint64_t place = 0; place < BLOCK; place++)
        ties[place] = (place & 1) == odd;
    uint64_t nans = 0;
    memset(packed, 0, rows * part);
    for (uint64_t row = 0; row < rows; row++)
        for (uint64_t first = 0; first < part; first += BLOCK) {
            const uint64_t size = part - first < BLOCK ? part - first : BLOCK;
            for (unsigned bit = 0; bit < 8; bit++)
                nans += put_signs(numbers + row * count + bit * part + first, ties, size, bit,
                                  packed + row * part + first);
        }
    return nans;
}

/* Rows of numbers, each the nearest whole one of those from -limit to limit, plus limit, in `bits` of 2, 4 or 8. Returns
   how many are no numbers. `count` is a multiple of 16. */
EXPORT CLONES uint64_t pack_levels(const float *numbers, uint64_t rows, uint64_t count, uint64_t bits, uint64_t limit,
                                   uint8_t *packed)
{
    const uint64_t parts = 8 / bits, part = count / parts;
    uint64_t nans = 0;
    memset(packed, 0, rows * part);
    for (uint64_t row = 0; row < rows; row++)
        for (uint64_t first = 0; first < part; first += BLOCK) {
            const uint64_t size = part - first < BLOCK ? part - first : BLOCK;
            for (uint64_t which = 0; which < parts; which++)
                nans += put_levels(numbers + row * count + which * part + first, size, (float)limit,
                                   (unsigned)(which * bits), packed + row * part + first);
        }
    return nans;
}

/* What a sum becomes on its way back. */
struct sums {
    uint64_t groups, bits, limit, is_mean, result_bits;
};

/* Add one part of a row of every group. */
INLINE void add_fields(const uint8_t *restrict packed, uint64_t stride, const struct sums *how, unsigned shift,
                       uint64_t count, int32_t *restrict totals)
{
    const uint8_t mask = (uint8_t)((1U << how->bits) - 1);
    memset(totals, 0, count * sizeof *totals);
    for (uint64_t group = 0; group < how->groups; group++)
        for (uint64_t place = 0; place < count; place++)
            totals[place] += packed[group * stride + place] >> shift & mask;
}

/* Put what sums become into a part of a row. */
INLINE void put_sums(const int32_t *restrict totals, const struct sums *how, uint64_t count, unsigned shift,
                     uint8_t *restrict result)
{
    const int32_t groups = (int32_t)how->groups, most = (int32_t)(how->groups * how->limit);
    for (uint64_t place = 0; place < count; place++) {
        const int32_t total = how->bits == 1 ? 2 * totals[place] - groups : totals[place] - most;
        const int32_t sign = (total > 0) - (total < 0);
        const int32_t field = how->is_mean ? total + most : how->result_bits == 1 ? total > 0 : sign + 1;
        result[place] |= (uint8_t)(field << shift);
    }
}

/* Add the rows of groups, `stride` bytes apart, of `count` numbers each, and put the sums' signs, or sums that are not
   negative, into `result` in `result_bits` of 1 to 8. A sum is of fewer than 2^31. */
EXPORT CLONES void sum_levels(const uint8_t *packed, uint64_t stride, uint64_t groups, uint64_t count, uint64_t bits,
                              uint64_t limit, uint64_t is_mean, uint64_t result_bits, uint8_t *result)
{
    const struct sums how = {groups, bits, limit, is_mean, result_bits};
    const uint64_t part = count * bits / 8, result_part = count * result_bits / 8;
    int32_t totals[BLOCK];
    memset(result, 0, result_part);
    for (uint64_t first = 0, size; first < count; first += size) {
        const uint64_t place = first % part, result_place = first % result_part;
        size = part - place < BLOCK ? part - place : BLOCK;
        size = result_part - result_place < size ? result_part - result_place : size;
        add_fields(packed + place, stride, &how, (unsigned)(first / part * bits), size, totals);
        put_sums(totals, &how, size, (unsigned)(first / result_part * result_bits), result + result_place);
    }
}

/* Unpack rows of numbers, `stride` bytes apart, in `bits` of 1 to 8: (field * times - less) / over. */
EXPORT CLONES void unpack_levels(const uint8_t *packed, uint64_t stride, uint64_t rows, uint64_t count, uint64_t bits,
                                 double times, double less, double over, float *numbers)
{
    const uint64_t parts = 8 / bits, part = count / parts;
    const uint8_t mask = (uint8_t)((1U << bits) - 1);
    const float factor = (float)times, less_by = (float)less, over_by = (float)over;
    for (uint64_t row = 0; row < rows; row++)
        for (uint64_t which = 0; which < parts; which++) {
            const uint8_t *restrict from = packed + row * stride;
            float *restrict to = numbers + row * count + which * part;
            const unsigned shift = (unsigned)(which * bits);
            for (uint64_t place = 0; place < part; place++)
                to[place] = ((float)(from[place] >> shift & mask) * factor - less_by) / over_by;
        }
}
