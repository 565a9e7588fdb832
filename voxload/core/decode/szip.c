/* The extended Rice coder of CCSDS 121.0-B, as HDF5's filter 4 stores it. Sources: HDF5 2.0, H5Zszip.c: four bytes of
   decoded size, little-endian, then the stream; libaec 1.1, sz_compat.c: scan lines are padded to whole blocks, and
   elements of four and eight bytes are coded as planes of their bytes.

   libaec's own undoing of the padding says that all was decoded whatever the stream held. So it is told of whole blocks
   and single bytes only, for which it counts truly, and padding and planes are undone here. */
#include "filters.h"

#include <limits.h>
#include <string.h>

/* As libaec's szlib.h declares it. */
struct szip_parameters {
    int options, bits, block, line;
};

bool undo_szip(struct workspace *space, const struct step *step, const uint8_t *data, size_t size, uint8_t *out,
               size_t wanted)
{
    const size_t itemsize = step->width, block = step->block, line = step->inner;
    const size_t width = itemsize <= 2 ? itemsize : 1, padded = (line + block - 1) / block * block;
    const size_t bare = line * width, lines = (wanted + bare - 1) / bare, coded = lines * padded * width;
    if (size < 4 || wanted % itemsize || wanted > INT_MAX || coded > INT_MAX)
        return false;
    if (((uint32_t)data[3] << 24 | (uint32_t)data[2] << 16 | (uint32_t)data[1] << 8 | data[0]) != wanted)
        return false;
    const bool is_direct = width == itemsize && coded == wanted;
    uint8_t *lies = is_direct ? out : room(space, PLANES, coded);
    if (!lies)
        return false;
    struct szip_parameters parameters = {(int)step->options, (int)(8 * width), (int)block, (int)padded};
    size_t got = coded;
    if (decoders.szip(lies, &got, data + 4, size - 4, &parameters) != 0 || got != coded)
        return false;
    if (is_direct)
        return true;
    uint8_t *joined = width == itemsize ? out : lies;
    for (size_t number = 0; number < lines; number++) {
        const size_t rest = wanted - number * bare;
        memmove(joined + number * bare, lies + number * padded * width, rest < bare ? rest : bare);
    }
    if (width != itemsize) {
        const size_t count = wanted / itemsize;
        for (size_t place = 0; place < itemsize; place++)
            for (size_t index = 0; index < count; index++)
                out[index * itemsize + place] = joined[place * count + index];
    }
    return true;
}
