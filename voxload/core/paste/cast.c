/* Voxels pasted as another type, in the same pass.

   A piece of a row is brought into order in a small buffer, which stays in the nearest cache, and cast from there.
   Rounding is to the nearest, ties to even, as numpy's and torch's casts do; values out of range become infinite. */
#include "paste.h"

#include "clones.h"

#include <math.h>
#include <string.h>

enum { PIECE = 512 /* elements of the buffer */ };

INLINE uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

INLINE float value_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The bits of a float32 as IEEE 754 binary16. All cases are computed and one is taken: the loop needs no branches. */
INLINE uint16_t half_of(float value)
{
    const uint32_t bits = bits_of(value), sign = bits >> 16 & 0x8000, size = bits & 0x7FFFFFFF;
    const uint32_t normal = (size - 0x38000000 + 0xFFF + (size >> 13 & 1)) >> 13; /* exponents' biases: 127 and 15 */
    /* 0.5 added to a number below 2^-14 leaves the bits of the subnormal half in the lowest places. */
    const uint32_t small = bits_of(value_of(size) + 0.5f) - 0x3F000000;
    /* A number that is none stays none: its highest bit is set, whatever else is lost. */
    const uint32_t none = 0x7E00 | (size >> 13 & 0x3FF);
    const uint32_t beyond = size <= 0x7F800000 ? 0x7C00 : none;
    const uint32_t found = size < 0x38800000 ? small : normal;
    return (uint16_t)(sign | (size >= 0x47800000 ? beyond : found)); /* from 2^16 on; what is below rounds by itself */
}

INLINE float of_half(uint16_t bits)
{
    const uint32_t sign = (uint32_t)(bits & 0x8000) << 16, size = (uint32_t)(bits & 0x7FFF) << 13;
    const uint32_t normal = size + 0x38000000, none = size + 0x70000000;
    const uint32_t small = bits_of(value_of(size + 0x38800000) - value_of(0x38800000));
    return value_of(sign | ((bits & 0x7C00) == 0x7C00 ? none : (bits & 0x7C00) == 0 ? small : normal));
}

INLINE uint16_t bfloat_of(float value)
{
    const uint32_t bits = bits_of(value);
    const uint32_t none = bits >> 16 | 0x40, found = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
    return (uint16_t)((bits & 0x7FFFFFFF) > 0x7F800000 ? none : found);
}

/* A float64 as a float32 rounded to odd, which rounds on to fewer bits as the number itself would.
   Source: Boldo and Melquiond, Emulation of FMA and correctly rounded sums, IEEE TC 57(4), 2008. */
INLINE float odd_of(double value)
{
    const float near = (float)value;
    const bool is_exact = (double)near == value || !(fabs(value) < 3e38);
    const uint32_t bits = bits_of(near), toward = bits - (fabs((double)near) > fabs(value));
    return is_exact ? near : value_of(toward | 1);
}

#define STORE(name, type, as_float, as_half)                                                                           \
    INLINE void store_##name(uint8_t *to, uint64_t step, const void *piece, uint64_t count, enum cast cast)            \
    {                                                                                                                  \
        const type *row = piece;                                                                                       \
        if (cast == TO_FLOAT32) {                                                                                      \
            if (step == 4)                                                                                             \
                for (uint64_t d = 0; d < count; d++)                                                                   \
                    ((float *)(void *)to)[d] = as_float(row[d]);                                                       \
            else                                                                                                       \
                for (uint64_t d = 0; d < count; d++)                                                                   \
                    *(float *)(void *)(to + d * step) = as_float(row[d]);                                              \
        } else if (cast == TO_BFLOAT16) {                                                                              \
            if (step == 2)                                                                                             \
                for (uint64_t d = 0; d < count; d++)                                                                   \
                    ((uint16_t *)(void *)to)[d] = bfloat_of(as_float(row[d]));                                         \
            else                                                                                                       \
                for (uint64_t d = 0; d < count; d++)                                                                   \
                    *(uint16_t *)(void *)(to + d * step) = bfloat_of(as_float(row[d]));                                \
        } else if (step == 2) {                                                                                        \
            for (uint64_t d = 0; d < count; d++)                                                                       \
                ((uint16_t *)(void *)to)[d] = as_half(row[d]);                                                         \
        } else {                                                                                                       \
            for (uint64_t d = 0; d < count; d++)                                                                       \
                *(uint16_t *)(void *)(to + d * step) = as_half(row[d]);                                                \
        }                                                                                                              \
    }
#define FLOAT_OF(value) ((float)(value))
#define HALF_OF(value) half_of(odd_of((double)(value)))
#define HALF_OF_FLOAT(value) half_of(value)
#define SAME(value) (value)
STORE(int8, int8_t, FLOAT_OF, HALF_OF)
STORE(int16, int16_t, FLOAT_OF, HALF_OF)
STORE(int32, int32_t, FLOAT_OF, HALF_OF)
STORE(int64, int64_t, FLOAT_OF, HALF_OF)
STORE(uint8, uint8_t, FLOAT_OF, HALF_OF)
STORE(uint16, uint16_t, FLOAT_OF, HALF_OF)
STORE(uint32, uint32_t, FLOAT_OF, HALF_OF)
STORE(uint64, uint64_t, FLOAT_OF, HALF_OF)
STORE(float16, uint16_t, of_half, SAME)
STORE(float32, float, SAME, HALF_OF_FLOAT)
STORE(float64, double, FLOAT_OF, HALF_OF)

CLONES static void store(uint8_t *to, uint64_t step, const void *piece, uint64_t count, enum stored_type stored, enum cast cast)
{
    switch (stored) {
    case INT8: store_int8(to, step, piece, count, cast); break;
    case INT16: store_int16(to, step, piece, count, cast); break;
    case INT32: store_int32(to, step, piece, count, cast); break;
    case INT64: store_int64(to, step, piece, count, cast); break;
    case UINT8: store_uint8(to, step, piece, count, cast); break;
    case UINT16: store_uint16(to, step, piece, count, cast); break;
    case UINT32: store_uint32(to, step, piece, count, cast); break;
    case UINT64: store_uint64(to, step, piece, count, cast); break;
    case FLOAT16: store_float16(to, step, piece, count, cast); break;
    case FLOAT32: store_float32(to, step, piece, count, cast); break;
    default: store_float64(to, step, piece, count, cast);
    }
}

static void cast_part(const uint8_t *chunk, uint64_t size, const struct row *row, struct form form, enum stored_type stored,
                      enum cast cast)
{
    _Alignas(LINE) uint64_t buffer[PIECE];
    const uint64_t count = row->extent[AXES - 1], stride = row->source[AXES - 1], step = row->target[AXES - 1];
    struct row piece = *row;
    uint64_t place[AXES] = {0};
    for (int axis = 0; axis < AXES - 1; axis++)
        piece.extent[axis] = 1;
    piece.to = (uint64_t)(uintptr_t)buffer;
    piece.target[AXES - 1] = form.width;
    piece.manner = stride == form.width ? BY_RUN : BY_ELEMENT;
    for (int axis = 0; axis >= 0;) {
        uint64_t at = row->first, to = row->to;
        for (int turn = 0; turn < AXES - 1; turn++) {
            at += place[turn] * row->source[turn];
            to += place[turn] * row->target[turn];
        }
        for (uint64_t done = 0; done < count; done += PIECE) {
            piece.extent[AXES - 1] = count - done < PIECE ? count - done : PIECE;
            piece.first = at + done * stride;
            paste_one(chunk, size, &piece, form);
            store((uint8_t *)(uintptr_t)(to + done * step), step, buffer, piece.extent[AXES - 1], stored, cast);
        }
        for (axis = AXES - 2; axis >= 0 && place[axis] + 1 == row->extent[axis]; axis--)
            place[axis] = 0;
        if (axis >= 0)
            place[axis]++;
    }
}

void paste_cast(const uint8_t *chunk, uint64_t size, const struct row *rows, size_t count, struct form form,
                bool is_mapped, enum stored_type stored, enum cast cast)
{
    for (size_t number = 0; number < count; number++) {
        struct row row = rows[number];
        if (is_mapped) {
            chunk = (const uint8_t *)(uintptr_t)row.first;
            row.first = 0;
        }
        cast_part(chunk, size, &row, form, stored, cast);
    }
}
