/* Threads that work on jobs together with who waits for them; none of them ever holds the interpreter. */
#ifndef VOXLOAD_POOL_H
#define VOXLOAD_POOL_H

#include "decode/decoders.h"

/* Do task `number` of a job in a thread that has this memory. */
typedef void (*work)(void *job, size_t number, struct workspace *space);

/* Do `count` tasks with up to `threads` threads, the calling one included; returns when all are done. */
void run_tasks(work work, void *job, size_t count, int threads);

/* End the helpers, before a fork or an exit; those that are needed later are made anew. */
void end_helpers(void);

/* Forget the helpers, in a forked child, which has none. */
void forget_helpers(void);

#endif
