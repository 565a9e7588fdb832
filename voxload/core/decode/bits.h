/* Numbers of so many bits in a row, and the blocks of a bitshuffled chunk. */
#ifndef VOXLOAD_BITS_H
#define VOXLOAD_BITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Take `count` numbers of `bits` bits each out of a stream, the highest bit first, and write number plus `add` as
   elements of `width` bytes; the largest number becomes `last` where there is one. The stream is long enough. */
void unpack_bits(const uint8_t *stream, unsigned bits, uint64_t add, const uint64_t *last, void *out, uint64_t width,
                 size_t count);

/* Fill `places` with start and length of each block behind its length in four bytes, big-endian, from `at` on. Return
   where the last one ends, or -1 beyond the data. */
int64_t walk_blocks(const uint8_t *data, uint64_t size, uint64_t at, int64_t (*places)[2], size_t count);

#endif
