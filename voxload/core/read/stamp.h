/* A file as it was: what was learnt of it holds as long as it is the same. */
#ifndef VOXLOAD_STAMP_H
#define VOXLOAD_STAMP_H

#include <stdbool.h>
#include <stdint.h>

struct stamp {
    uint64_t device, inode, size;
    int64_t written, changed; /* nanoseconds since 1970 */
    uint64_t is_settled;      /* whether it gets another stamp if it is written to from the moment on when it got this */
};

/* Open a regular file for reading and stamp it; -1 where that cannot be, with `errno` set. */
int open_stamped(const char *path, struct stamp *stamp);

/* Open a file that still has its stamp; -1 where it has another one, or cannot be opened. */
int open_unchanged(const char *path, const struct stamp *stamp);

/* Tell whether a file still has its stamp, or was removed: its bytes then last as long as it is open. */
bool is_unchanged(const char *path, const struct stamp *stamp);

/* Tell whether a file is there and still has its stamp; of none, whether there is still none. */
bool is_as_seen(const char *path, const struct stamp *stamp);

#endif
