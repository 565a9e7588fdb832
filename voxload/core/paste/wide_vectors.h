/* Vectors of 64 bytes whose elements may go anywhere, which few processors have: a whole line of the cache is loaded,
   parted and stored at once. Included as vectors.h is, whose functions it has too. */
#include "clones.h"

#include <stdint.h>
#include <string.h>

typedef uint8_t NAMED(vector) __attribute__((vector_size(64)));
typedef uint16_t NAMED(vector_of_2) __attribute__((vector_size(64)));
typedef uint32_t NAMED(vector_of_4) __attribute__((vector_size(64)));
typedef uint64_t NAMED(vector_of_8) __attribute__((vector_size(64)));

INLINE TARGET void NAMED(load_block)(NAMED(vector) *vectors, const uint8_t *at, unsigned count)
{
#pragma GCC unroll 8
    for (unsigned number = 0; number < count; number++) /* a copy of them all would keep them in memory */
        memcpy(&vectors[number], at + number * sizeof *vectors, sizeof *vectors);
}

INLINE TARGET void NAMED(store)(uint8_t *to, NAMED(vector) value)
{
    memcpy(to, &value, sizeof value);
}

/* Of the elements that follow each other through several vectors, take every `step`-th from the `first` on: those that
   are in the vector `number`, out of `next`; the others, which were found before, stay where `found` has them. */
#define TAKEN(kind, width)                                                                                             \
    {                                                                                                                  \
        enum { EACH = 64 / (width) };                                                                                  \
        kind order;                                                                                                    \
        _Pragma("GCC unroll 64") for (unsigned k = 0; k < EACH; k++)                                                   \
        {                                                                                                              \
            const unsigned place = first + k * step;                                                                   \
            const unsigned before = number == 1 ? place % EACH : k; /* nothing was taken out of the vector 0 yet */    \
            order[k] = place / EACH == number ? EACH + place % EACH : before;                                          \
        }                                                                                                              \
        return (NAMED(vector))__builtin_shuffle((kind)found, (kind)next, order);                                       \
    }

INLINE TARGET NAMED(vector) NAMED(take)(NAMED(vector) found, NAMED(vector) next, unsigned number, unsigned first,
                                        unsigned step, unsigned width)
{
    switch (width) {
    case 1: TAKEN(NAMED(vector), 1)
    case 2: TAKEN(NAMED(vector_of_2), 2)
    case 4: TAKEN(NAMED(vector_of_4), 4)
    default: TAKEN(NAMED(vector_of_8), 8)
    }
}

/* Part elements of even numbers from those of odd ones: `parts` parts, each every so-manieth vector, become twice as
   many. */
INLINE TARGET void NAMED(halve)(NAMED(vector) *vectors, unsigned count, unsigned parts, unsigned width)
{
    NAMED(vector) halved[MOST];
#pragma GCC unroll 8
    for (unsigned number = 0; number < count; number++) {
        const unsigned part = number % parts, is_odd = number / parts % 2, pair = number / (2 * parts);
        const unsigned low = part + 2 * pair * parts;
        halved[number] = NAMED(take)(vectors[low], vectors[low + parts], 1, is_odd, 2, width);
    }
#pragma GCC unroll 8
    for (unsigned number = 0; number < count; number++)
        vectors[number] = halved[number];
}

/* Part the elements of `count` vectors, numbered i through all of them: vector c becomes those of i % count == c. */
INLINE TARGET void NAMED(part_vectors)(NAMED(vector) *vectors, unsigned count, unsigned width)
{
    const unsigned parts = count % 2 ? 1 : count % 4 ? 2 : count % 8 ? 4 : 8, left = count / parts;
    if (parts > 1)
        NAMED(halve)(vectors, count, 1, width);
    if (parts > 2)
        NAMED(halve)(vectors, count, 2, width);
    if (parts > 4)
        NAMED(halve)(vectors, count, 4, width);
    NAMED(vector) taken[MOST];
#pragma GCC unroll 8
    for (unsigned channel = 0; channel < count; channel++) {
        const unsigned part = channel % parts;
        taken[channel] = vectors[part];
#pragma GCC unroll 8
        for (unsigned number = 1; number < left; number++)
            taken[channel] = NAMED(take)(taken[channel], vectors[part + number * parts], number, channel / parts, left,
                                         width);
    }
#pragma GCC unroll 8
    for (unsigned number = 0; number < count; number++)
        vectors[number] = taken[number];
}

#undef TAKEN
