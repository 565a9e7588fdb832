/* Ranges of a file that a read will want, told to the system before its threads come to them. */
#ifndef VOXLOAD_AHEAD_H
#define VOXLOAD_AHEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Tell whether reading this byte would wait for the device; no where the system does not say. */
bool is_cold(int descriptor, uint64_t offset);

/* Tell whether the page of a map that holds this address is not in memory. */
bool is_cold_page(uint64_t address);

/* Announce a range; returns its length. */
uint64_t announce(int descriptor, uint64_t offset, uint64_t length);

/* Map pages of a shared file, whose bytes are there, to be written to: by one call, not one by one at the first write. */
void map_pages(uint64_t address, uint64_t length);

enum { AHEAD_BYTES = 1 << 25 /* announced ahead of the chunk at hand: more than any device has under way */ };

#endif
