/* HDF5's filter 307; source: bzip2 1.0.8, manual, section 3. Every block and the whole stream have a CRC-32. */
#include "filters.h"

#include <limits.h>

/* As bzlib.h declares it. */
struct bzip2_stream {
    const char *next_in;
    unsigned avail_in, total_in_low, total_in_high;
    char *next_out;
    unsigned avail_out, total_out_low, total_out_high;
    void *state;
    void *(*allocate)(void *, int, int);
    void (*release)(void *, void *);
    void *opaque;
};

bool undo_bzip2(const uint8_t *data, size_t size, uint8_t *out, size_t wanted)
{
    enum { STREAM_END = 4 };
    struct bzip2_stream stream = {0};
    if (size > UINT_MAX || wanted > UINT_MAX || decoders.bzip2_begin(&stream, 0, 0) != 0)
        return false;
    stream.next_in = (const char *)data;
    stream.avail_in = (unsigned)size;
    stream.next_out = (char *)out;
    stream.avail_out = (unsigned)wanted;
    /* All data and all room at once: what does not end now never does. */
    const bool is_right = decoders.bzip2(&stream) == STREAM_END && !stream.avail_in && !stream.avail_out;
    decoders.bzip2_end(&stream);
    return is_right;
}
