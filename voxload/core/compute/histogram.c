/* How often each value occurs among voxels of one or two bytes.

   Most voxels of counts and labels are small: four neighbours below 16 are one key of two bytes, and counted at once. */
#include "histogram.h"

#include "clones.h"
#include "core.h"

#include <string.h>

enum {
    KEY_RUN = 32, /* keys that are looked at together: most are of none that occur */
    GROUP = 4,    /* voxels that are counted at once */
    BITS = 4,     /* of each */
    SMALL = 15,
    SIDE = 1 << 2 * BITS, /* different pairs of small voxels */
    FEW = 48 << 10,       /* voxels below which none are grouped: to look through all groups takes longer */
    STRETCH = 512,        /* pairs of groups after which it is found out again whether to group */
    RARE = 8,             /* one of so many pairs may be odd; of more, wrong guesses of the processor cost too much */
};

/* List the keys of a run from `begin` on, which is counted at `at`, and zero it. */
CLONES static uint64_t list_run(lane *restrict counts, uint32_t (*restrict found)[KEYS], uint64_t different,
                                uint64_t begin, uint64_t at, uint64_t flip)
{
    uint32_t sums[KEY_RUN];
    for (uint64_t key = 0; key < KEY_RUN; key++)
        sums[key] = counts[0][at + key] + counts[1][at + key] + counts[2][at + key] + counts[3][at + key];
    for (int turn = 0; turn < LANES; turn++)
        memset(&counts[turn][at], 0, sizeof sums);
    for (uint64_t key = 0; key < KEY_RUN; key++) {
        const uint32_t count = sums[key ^ flip % KEY_RUN];
        if (!count)
            continue;
        found[0][different] = (uint32_t)(begin + key);
        found[1][different++] = count;
    }
    return different;
}

CLONES uint64_t list_keys(lane *counts, uint32_t (*found)[KEYS], uint64_t different, uint64_t first, uint64_t last,
                          uint64_t flip)
{
    for (uint64_t begin = first / KEY_RUN * KEY_RUN; begin <= last; begin += KEY_RUN) {
        const uint64_t at = (begin ^ flip) / KEY_RUN * KEY_RUN;
        uint32_t any = 0;
        for (uint64_t key = at; key < at + KEY_RUN; key++)
            any |= counts[0][key] | counts[1][key] | counts[2][key] | counts[3][key];
        if (any)
            different = list_run(counts, found, different, begin, at, flip);
    }
    return different;
}

/* Count the voxels of each group, none of which has a bit that `most` lacks, and zero the groups. */
CLONES static void part_groups(uint32_t *restrict groups, lane *restrict counts, uint64_t most)
{
    const uint64_t reach = (most | most << BITS) + 1;
    uint32_t pairs[SIDE] = {0}, others[SIDE] = {0};
    for (uint64_t row = 0; row < reach; row++) {
        uint32_t *own = groups + row * SIDE, total = 0;
        for (uint64_t column = 0; column < reach; column++)
            total += own[column];
        if (!total)
            continue;
        others[row] = total;
        for (uint64_t column = 0; column < reach; column++)
            pairs[column] += own[column];
        memset(own, 0, reach * sizeof *own);
    }
    for (uint64_t pair = 0; pair < reach; pair++) {
        counts[0][pair & SMALL] += pairs[pair] + others[pair];
        counts[1][pair >> BITS] += pairs[pair] + others[pair];
    }
}

/* Four voxels of a width, in the lowest places. */
INLINE uint64_t load_group(const uint8_t *at, uint64_t width)
{
    uint64_t wide;
    uint32_t narrow;
    if (width == 1) {
        memcpy(&narrow, at, sizeof narrow);
        return narrow;
    }
    memcpy(&wide, at, sizeof wide);
    return wide;
}

INLINE uint64_t load_value(const uint8_t *at, uint64_t width)
{
    uint16_t wide;
    if (width == 1)
        return *at;
    memcpy(&wide, at, sizeof wide);
    return wide;
}

/* The number of a group whose voxels are small. */
INLINE uint64_t group_of(uint64_t word, uint64_t width)
{
    if (width == 2)
        /* The factor brings all four into the highest two bytes; nothing else gets there, and nothing is carried. */
        return word * (1ull << 48 | 1ull << 36 | 1ull << 24 | 1ull << 12) >> 48;
    const uint64_t two = (word | word >> BITS) & 0xFF00FF;
    return (two | two >> 8) & 0xFFFF;
}

/* All bits that any of a group's voxels has. */
INLINE uint64_t bits_in(uint64_t word, uint64_t width)
{
    word |= word >> 16 * width;
    return (word | word >> 8 * width) & ((1ull << 8 * width) - 1);
}

INLINE void count_singly(lane *restrict counts, uint64_t word, uint64_t width)
{
    const uint64_t bits = 8 * width, single = (1ull << bits) - 1;
    counts[0][word & single]++;
    counts[1][word >> bits & single]++;
    counts[2][word >> 2 * bits & single]++;
    counts[3][word >> 3 * bits]++;
}

/* All bits of what is counted voxel by voxel, and of what is counted in groups. */
struct bits {
    uint64_t single, grouped;
};

/* Count pairs of groups, which are odd where any voxel is large; return how many are. */
INLINE uint64_t count_pairs(struct bits *seen, const uint8_t *at, uint64_t pairs, uint64_t width, bool is_grouped,
                            uint32_t *restrict groups, lane *restrict counts)
{
    const uint64_t large = width == 1 ? 0xF0F0F0F0 : 0xFFF0FFF0FFF0FFF0;
    uint64_t single = 0, grouped = 0, odd = 0;
    for (; pairs; pairs--, at += 2 * GROUP * width) {
        const uint64_t word = load_group(at, width), next = load_group(at + GROUP * width, width);
        const bool is_odd = (word | next) & large;
        if (is_grouped && !is_odd) {
            grouped |= word | next;
            groups[group_of(word, width)]++;
            groups[group_of(next, width)]++;
        } else {
            odd += is_odd;
            single |= word | next;
            count_singly(counts, word, width);
            count_singly(counts, next, width);
        }
    }
    seen->single |= single;
    seen->grouped |= grouped;
    return odd;
}

INLINE uint64_t count_values(const uint8_t *at, uint64_t voxels, uint64_t width, uint32_t *restrict groups,
                             lane *restrict counts, uint32_t (*restrict found)[KEYS])
{
    struct bits seen = {0, 0};
    bool is_grouped = voxels >= FEW;
    for (uint64_t left = voxels / (2 * GROUP), pairs; left; left -= pairs, at += pairs * 2 * GROUP * width) {
        pairs = left < STRETCH ? left : STRETCH;
        const uint64_t odd = is_grouped ? count_pairs(&seen, at, pairs, width, true, groups, counts)
                                        : count_pairs(&seen, at, pairs, width, false, groups, counts);
        is_grouped = voxels >= FEW && odd <= pairs / RARE;
    }
    part_groups(groups, counts, bits_in(seen.grouped, width));
    uint64_t any = bits_in(seen.single, width) | SMALL;
    for (uint64_t left = voxels % (2 * GROUP); left; left--, at += width) {
        const uint64_t value = load_value(at, width);
        any |= value;
        counts[0][value]++;
    }
    return list_keys(counts, found, 0, 0, any, 0);
}

/* List the values that occur among contiguous voxels of `width` bytes, 1 or 2, at any address, as the bits of unsigned
   integers, ascending, and how often; return how many there are. `groups`, of all pairs of pairs of small voxels, and
   `counts` are zero before and after. */
EXPORT uint64_t count_small_numbers(const uint8_t *voxels, uint64_t count, uint64_t width, uint32_t *groups,
                                    lane *counts, uint32_t (*found)[KEYS])
{
    return width == 1 ? count_values(voxels, count, 1, groups, counts, found)
                      : count_values(voxels, count, 2, groups, counts, found);
}
