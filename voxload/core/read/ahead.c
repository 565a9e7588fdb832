/* A thread that reads a chunk from a device waits for it; ranges that were announced come meanwhile into the page cache.
   Where the pages are there already nothing is announced: each announcement would look all of them up. */
#define _GNU_SOURCE
#define _FILE_OFFSET_BITS 64
#include "ahead.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#if defined(__linux__) && !defined(MADV_POPULATE_WRITE)
#define MADV_POPULATE_WRITE 23 /* of kernels younger than some C libraries; madvise(2) */
#endif

/* Linux cuts an announcement off at the longest request of the device, which is rarely less, and does not say so. */
enum { PIECE_BYTES = 1 << 18 };

bool is_cold(int descriptor, uint64_t offset)
{
#if defined(RWF_NOWAIT)
    char byte;
    const struct iovec to = {&byte, 1};
    return preadv2(descriptor, &to, 1, (off_t)offset, RWF_NOWAIT) < 0 && errno == EAGAIN;
#else
    (void)descriptor, (void)offset;
    return false;
#endif
}

bool is_cold_page(uint64_t address)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    unsigned char state;
    return mincore((void *)(uintptr_t)(address - address % page), 1, &state) == 0 && !(state & 1);
}

uint64_t announce(int descriptor, uint64_t offset, uint64_t length)
{
    for (uint64_t done = 0; done < length; done += PIECE_BYTES) {
        const uint64_t left = length - done;
        posix_fadvise(descriptor, (off_t)(offset + done), (off_t)(left < PIECE_BYTES ? left : PIECE_BYTES),
                      POSIX_FADV_WILLNEED);
    }
    return length;
}

void map_pages(uint64_t address, uint64_t length)
{
#if defined(MADV_POPULATE_WRITE)
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), before = address % page;
    /* Linux before 5.14 refuses, and maps them at the first write. */
    (void)madvise((void *)(uintptr_t)(address - before), length + before, MADV_POPULATE_WRITE);
#else
    (void)address, (void)length;
#endif
}
