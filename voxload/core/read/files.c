/* These judge nothing: a file that is not there, or not as long as it should be, is left out, and the careful way in
   Python finds out why. */
#define _POSIX_C_SOURCE 200809L
#define _FILE_OFFSET_BITS 64

#include "files.h"

#include "stamp.h"

#include <errno.h>
#include <unistd.h>

bool read_at(int descriptor, uint8_t *to, uint64_t size, uint64_t offset)
{
    while (size) {
        const ssize_t got = pread(descriptor, to, size, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        to += got;
        offset += (uint64_t)got;
        size -= (uint64_t)got;
    }
    return true;
}

static int open_regular(const char *name, uint64_t *size)
{
    struct stamp stamp;
    const int descriptor = open_stamped(name, &stamp);
    if (descriptor >= 0)
        *size = stamp.size;
    return descriptor;
}

void paste_files(const char *names, const struct file_job *jobs, size_t count, const struct row *rows, uint8_t *chunk,
                 uint64_t size, struct form form, uint8_t *done)
{
    for (size_t number = 0; number < count; number++) {
        const struct file_job *job = &jobs[number];
        uint64_t found;
        const int descriptor = open_regular(names + job->name, &found);
        if (descriptor < 0)
            continue;
        const bool came =
            found == size && read_at(descriptor, chunk + job->start, job->stop - job->start, job->start);
        close(descriptor);
        if (came) {
            paste(chunk, size, rows + job->begin, job->end - job->begin, form);
            done[number] = 1;
        }
    }
}

int64_t load_file(const char *name, uint8_t *buffer, uint64_t room)
{
    uint64_t size;
    const int descriptor = open_regular(name, &size);
    if (descriptor < 0)
        return -1;
    int64_t result = (int64_t)size;
    if (size <= room && !read_at(descriptor, buffer, size, 0))
        result = -1;
    close(descriptor);
    return result;
}
