/* CRC-32C, as RFC 3720 (appendix B.4) defines it. */
#ifndef VOXLOAD_CRC32C_H
#define VOXLOAD_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* The checksum of `size` bytes. */
uint32_t crc32c(const uint8_t *data, size_t size);

/* What a chunk as stored is compared with: its checksum, or, where it ends in its own, that: the checksum of any data
   that end in theirs is one and the same number, which would not tell such a chunk from another. */
uint32_t chunk_checksum(const uint8_t *data, size_t size);

#endif
