/* Work that keeps a core busy until a moment. */
#define _POSIX_C_SOURCE 200809L
#include "core.h"

#include <time.h>

enum { BETWEEN = 16 /* multiplications between looks at the clock: as long as a look, so that half is computing */ };

#define MIX UINT64_C(6364136223846793005)

/* The clock of time.perf_counter on Linux, in nanoseconds. */
static int64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* Multiply until the clock shows `stop` nanoseconds; return the product, which is what the work was for. */
EXPORT uint64_t spin_until_moment(int64_t stop)
{
    uint64_t value = 1;
    while (now() < stop)
        for (int turn = 0; turn < BETWEEN; turn++) {
            value = value * MIX + 1;
#if defined(__GNUC__)
            __asm__ volatile("" : "+r"(value)); /* else a compiler may make one step of all, and time an empty loop */
#endif
        }
    return value;
}
