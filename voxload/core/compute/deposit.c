/* Particles added to planes of a periodic grid, one after the other, so that every sum has one order.

   A particle is a B-spline as wide as `order` cells; with the order known the loops come apart. Blocks of particles
   go through two steps: numbers, of several particles at once, and sums, of one after the other. The order of every
   operation is part of the result: a sum has the same bits on every machine, however the grid is cut into planes. */
#include "core.h"

#include "clones.h"

#include <math.h>
#include <string.h>

#define OUTSIDE 0.01 /* as in Python: how far outside the box a particle may lie, in boxes */
#define WHOLE 0x1.8p52 /* what is added to it is rounded to an integer, which its lowest bits show */

enum {
    MOST = 4,  /* cells an axis */
    BLOCK = 64 /* particles: 10 KiB, which stay in the nearest cache */
};

struct mesh {
    int64_t extents[3];
    int64_t lowest, planes; /* the planes that there are */
    double scale[3];        /* cells per unit of length */
    double offset;          /* place of the first grid point in cells */
};

/* What is known of a block's particles, by axis. */
struct block {
    double masses[BLOCK];
    double places[3][BLOCK]; /* in cells */
    int64_t first[3][BLOCK]; /* the first cell of each, in the grid */
    double weights[3][MOST][BLOCK];
};

/* Tell whether a particle may lie here: all bits or none; none for what is no number. */
INLINE int64_t is_inside(double place, double extent)
{
    return -(int64_t)(place >= -OUTSIDE * extent) & -(int64_t)(place <= (1.0 + OUTSIDE) * extent);
}

INLINE int64_t is_mass(double mass)
{
    return -(int64_t)(mass >= 0.0) & -(int64_t)(mass < INFINITY);
}

/* Bring particles into cells; return how many there are before the first one that is nowhere. */
INLINE uint64_t bring(struct block *restrict to, const double *restrict positions, const double *restrict masses,
                      uint64_t step, uint64_t count, const struct mesh *mesh)
{
    const double x = mesh->scale[0], y = mesh->scale[1], z = mesh->scale[2];
    const double rows = (double)mesh->extents[0], columns = (double)mesh->extents[1], cells = (double)mesh->extents[2];
    int64_t are_good = -1, is_good[BLOCK];
    for (uint64_t k = 0; k < count; k++) {
        to->places[0][k] = positions[3 * k] * x;
        to->places[1][k] = positions[3 * k + 1] * y;
        to->places[2][k] = positions[3 * k + 2] * z;
    }
    for (uint64_t k = 0; k < count; k++)
        to->masses[k] = masses[k * step];
    for (uint64_t k = 0; k < count; k++) {
        is_good[k] = is_inside(to->places[0][k], rows) & is_inside(to->places[1][k], columns) &
                     is_inside(to->places[2][k], cells) & is_mass(to->masses[k]);
        are_good &= is_good[k];
    }
    uint64_t good = are_good ? count : 0;
    while (good < count && is_good[good])
        good++;
    return good;
}

/* Return the first cell of a particle `place` cells from the first grid point, and write how far it is from there.
   There is no branch: half of them would be guessed wrongly, and loops around it are vectorised. */
INLINE int64_t first_of(double place, int order, int64_t extent, double *from_there)
{
    const double value = place + 1.0 - 0.5 * order, lifted = value + WHOLE, whole = WHOLE;
    int64_t bits, base;
    double lower;
    memcpy(&bits, &lifted, sizeof bits);
    memcpy(&base, &whole, sizeof base);
    bits -= lifted - WHOLE > value; /* it was rounded to the nearest */
    memcpy(&lower, &bits, sizeof lower);
    *from_there = place - (lower - WHOLE);
    int64_t first = bits - base;
    for (int turn = 0; turn < 3; turn++) /* -3, of a grid of one cell, is the furthest */
        first += extent & -(int64_t)(first < 0);
    return first - (extent & -(int64_t)(first >= extent));
}

INLINE void weigh(struct block *of, uint64_t count, int axis, int order, const struct mesh *mesh)
{
    const int64_t extent = mesh->extents[axis];
    const double offset = mesh->offset, *restrict places = of->places[axis];
    double(*restrict weights)[BLOCK] = of->weights[axis];
    int64_t *restrict cells = of->first[axis];
    for (uint64_t k = 0; k < count; k++) {
        double f;
        cells[k] = first_of(places[k] - offset, order, extent, &f);
        if (order == 1) {
            weights[0][k] = 1.0;
        } else if (order == 2) {
            weights[0][k] = 1.0 - f;
            weights[1][k] = f;
        } else if (order == 3) {
            f -= 1.0;
            const double before = 0.5 - f, behind = 0.5 + f;
            weights[0][k] = 0.5 * (before * before);
            weights[1][k] = 0.75 - f * f;
            weights[2][k] = 0.5 * (behind * behind);
        } else {
            f -= 1.0;
            const double g = 1.0 - f;
            weights[0][k] = g * g * g / 6.0;
            weights[1][k] = (4.0 - 6.0 * f * f + 3.0 * f * f * f) / 6.0;
            weights[2][k] = (4.0 - 6.0 * g * g + 3.0 * g * g * g) / 6.0;
            weights[3][k] = f * f * f / 6.0;
        }
    }
}

/* Keep the particles that may touch planes that there are, in their order; return their number. */
INLINE uint64_t keep_near(struct block *of, uint64_t count, int order, const struct mesh *mesh)
{
    const int64_t rows = mesh->extents[0], lowest = mesh->lowest, planes = mesh->planes;
    const double offset = mesh->offset;
    int64_t is_near[BLOCK];
    uint64_t kept = 0;
    for (uint64_t k = 0; k < count; k++) {
        double unused;
        int64_t row = first_of(of->places[0][k] - offset, order, rows, &unused) - lowest;
        row += rows & -(int64_t)(row < 0);
        is_near[k] = -(int64_t)(row < planes) | -(int64_t)(row > rows - order); /* it wraps around to the first */
    }
    for (uint64_t k = 0; k < count; k++) {
        for (int axis = 0; axis < 3; axis++)
            of->places[axis][kept] = of->places[axis][k];
        of->masses[kept] = of->masses[k];
        kept += (uint64_t)-is_near[k];
    }
    return kept;
}

INLINE int64_t next(int64_t cell, int64_t extent)
{
    return cell + 1 < extent ? cell + 1 : 0;
}

/* Ask for the cells of a particle, which lie anywhere in memory. */
INLINE void ask(const double *sums, const struct block *of, uint64_t k, int order, const struct mesh *mesh)
{
    const int64_t rows = mesh->extents[0], columns = mesh->extents[1], cells = mesh->extents[2];
    int64_t row = of->first[0][k];
    for (int a = 0; a < order; a++, row = next(row, rows)) {
        const int64_t plane = row - mesh->lowest;
        if (plane < 0 || plane >= mesh->planes)
            continue;
        int64_t column = of->first[1][k];
        for (int b = 0; b < order; b++, column = next(column, columns))
            __builtin_prefetch(&sums[(plane * columns + column) * cells + of->first[2][k]], 1);
    }
}

INLINE void add(double *sums, const struct block *of, uint64_t k, int order, const struct mesh *mesh)
{
    const int64_t rows = mesh->extents[0], columns = mesh->extents[1], cells = mesh->extents[2];
    int64_t row = of->first[0][k], behind[MOST] = {of->first[2][k]};
    for (int c = 1; c < order; c++)
        behind[c] = next(behind[c - 1], cells);
    for (int a = 0; a < order; a++, row = next(row, rows)) {
        const int64_t plane = row - mesh->lowest;
        if (plane < 0 || plane >= mesh->planes)
            continue;
        int64_t column = of->first[1][k];
        for (int b = 0; b < order; b++, column = next(column, columns)) {
            double *line = &sums[(plane * columns + column) * cells];
            const double share = of->masses[k] * of->weights[0][a][k] * of->weights[1][b][k];
            for (int c = 0; c < order; c++)
                line[behind[c]] += share * of->weights[2][c][k];
        }
    }
}

INLINE int64_t deposit(double *sums, const double *positions, uint64_t count, const double *masses, uint64_t step,
                       const struct mesh *mesh, int order)
{
    const uint64_t ahead = order == 1 ? 16 : order == 2 ? 8 : order == 3 ? 4 : 2; /* of 16 to 36 lines of memory */
    for (uint64_t begin = 0; begin < count; begin += BLOCK) {
        struct block block;
        const uint64_t size = count - begin < BLOCK ? count - begin : BLOCK;
        const uint64_t good = bring(&block, positions + 3 * begin, masses + begin * step, step, size, mesh);
        const uint64_t near = mesh->planes < mesh->extents[0] ? keep_near(&block, good, order, mesh) : good;
        for (int axis = 0; axis < 3; axis++)
            weigh(&block, near, axis, order, mesh);
        for (uint64_t k = 0; k < ahead && k < near; k++)
            ask(sums, &block, k, order, mesh);
        for (uint64_t k = 0; k < near; k++) {
            if (k + ahead < near)
                ask(sums, &block, k + ahead, order, mesh);
            add(sums, &block, k, order, mesh);
        }
        if (good < size)
            return (int64_t)(begin + good);
    }
    return -1;
}

/* Add `count` particles to some planes; return -1, or the number of the first one that is nowhere: those before it are
   added. `masses` is one for all unless `has_masses`; `grid` are extents (3), first plane and number of planes;
   `scale` are cells per unit of length (3) and the place of the first grid point in cells; `order` is 1 to 4. */
EXPORT CLONES int64_t deposit_particles(double *sums, const double *positions, uint64_t count, const double *masses,
                                        bool has_masses, const int64_t *grid, const double *scale, uint64_t order)
{
    const struct mesh mesh = {
        {grid[0], grid[1], grid[2]}, grid[3], grid[4], {scale[0], scale[1], scale[2]}, scale[3]};
    switch (order) {
    case 1: return deposit(sums, positions, count, masses, has_masses, &mesh, 1);
    case 2: return deposit(sums, positions, count, masses, has_masses, &mesh, 2);
    case 3: return deposit(sums, positions, count, masses, has_masses, &mesh, 3);
    default: return deposit(sums, positions, count, masses, has_masses, &mesh, 4);
    }
}
