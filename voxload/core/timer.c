/* A kernel's timer, told by a finaliser: no interpreter runs here, which could be interrupted between two of its steps. */
#include "core.h"

#include <poll.h>
#include <sys/timerfd.h>

/* Let a timer end after so many nanoseconds, unless it runs, or ended and nobody has read that. What called is no matter. */
EXPORT void arm_timer(int64_t timer, uint64_t nanoseconds, const void *caller)
{
    (void)caller;
    struct itimerspec left;
    struct pollfd ended = {.fd = (int)timer, .events = POLLIN};
    /* In this order: one that ends in between is seen by the second look. */
    if (timerfd_gettime((int)timer, &left) || left.it_value.tv_sec || left.it_value.tv_nsec || poll(&ended, 1, 0))
        return;
    left.it_value.tv_nsec = (long)nanoseconds;
    timerfd_settime((int)timer, 0, &left, NULL);
}

/* Let a timer that runs end after so many nanoseconds instead. */
EXPORT void put_off_timer(int64_t timer, uint64_t nanoseconds)
{
    struct itimerspec left;
    if (timerfd_gettime((int)timer, &left) || (!left.it_value.tv_sec && !left.it_value.tv_nsec))
        return;
    left = (struct itimerspec){.it_value.tv_nsec = (long)nanoseconds};
    timerfd_settime((int)timer, 0, &left, NULL);
}

/* Let a timer end. */
EXPORT void end_timer(int64_t timer)
{
    const struct itimerspec now = {.it_value.tv_nsec = 1};
    timerfd_settime((int)timer, 0, &now, NULL);
}
