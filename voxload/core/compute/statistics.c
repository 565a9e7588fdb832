/* The statistics of a channel's numbers of four or eight bytes.

   They pass block by block through the nearest cache, as float64. Sums are of eight numbers that are eight apart, added
   up in one order, so they are the same on any machine. A product has a name before it is added to something: within
   one expression a compiler may fuse both, and round once. */
#include "clones.h"
#include "core.h"
#include "histogram.h"

#include <math.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

/* Types of numbers. */
enum number { INT32, INT64, UINT32, UINT64, FLOAT32, FLOAT64 };

enum {
    BLOCK = 2048, /* numbers at once: as float64 they take a third of the smallest near cache */
    SUMS = 8,
    PAIRS = SUMS / 2,
    UNDER = 0xFFFF, /* what turns the highest bits of a negative number into its bin's number */
    OVER = 0x8000,  /* the same for others */
};

/* What Python reads. */
struct figures {
    double nans, infinite, low, high, mean, deviations;
};

typedef double pair __attribute__((vector_size(16)));
typedef int64_t mask __attribute__((vector_size(16)));

/* The processor's own minimum is one operation, where compilers make no such thing of a comparison. */
#if defined(__SSE2__)
#define SMALLER(a, b) ((pair)_mm_min_pd(a, b))
#define LARGER(a, b) ((pair)_mm_max_pd(a, b))
#else
#define PICK(which, a, b) ((pair)(((mask)(a) & (which)) | ((mask)(b) & ~(which))))
#define SMALLER(a, b) PICK((a) < (b), a, b)
#define LARGER(a, b) PICK((a) > (b), a, b)
#endif

INLINE double number_of(uint64_t bits)
{
    double number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

/* The highest 16 bits of a number: sign, exponent, and the first of the mantissa. */
INLINE uint64_t top_of(const double *number)
{
    uint64_t bits;
    memcpy(&bits, number, sizeof bits);
    return bits >> 48;
}

/* A whole number as float64, rounded once, by operations that all processors have for vectors. Its halves become the
   lowest places of 2^84 and 2^52; what they have too much is taken off the higher one first, which is exact. */
INLINE double of_uint64(uint64_t value)
{
    const double low = number_of((value & 0xFFFFFFFF) | 0x4330000000000000);
    const double high = number_of(value >> 32 | 0x4530000000000000);
    return (high - 0x1.00000001p84) + low;
}

/* The same, with 2^63 added to the number and taken off again. */
INLINE double of_int64(int64_t value)
{
    const uint64_t bits = (uint64_t)value;
    const double low = number_of((bits & 0xFFFFFFFF) | 0x4330000000000000);
    const double high = number_of(bits >> 32 ^ 0x4530000080000000);
    return (high - 0x1.00000801p84) + low;
}

#define LOAD(type, as_double)                                                                                          \
    for (uint64_t place = 0; place < size; place++) {                                                                  \
        type value;                                                                                                    \
        memcpy(&value, numbers + place * sizeof value, sizeof value);                                                  \
        block[place] = as_double(value) + 0.0;                                                                         \
    }                                                                                                                  \
    break

/* Bring numbers into a block; minus zero becomes zero. */
CLONES static void load_block(double *restrict block, const uint8_t *restrict numbers, uint64_t size, enum number type)
{
    switch (type) {
    case INT32: LOAD(int32_t, (double));
    case INT64: LOAD(int64_t, of_int64);
    case UINT32: LOAD(uint32_t, (double));
    case UINT64: LOAD(uint64_t, of_uint64);
    case FLOAT32: LOAD(float, (double));
    default: LOAD(double, (double));
    }
}

INLINE double sum_of(const double sums[SUMS])
{
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

CLONES static double sum_block(const double *block, uint64_t size)
{
    double sums[SUMS] = {0};
    uint64_t place = 0;
    for (; place + SUMS <= size; place += SUMS)
        for (int k = 0; k < SUMS; k++)
            sums[k] += block[place + k];
    for (; place < size; place++)
        sums[0] += block[place];
    return sum_of(sums);
}

/* Count NaNs and infinities, and move the rest to the block's beginning; return how many they are. */
static uint64_t keep_finite(double *block, uint64_t size, struct figures *figures)
{
    uint64_t kept = 0;
    for (uint64_t place = 0; place < size; place++) {
        const double value = block[place];
        if (isnan(value))
            figures->nans++;
        else if (isinf(value))
            figures->infinite++;
        else
            block[kept++] = value;
    }
    return kept;
}

/* Count numbers by their highest bits, find the smallest and the largest, and add up squared deviations, for a multiple
   of SUMS numbers. Arithmetic hides behind the counting, which is as fast as the processor writes. */
CLONES static void measure_eights(const double *restrict block, uint64_t size, double middle,
                                  struct figures *restrict figures, double *restrict sums, lane *restrict counts)
{
    pair least[PAIRS], most[PAIRS], total[PAIRS];
    for (int k = 0; k < PAIRS; k++) {
        least[k] = (pair){figures->low, figures->low};
        most[k] = (pair){figures->high, figures->high};
        total[k] = (pair){0, 0};
    }
    for (uint64_t place = 0; place < size; place += SUMS) {
        for (int k = 0; k < PAIRS; k++) {
            pair value;
            memcpy(&value, &block[place + 2 * k], sizeof value);
            const pair apart = value - middle, square = apart * apart;
            least[k] = SMALLER(value, least[k]);
            most[k] = LARGER(value, most[k]);
            total[k] += square;
        }
        for (int k = 0; k < SUMS; k++)
            counts[k % LANES][top_of(&block[place + k])]++;
    }
    memcpy(sums, total, sizeof total);
    for (int k = 0; k < SUMS; k++) {
        const double low = least[k / 2][k % 2], high = most[k / 2][k % 2];
        figures->low = low < figures->low ? low : figures->low;
        figures->high = high > figures->high ? high : figures->high;
    }
}

/* Do so for any size; return the sum of the squared deviations. */
static double measure_block(const double *block, uint64_t size, double middle, struct figures *figures, lane *counts)
{
    double sums[SUMS];
    const uint64_t whole = size / SUMS * SUMS;
    measure_eights(block, whole, middle, figures, sums, counts);
    for (uint64_t place = whole; place < size; place++) {
        const double value = block[place], apart = value - middle, square = apart * apart;
        figures->low = value < figures->low ? value : figures->low;
        figures->high = value > figures->high ? value : figures->high;
        sums[0] += square;
        counts[0][top_of(&value)]++;
    }
    return sum_of(sums);
}

/* List the bins between two numbers that are not empty. */
static uint64_t list_bins(lane *counts, uint32_t (*found)[KEYS], double low, double high)
{
    const double zero = 0.0, below = -0.0;
    uint64_t different = 0;
    if (low < 0) {
        const uint64_t last = top_of(high < 0 ? &high : &below);
        different = list_keys(counts, found, different, top_of(&low) ^ UNDER, last ^ UNDER, UNDER);
    }
    if (high >= 0) {
        const uint64_t first = top_of(low > 0 ? &low : &zero);
        different = list_keys(counts, found, different, first ^ OVER, top_of(&high) ^ OVER, OVER);
    }
    return different;
}

/* Measure contiguous numbers of a type, at any address, and list the numbers of the bins that are not empty, ascending,
   and how many numbers are in each; return how many bins there are. `counts` is zero before and after. Means of blocks
   are merged as those of chunks. Source: Chan, Golub and LeVeque 1983, equation 2.1. */
EXPORT uint64_t measure_numbers(const uint8_t *numbers, uint64_t size, uint64_t type, lane *counts,
                                uint32_t (*found)[KEYS], struct figures *figures)
{
    const uint64_t width = type == INT32 || type == UINT32 || type == FLOAT32 ? 4 : 8;
    double block[BLOCK], count = 0, mean = 0, deviations = 0;
    *figures = (struct figures){.low = INFINITY, .high = -INFINITY};
    for (uint64_t begin = 0; begin < size; begin += BLOCK) {
        uint64_t held = size - begin < BLOCK ? size - begin : BLOCK;
        load_block(block, numbers + begin * width, held, (enum number)type);
        double total = sum_block(block, held);
        if (!isfinite(total)) {
            held = keep_finite(block, held, figures);
            total = sum_block(block, held);
        }
        if (!held)
            continue;
        const double middle = total / (double)held, after = count + (double)held;
        const double squares = measure_block(block, held, middle, figures, counts);
        const double apart = middle - mean, share = (double)held / after;
        const double between = apart * apart * count * share, moved = apart * share;
        deviations += squares + between;
        mean += moved;
        count = after;
    }
    figures->mean = mean;
    figures->deviations = deviations;
    return count > 0 ? list_bins(counts, found, figures->low, figures->high) : 0;
}
