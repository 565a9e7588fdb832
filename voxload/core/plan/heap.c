#include "heap.h"

/* Join two heaps; return the top. */
static int64_t meld(struct copy *rows, int64_t first, int64_t second)
{
    if (first < 0)
        return second;
    if (second < 0)
        return first;
    const int64_t one = rows[first].key, other = rows[second].key;
    if (other > one || (other == one && first > second)) {
        const int64_t above = second;
        second = first;
        first = above;
    }
    struct copy *const top = &rows[first], *const below = &rows[second];
    const int64_t child = top->child;
    below->sibling = child;
    below->before = first;
    if (child >= 0)
        rows[child].before = second;
    top->child = second;
    top->sibling = -1;
    top->before = -1;
    return first;
}

/* Join the children of a row that goes: in pairs from the left, then from the right. */
static int64_t meld_children(struct copy *rows, int64_t child)
{
    int64_t pairs = -1, top = -1;
    while (child >= 0) {
        const int64_t other = rows[child].sibling;
        const int64_t rest = other >= 0 ? rows[other].sibling : -1;
        rows[child].sibling = -1;
        if (other >= 0)
            rows[other].sibling = -1;
        const int64_t pair = meld(rows, child, other);
        rows[pair].sibling = pairs;
        pairs = pair;
        child = rest;
    }
    while (pairs >= 0) {
        const int64_t rest = rows[pairs].sibling;
        rows[pairs].sibling = -1;
        top = meld(rows, top, pairs);
        pairs = rest;
    }
    if (top >= 0)
        rows[top].before = -1;
    return top;
}

int64_t insert_copy(struct copy *rows, int64_t top, int64_t row)
{
    struct copy *const copy = &rows[row];
    copy->child = copy->sibling = copy->before = -1;
    copy->place = IN_HEAP;
    return meld(rows, top, row);
}

int64_t remove_copy(struct copy *rows, int64_t top, int64_t row)
{
    rows[row].place = NOWHERE;
    const int64_t rest = meld_children(rows, rows[row].child);
    if (row == top)
        return rest;
    const int64_t before = rows[row].before, sibling = rows[row].sibling;
    if (rows[before].child == row)
        rows[before].child = sibling;
    else
        rows[before].sibling = sibling;
    if (sibling >= 0)
        rows[sibling].before = before;
    return meld(rows, top, rest);
}
