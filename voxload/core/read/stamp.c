#define _POSIX_C_SOURCE 200809L
#define _FILE_OFFSET_BITS 64
#include "stamp.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* A file changed less than five seconds ago may change again within one tick of its clock: two seconds on some file
   systems. This node's own, which have finer clocks, are stamped with the time of the kernel's last tick, ten
   milliseconds ago at most. What is opened here lies on this node. */
#define SECOND 1000000000ll
#define COARSE_AGE (5 * SECOND)
#define FINE_AGE (SECOND / 10)

static int64_t nanoseconds(struct timespec moment)
{
    return (int64_t)moment.tv_sec * SECOND + moment.tv_nsec;
}

int open_stamped(const char *path, struct stamp *stamp)
{
    /* Without O_NONBLOCK, opening a pipe in a chunk's place would wait for its writer; files do not care. */
    const int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0)
        return -1;
    struct stat found;
    if (fstat(descriptor, &found) || !S_ISREG(found.st_mode)) {
        close(descriptor);
        errno = EISDIR; /* a folder, a device or a pipe */
        return -1;
    }
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const int64_t written = nanoseconds(found.st_mtim), changed = nanoseconds(found.st_ctim);
    const bool is_fine = written % SECOND || changed % SECOND;
    const int64_t old = nanoseconds(now) - (is_fine ? FINE_AGE : COARSE_AGE);
    *stamp = (struct stamp){found.st_dev, found.st_ino, (uint64_t)found.st_size, written, changed,
                            0 <= written && written <= old && changed <= old};
    return descriptor;
}

static bool is_same(const struct stamp *one, const struct stamp *other)
{
    return one->device == other->device && one->inode == other->inode && one->size == other->size &&
           one->written == other->written && one->changed == other->changed;
}

int open_unchanged(const char *path, const struct stamp *stamp)
{
    struct stamp now;
    const int descriptor = open_stamped(path, &now);
    if (descriptor >= 0 && !is_same(&now, stamp)) {
        close(descriptor);
        return -1;
    }
    return descriptor;
}

static struct stamp stamp_of(const struct stat *found)
{
    return (struct stamp){found->st_dev, found->st_ino, (uint64_t)found->st_size, nanoseconds(found->st_mtim),
                          nanoseconds(found->st_ctim), 0};
}

bool is_unchanged(const char *path, const struct stamp *stamp)
{
    struct stat now;
    if (stat(path, &now))
        return errno == ENOENT;
    const struct stamp found = stamp_of(&now);
    return is_same(&found, stamp);
}

bool is_as_seen(const char *path, const struct stamp *stamp)
{
    struct stat now;
    if (stat(path, &now))
        return !stamp && (errno == ENOENT || errno == ENOTDIR);
    const struct stamp found = stamp_of(&now);
    return stamp && is_same(&found, stamp);
}
