/* Filters whose undoing is more than a decoder's call. Each fills `out` with `wanted` bytes; false where data are not as
   they should be. */
#ifndef VOXLOAD_FILTERS_H
#define VOXLOAD_FILTERS_H

#include "decoders.h"

bool undo_bzip2(const uint8_t *data, size_t size, uint8_t *out, size_t wanted);
bool undo_szip(struct workspace *space, const struct step *step, const uint8_t *data, size_t size, uint8_t *out,
               size_t wanted);
bool undo_blosc2(struct workspace *space, const struct step *step, const uint8_t *data, size_t size, uint8_t *out,
                 size_t wanted);
bool undo_nbit(const struct step *step, const uint8_t *data, size_t size, uint8_t *out, size_t wanted);
bool undo_scale_offset(const struct step *step, const uint8_t *data, size_t size, uint8_t *out, size_t wanted);

/* Bytes that N-bit makes of `size`. */
size_t nbit_bytes(const struct step *step, size_t size);

/* The most bytes that scale-offset makes of `size`. */
size_t most_scale_offset_bytes(size_t size);

#endif
