/* Vectors of SIZE bytes, and the one network of them that parts what alternates.

   They have lanes of 16 bytes, and all that a vector does, its lanes do by themselves: so do most processors. This file
   is included once for each size that a source wants; before, SIZE is 16 or 32, TARGET the attribute of functions, and
   NAMED(name) a name for them that is not taken. */
#include "clones.h"

#include <stdint.h>
#include <string.h>

#if SIZE == 16
typedef uint8_t NAMED(vector) __attribute__((vector_size(16)));
typedef uint16_t NAMED(vector_of_2) __attribute__((vector_size(16)));
typedef uint32_t NAMED(vector_of_4) __attribute__((vector_size(16)));
typedef uint64_t NAMED(vector_of_8) __attribute__((vector_size(16)));
#if defined(__clang__)
#define SHUFFLED(kind, a, b, ...) ((NAMED(vector))__builtin_shufflevector((kind)(a), (kind)(b), __VA_ARGS__))
#else
#define SHUFFLED(kind, a, b, ...) ((NAMED(vector))__builtin_shuffle((kind)(a), (kind)(b), (kind){__VA_ARGS__}))
#endif
#define LOW1(a, b) SHUFFLED(NAMED(vector), a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define LOW2(a, b) SHUFFLED(NAMED(vector_of_2), a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define LOW4(a, b) SHUFFLED(NAMED(vector_of_4), a, b, 0, 4, 1, 5)
#define LOW8(a, b) SHUFFLED(NAMED(vector_of_8), a, b, 0, 2)
#define HIGH1(a, b) SHUFFLED(NAMED(vector), a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#define HIGH2(a, b) SHUFFLED(NAMED(vector_of_2), a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#define HIGH4(a, b) SHUFFLED(NAMED(vector_of_4), a, b, 2, 6, 3, 7)
#define HIGH8(a, b) SHUFFLED(NAMED(vector_of_8), a, b, 1, 3)
#define EXCHANGED(a) SHUFFLED(NAMED(vector_of_8), a, a, 1, 0)
#else
#include <immintrin.h>
typedef __m256i NAMED(vector);
#define LOW1 _mm256_unpacklo_epi8
#define LOW2 _mm256_unpacklo_epi16
#define LOW4 _mm256_unpacklo_epi32
#define LOW8 _mm256_unpacklo_epi64
#define HIGH1 _mm256_unpackhi_epi8
#define HIGH2 _mm256_unpackhi_epi16
#define HIGH4 _mm256_unpackhi_epi32
#define HIGH8 _mm256_unpackhi_epi64
#define EXCHANGED(a) _mm256_shuffle_epi32(a, 0x4E)
#endif

/* Load lanes that lie `apart` bytes from each other, at any address. */
INLINE TARGET NAMED(vector) NAMED(load)(const uint8_t *at, uint64_t apart)
{
#if SIZE == 32
    if (apart != 16)
        return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)at)),
                                       _mm_loadu_si128((const __m128i *)(at + apart)), 1);
#endif
    (void)apart;
    NAMED(vector) value;
    memcpy(&value, at, sizeof value);
    return value;
}

/* Load a block of so many vectors, of lanes that are each parted by itself. */
INLINE TARGET void NAMED(load_block)(NAMED(vector) *vectors, const uint8_t *at, unsigned count)
{
#pragma GCC unroll 16
    for (unsigned number = 0; number < count; number++)
        vectors[number] = NAMED(load)(at + number * 16, count * 16);
}

/* Store lanes next to each other, at any address. */
INLINE TARGET void NAMED(store)(uint8_t *to, NAMED(vector) value)
{
    memcpy(to, &value, sizeof value);
}

/* The elements of lower halves in turn. */
INLINE TARGET NAMED(vector) NAMED(zip_low)(NAMED(vector) a, NAMED(vector) b, unsigned width)
{
    switch (width) {
    case 1: return LOW1(a, b);
    case 2: return LOW2(a, b);
    case 4: return LOW4(a, b);
    default: return LOW8(a, b);
    }
}

/* Those of upper halves. */
INLINE TARGET NAMED(vector) NAMED(zip_high)(NAMED(vector) a, NAMED(vector) b, unsigned width)
{
    switch (width) {
    case 1: return HIGH1(a, b);
    case 2: return HIGH2(a, b);
    case 4: return HIGH4(a, b);
    default: return HIGH8(a, b);
    }
}

/* Part the elements of `count` lanes, numbered i through all of them: lane c becomes those of i % count == c.

   A lane has n elements, a power of two. Zipping the first half of all elements with the second takes element i to 2 i,
   modulo one less than there are. After log2(n) turns element k count + c is at (k count + c) n, which is c n + k. */
INLINE TARGET void NAMED(part_vectors)(NAMED(vector) *vectors, unsigned count, unsigned width)
{
#pragma GCC unroll 4
    for (unsigned turn = width; turn < 16 && count > 1; turn *= 2) {
        NAMED(vector) zipped[16];
#pragma GCC unroll 16
        for (unsigned half = 0; half < count; half++) { /* its partner is as many halves further as there are vectors */
            const NAMED(vector) a = vectors[half / 2], found = vectors[(half + count) / 2];
            const NAMED(vector) b = count % 2 ? EXCHANGED(found) : found;
            zipped[half] = half % 2 ? NAMED(zip_high)(a, b, width) : NAMED(zip_low)(a, b, width);
        }
#pragma GCC unroll 16
        for (unsigned number = 0; number < count; number++)
            vectors[number] = zipped[number];
    }
}

#undef SHUFFLED
#undef LOW1
#undef LOW2
#undef LOW4
#undef LOW8
#undef HIGH1
#undef HIGH2
#undef HIGH4
#undef HIGH8
#undef EXCHANGED
