/* Filters whose undoing is more than a decoder's call. Each fills `out` with `wanted` bytes; false where data are not as
   they should be. */
#ifndef VOXLOAD_FILTERS_H
#define VOXLOAD_FILTERS_H

#include "decoders.h"

/* Bytes that one stored byte can stand for: zstd's runs hold the most of all, a block of four bytes 2^17 of them
   (RFC 8878, section 3.1.1.2). */
enum { MOST_RATIO = 1 << 15 };

bool undo_bzip2(const uint8_t *data, size_t size, uint8_t *out, size_t wanted);
bool undo_szip(struct workspace *space, const struct step *step, const uint8_t *data, size_t size, uint8_t *out,
               size_t wanted);
bool undo_blosc2(struct workspace *space, const struct step *step, const uint8_t *data, size_t size, uint8_t *out,
                 size_t wanted);
bool undo_scale_offset(const struct step *step, const uint8_t *data, size_t size, uint8_t *out, size_t wanted);

/* The most bytes that scale-offset makes of `size`. */
size_t most_scale_offset_bytes(size_t size);

#endif
