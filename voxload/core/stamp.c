#define _POSIX_C_SOURCE 200809L
#define _FILE_OFFSET_BITS 64
#include "stamp.h"

#include <errno.h>
#include <sys/stat.h>

static int64_t nanoseconds(struct timespec moment)
{
    return (int64_t)moment.tv_sec * 1000000000 + moment.tv_nsec;
}

bool is_unchanged(const char *path, const struct stamp *stamp)
{
    struct stat now;
    if (stat(path, &now))
        return errno == ENOENT;
    return now.st_dev == stamp->device && now.st_ino == stamp->inode && (uint64_t)now.st_size == stamp->size &&
           nanoseconds(now.st_mtim) == stamp->written && nanoseconds(now.st_ctim) == stamp->changed;
}
