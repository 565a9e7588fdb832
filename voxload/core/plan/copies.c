#include "copies.h"

enum { SEARCHED = 32 /* uses ahead that are searched for a group's own: replicas matter less than the time for it */ };

int64_t next_use(const struct work *work, int64_t sample, int64_t after)
{
    const struct use *const end = work->uses + work->blocks[sample].end;
    for (const struct use *use = work->uses + work->blocks[sample].use; use < end; use++)
        if (use->step > after)
            return use->step;
    return NEVER;
}

int64_t own_use(const struct work *work, int64_t sample, int64_t group, int64_t after)
{
    const int64_t begin = work->blocks[sample].use, known = work->blocks[sample].end;
    const int64_t end = known - begin < SEARCHED ? known : begin + SEARCHED;
    for (int64_t number = begin; number < end; number++) {
        const struct use use = work->uses[number];
        if (use.step > after && use.user == group)
            return use.step;
    }
    return NEVER;
}

static struct tier_room *room_of(const struct work *work, const struct copy *copy)
{
    return &work->rooms[TIERS * copy->group + copy->tier];
}

static void set_key(const struct work *work, struct copy *copy)
{
    const bool is_replica = copy->rank == 2;
    const int64_t use = is_replica ? own_use(work, copy->sample, copy->group, -1) : next_use(work, copy->sample, -1);
    copy->key = copy->rank * CLASS + use;
}

/* Put a copy into its room's heap by the key it has. */
static void push(const struct work *work, int64_t row)
{
    struct tier_room *const room = room_of(work, &work->rows[row]);
    room->top = insert_copy(work->rows, room->top, row);
}

/* Take a copy out of its room's heap. */
static void pull(const struct work *work, int64_t row)
{
    struct tier_room *const room = room_of(work, &work->rows[row]);
    room->top = remove_copy(work->rows, room->top, row);
}

void rank_copies(const struct work *work, int64_t sample)
{
    const struct block *const block = &work->blocks[sample];
    for (int64_t row = block->head; row >= 0; row = work->rows[row].next) {
        struct copy *const copy = &work->rows[row];
        const int64_t rank = block->count == 1 ? 0 : copy->primary ? 1 : 2;
        if (!rank != !copy->rank) {
            struct tier_room *const room = room_of(work, copy);
            room->spare = sum_bytes(room->spare, rank ? block->size : -block->size);
        }
        copy->rank = rank;
        if (copy->place == IN_HEAP) {
            pull(work, row);
            set_key(work, copy);
            push(work, row);
        }
    }
}

void hold_copy(const struct work *work, int64_t row, int64_t until)
{
    struct copy *const copy = &work->rows[row];
    copy->free = larger(copy->free, until);
    if (copy->place == WAITING)
        return;
    if (copy->place == IN_HEAP)
        pull(work, row);
    int64_t *const queue = &work->marks->queues[copy->free % 3];
    copy->queue = *queue;
    copy->place = WAITING;
    *queue = row;
}

void release_copies(const struct work *work, int64_t step)
{
    int64_t *const queue = &work->marks->queues[step % 3];
    int64_t row = *queue;
    *queue = -1;
    while (row >= 0) {
        struct copy *const copy = &work->rows[row];
        const int64_t rest = copy->queue;
        copy->place = NOWHERE;
        if (copy->free > step) {
            hold_copy(work, row, copy->free);
        } else {
            set_key(work, copy);
            push(work, row);
        }
        row = rest;
    }
}

/* Enter a copy whose group, sample and tier are set into its sample's list, and its bytes into its room. */
static void enter_copy(const struct work *work, int64_t row)
{
    struct copy *const copy = &work->rows[row];
    struct block *const block = &work->blocks[copy->sample];
    struct tier_room *const room = room_of(work, copy);
    copy->primary = block->count == 0;
    copy->rank = 0;
    copy->place = NOWHERE;
    copy->next = block->head;
    block->head = row;
    block->count++;
    room->left = sum_bytes(room->left, -block->size);
}

void enter_copies(const struct work *work, int64_t step)
{
    const int64_t rows = work->marks->rows;
    for (int64_t row = 0; row < rows; row++) {
        enter_copy(work, row);
        hold_copy(work, row, step);
    }
    for (int64_t row = 0; row < rows; row++)
        rank_copies(work, work->rows[row].sample);
}

int64_t add_copy(const struct work *work, int64_t group, int64_t sample, int64_t tier, int64_t step)
{
    const int64_t row = work->marks->rows++;
    struct copy *const copy = &work->rows[row];
    copy->group = group;
    copy->sample = sample;
    copy->tier = tier;
    copy->ready = copy->free = step;
    enter_copy(work, row);
    hold_copy(work, row, step + 1);
    rank_copies(work, sample);
    return row;
}

int64_t find_copy(const struct work *work, int64_t group, int64_t sample)
{
    int64_t row = work->blocks[sample].head;
    while (row >= 0 && work->rows[row].group != group)
        row = work->rows[row].next;
    return row;
}

int64_t find_other_copy(const struct work *work, int64_t sample, int64_t step)
{
    const struct copy *const rows = work->rows;
    int64_t best = -1;
    for (int64_t row = work->blocks[sample].head; row >= 0; row = rows[row].next) {
        const bool is_old = rows[row].ready < step;
        if (best < 0 || (is_old && (rows[row].primary || rows[best].ready == step)))
            best = row;
    }
    return best;
}

/* Drop a copy that is in no heap; where it was the primary, another one becomes it. */
static void forget(const struct work *work, int64_t row, int64_t step)
{
    struct copy *const rows = work->rows, *const copy = &rows[row];
    struct block *const block = &work->blocks[copy->sample];
    struct tier_room *const room = room_of(work, copy);
    work->drops[work->marks->drops++] = (struct drop){copy->group, step, copy->sample};
    room->left = sum_bytes(room->left, block->size);
    if (copy->rank)
        room->spare = sum_bytes(room->spare, -block->size);
    int64_t *link = &block->head;
    while (*link != row)
        link = &rows[*link].next;
    *link = copy->next;
    block->count--;
    copy->group = -1;
    if (copy->primary && block->count)
        rows[block->head].primary = 1;
    rank_copies(work, copy->sample);
}

bool make_room(const struct work *work, int64_t room, int64_t size, int64_t floor, int64_t step)
{
    struct copy *const rows = work->rows;
    const struct tier_room *const tier = &work->rooms[room];
    if (size > tier->bytes)
        return false;
    int64_t left = tier->left, chosen = -1;
    while (left < size) {
        const int64_t row = tier->top;
        if (row < 0 || rows[row].key <= floor)
            break;
        pull(work, row);
        rows[row].queue = chosen;
        chosen = row;
        left = sum_bytes(left, work->blocks[rows[row].sample].size);
    }
    const bool is_enough = left >= size;
    while (chosen >= 0) {
        const int64_t row = chosen, bytes = work->blocks[rows[row].sample].size;
        chosen = rows[row].queue;
        if (is_enough && sum_bytes(left, -bytes) < size) {
            forget(work, row, step);
        } else { /* of blocks of unequal sizes one that was chosen later may do alone */
            left = sum_bytes(left, -bytes);
            push(work, row);
        }
    }
    return is_enough;
}
