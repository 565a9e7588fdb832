/* Plans an epoch: which group keeps which block; `voxload/prefetch/policies/clairvoyant.py` says by what rules. */
#include "copies.h"
#include "core.h"

enum { WINDOW = 8 /* steps ahead in which a group's need of room is seen: a relief has to come two steps before */ };

/* A block that is read at a step. */
struct missed {
    int64_t key; /* step of its next use */
    int64_t sample;
};

/* What is planned, and the plan. */
struct epoch {
    struct work work;
    const int64_t *order; /* groups x steps x batch samples; -1 where there is none */
    const int64_t *ends;  /* for each step the earliest one at which what is kept from it on can be of use */
    int64_t groups, steps, batch, first;
    int32_t *owner;
    int8_t *tier;
    int64_t *ready;
    int8_t *keep;
    struct missed *missed; /* room for a step of all groups */
};

/* Where a group's batch of a step begins. */
static int64_t batch_at(const struct epoch *epoch, int64_t group, int64_t at)
{
    return (group * epoch->steps + at) * epoch->batch;
}

/* The key above which a block may go for one that is used next at `key`. Between the two uses another block must have
   its turn, or the swap is of use to none and costs a store. */
static int64_t floor_of(const struct epoch *epoch, int64_t key)
{
    return key < NEVER ? larger(key, epoch->ends[key - epoch->first] - 1) : key;
}

/* Whether a use is one of a sample's known ones and comes at a step. */
static bool is_at(const struct work *work, const struct block *block, int64_t use, int64_t step)
{
    return use < block->end && work->uses[use].step == step;
}

/* Bytes of a tier that are free, or cost no read of the storage. */
static int64_t cheap_bytes(const struct work *work, int64_t room)
{
    return sum_bytes(work->rooms[room].left, work->rooms[room].spare);
}

static int64_t top_key(const struct work *work, int64_t room)
{
    const int64_t top = work->rooms[room].top;
    return top >= 0 ? work->rows[top].key : -1;
}

/* Make room in a group for a block for which copies with keys above `floor` may go; return the tier or -1. */
static int64_t settle(const struct work *work, int64_t group, int64_t sample, int64_t floor, int64_t step)
{
    const int64_t size = work->blocks[sample].size, room = TIERS * group;
    for (int64_t tier = MEMORY; tier <= DISK; tier++)
        if (make_room(work, room + tier, size, 2 * CLASS - 1, step))
            return tier;
    const int64_t best = top_key(work, room + DISK) > top_key(work, room + MEMORY) ? DISK : MEMORY;
    if (make_room(work, room + best, size, floor, step))
        return best;
    return make_room(work, room + 1 - best, size, floor, step) ? 1 - best : -1;
}

/* Which of the groups that use a sample at a step reads and keeps it: one that has room at no cost, then the one that
   uses it most. */
static int64_t reader_of(const struct work *work, int64_t sample, int64_t step)
{
    const struct block *const block = &work->blocks[sample];
    if (!is_at(work, block, block->use + 1, step))
        return work->uses[block->use].user;
    int64_t best = -1, best_uses = -1;
    bool has_best_room = false;
    for (int64_t use = block->use; is_at(work, block, use, step); use++) {
        const int64_t group = work->uses[use].user, room = TIERS * group;
        const bool has_room = cheap_bytes(work, room) >= block->size || cheap_bytes(work, room + 1) >= block->size;
        int64_t count = 0;
        for (int64_t other = block->use; other < block->end; other++)
            count += work->uses[other].user == group;
        if (has_room == has_best_room ? count > best_uses : has_room) {
            best = group;
            has_best_room = has_room;
            best_uses = count;
        }
    }
    return best;
}

static bool is_behind(struct missed one, struct missed other)
{
    return one.key > other.key || (one.key == other.key && one.sample > other.sample);
}

/* Sort by key, then sample (Shell 1959). */
static void sort(struct missed *missed, int64_t count)
{
    for (int64_t gap = count; gap > 1;) {
        gap = larger(1, 5 * gap / 11);
        for (int64_t begin = gap; begin < count; begin++) {
            const struct missed moved = missed[begin];
            int64_t place = begin;
            for (; place >= gap && is_behind(missed[place - gap], moved); place -= gap)
                missed[place] = missed[place - gap];
            missed[place] = moved;
        }
    }
}

/* List what is nowhere and used at a step, once each; return how many that are. */
static int64_t list_missed(const struct epoch *epoch, int64_t at)
{
    const struct work *const work = &epoch->work;
    const int64_t step = epoch->first + at;
    int64_t count = 0;
    for (int64_t group = 0; group < epoch->groups; group++) {
        const int64_t *const samples = epoch->order + batch_at(epoch, group, at);
        for (int64_t place = 0; place < epoch->batch; place++) {
            const int64_t sample = samples[place];
            if (sample < 0)
                continue;
            struct block *const block = &work->blocks[sample];
            if (block->head >= 0 || block->seen == step)
                continue;
            block->seen = step;
            const int64_t key = is_at(work, block, block->use + 1, step) ? step : next_use(work, sample, step);
            epoch->missed[count++] = (struct missed){key, sample};
        }
    }
    return count;
}

/* Store what is read at a step, what is used again soonest first. */
static void read_step(const struct epoch *epoch, int64_t at)
{
    const struct work *const work = &epoch->work;
    const int64_t step = epoch->first + at, count = list_missed(epoch, at);
    sort(epoch->missed, count);
    for (int64_t number = 0; number < count; number++) {
        const int64_t sample = epoch->missed[number].sample, floor = floor_of(epoch, epoch->missed[number].key);
        const struct block *const block = &work->blocks[sample];
        int64_t reader = reader_of(work, sample, step), tier = settle(work, reader, sample, floor, step);
        for (int64_t use = block->use; tier < 0 && is_at(work, block, use, step); use++) {
            reader = work->uses[use].user;
            tier = settle(work, reader, sample, floor, step);
        }
        if (tier < 0)
            continue;
        add_copy(work, reader, sample, tier, step);
        int64_t place = batch_at(epoch, reader, at);
        while (epoch->order[place] != sample)
            place++;
        epoch->keep[place] = (int8_t)tier;
    }
}

/* The next use of what a group loses soon for lack of room; -1 where it loses nothing. */
static int64_t loss_of(const struct epoch *epoch, int64_t group, int64_t at)
{
    const struct work *const work = &epoch->work;
    const int64_t room = TIERS * group, left = sum_bytes(cheap_bytes(work, room), cheap_bytes(work, room + 1));
    const int64_t end = epoch->steps - at > WINDOW ? at + 1 + WINDOW : epoch->steps;
    int64_t need = 0;
    for (int64_t ahead = at + 1; ahead < end; ahead++) {
        const int64_t step = epoch->first + ahead, *const samples = epoch->order + batch_at(epoch, group, ahead);
        for (int64_t place = 0; place < epoch->batch; place++) {
            const int64_t sample = samples[place];
            if (sample < 0 || work->blocks[sample].head >= 0)
                continue;
            const struct use use = work->uses[work->blocks[sample].use];
            if (use.step != step || use.user != group)
                continue;
            const int64_t key = next_use(work, sample, step);
            if (key == NEVER)
                continue;
            need = sum_bytes(need, work->blocks[sample].size);
            if (need > left)
                return larger(floor_of(epoch, key), larger(top_key(work, room), top_key(work, room + 1)));
        }
    }
    return -1;
}

/* Let a group that fetches a block from another one keep it too, or take it over; return the tier, or -1. */
static int64_t adopt(const struct epoch *epoch, int64_t group, int64_t owner, int64_t at)
{
    const struct work *const work = &epoch->work;
    struct copy *const rows = work->rows;
    const int64_t sample = rows[owner].sample, step = epoch->first + at;
    const int64_t own = own_use(work, sample, group, step);
    if (own < NEVER && make_room(work, TIERS * group + MEMORY, work->blocks[sample].size, 2 * CLASS + own, step)) {
        add_copy(work, group, sample, MEMORY, step);
        return MEMORY;
    }
    const int64_t key = next_use(work, sample, step);
    if (key == NEVER)
        return -1;
    const int64_t loss = loss_of(epoch, rows[owner].group, at);
    if (loss < 0)
        return -1;
    const int64_t tier = settle(work, group, sample, larger(floor_of(epoch, key), loss), step);
    if (tier >= 0) {
        const int64_t row = add_copy(work, group, sample, tier, step);
        rows[owner].primary = 0;
        rows[row].primary = 1;
        rank_copies(work, sample);
    }
    return tier;
}

/* Say where each access of a step finds its block, where it is not the storage. */
static void serve_step(const struct epoch *epoch, int64_t at)
{
    const struct work *const work = &epoch->work;
    const int64_t step = epoch->first + at;
    for (int64_t group = 0; group < epoch->groups; group++) {
        const int64_t begin = batch_at(epoch, group, at);
        for (int64_t place = begin; place < begin + epoch->batch; place++) {
            const int64_t sample = epoch->order[place];
            if (sample < 0 || work->blocks[sample].head < 0 || epoch->keep[place] >= 0)
                continue;
            int64_t row = find_copy(work, group, sample);
            if (row >= 0) {
                hold_copy(work, row, step + 1);
            } else {
                row = find_other_copy(work, sample, step);
                hold_copy(work, row, step + 2);
                epoch->keep[place] = (int8_t)adopt(epoch, group, row, at);
            }
            epoch->owner[place] = (int32_t)work->rows[row].group;
            epoch->tier[place] = (int8_t)work->rows[row].tier;
            epoch->ready[place] = work->rows[row].ready;
        }
    }
}

/* Pass by the uses of a step. */
static void pass_step(const struct epoch *epoch, int64_t at)
{
    const struct work *const work = &epoch->work;
    const int64_t step = epoch->first + at;
    for (int64_t group = 0; group < epoch->groups; group++) {
        const int64_t *const samples = epoch->order + batch_at(epoch, group, at);
        for (int64_t place = 0; place < epoch->batch; place++) {
            if (samples[place] < 0)
                continue;
            struct block *const block = &work->blocks[samples[place]];
            int64_t use = block->use;
            while (use < block->end && work->uses[use].step <= step)
                use++;
            if (use != block->use) {
                block->use = use;
                rank_copies(work, samples[place]);
            }
        }
    }
}

/* Plan one epoch, step by step. */
EXPORT void place_epoch(const struct work *work, const int64_t *order, const int64_t *ends, int64_t groups,
                        int64_t steps, int64_t batch, int64_t first, int32_t *owner, int8_t *tier, int64_t *ready,
                        int8_t *keep, struct missed *missed)
{
    const struct epoch epoch = {*work, order, ends, groups, steps, batch, first, owner, tier, ready, keep, missed};
    enter_copies(work, first);
    for (int64_t at = 0; at < steps; at++) {
        release_copies(&epoch.work, first + at);
        read_step(&epoch, at);
        serve_step(&epoch, at);
        pass_step(&epoch, at);
    }
}
