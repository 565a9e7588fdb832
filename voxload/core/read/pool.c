#define _POSIX_C_SOURCE 200809L
#include "pool.h"

#include <pthread.h>
#include <stdlib.h>

enum { MOST_HELPERS = 255 };

/* Tasks are taken one by one. A job lies with its caller, who leaves only when no helper is at it. */
struct shared {
    work work;
    void *job;
    size_t next, count; /* taken; in all */
    int wanted, busy;   /* helpers that may join; that are at it */
    struct shared *after;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t has_work = PTHREAD_COND_INITIALIZER, has_left = PTHREAD_COND_INITIALIZER;
static struct shared *first;
static pthread_t helpers[MOST_HELPERS];
static int made, waiting;
static bool is_ending;
static pthread_key_t key;
static pthread_once_t has_key = PTHREAD_ONCE_INIT;

static void drop(void *space)
{
    empty(space);
    free(space);
}

static void make_key(void)
{
    pthread_key_create(&key, drop);
}

static struct workspace *own_space(void)
{
    pthread_once(&has_key, make_key);
    struct workspace *space = pthread_getspecific(key);
    if (!space && (space = calloc(1, sizeof *space)))
        pthread_setspecific(key, space);
    return space;
}

static void labour(struct shared *shared, struct workspace *space)
{
    for (;;) {
        const size_t number = __atomic_fetch_add(&shared->next, 1, __ATOMIC_RELAXED);
        if (number >= shared->count)
            return;
        shared->work(shared->job, number, space);
    }
}

static struct shared *joinable(void)
{
    for (struct shared *shared = first; shared; shared = shared->after)
        if (shared->wanted && __atomic_load_n(&shared->next, __ATOMIC_RELAXED) < shared->count)
            return shared;
    return NULL;
}

static void *help(void *nothing)
{
    (void)nothing;
    struct workspace *space = own_space();
    pthread_mutex_lock(&lock);
    while (space) {
        struct shared *shared = joinable();
        if (shared) {
            shared->wanted--;
            shared->busy++;
            pthread_mutex_unlock(&lock);
            labour(shared, space);
            pthread_mutex_lock(&lock);
            if (!--shared->busy)
                pthread_cond_broadcast(&has_left);
        } else if (is_ending) {
            break;
        } else {
            waiting++;
            pthread_cond_wait(&has_work, &lock);
            waiting--;
        }
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

void run_tasks(work work, void *job, size_t count, int threads)
{
    struct shared shared = {.work = work, .job = job, .count = count};
    struct workspace spare = {0}, *space = own_space();
    bool is_shared = false;
    if (threads > 1 && count > 1) {
        int wanted = threads - 1 < (int)count - 1 || count > MOST_HELPERS ? threads - 1 : (int)count - 1;
        if (wanted > MOST_HELPERS)
            wanted = MOST_HELPERS;
        pthread_mutex_lock(&lock);
        while (!is_ending && made < wanted && !pthread_create(&helpers[made], NULL, help, NULL))
            made++;
        shared.wanted = wanted;
        shared.after = first;
        first = &shared;
        is_shared = true;
        for (int number = 0; number < wanted; number++)
            pthread_cond_signal(&has_work);
        pthread_mutex_unlock(&lock);
    }
    labour(&shared, space ? space : &spare);
    if (is_shared) {
        pthread_mutex_lock(&lock);
        for (struct shared **place = &first; *place; place = &(*place)->after)
            if (*place == &shared) {
                *place = shared.after;
                break;
            }
        while (shared.busy)
            pthread_cond_wait(&has_left, &lock);
        pthread_mutex_unlock(&lock);
    }
    empty(&spare);
}

void end_helpers(void)
{
    pthread_mutex_lock(&lock);
    is_ending = true;
    const int count = made;
    pthread_cond_broadcast(&has_work);
    pthread_mutex_unlock(&lock);
    for (int number = 0; number < count; number++)
        pthread_join(helpers[number], NULL);
    pthread_mutex_lock(&lock);
    made = 0;
    is_ending = false;
    pthread_mutex_unlock(&lock);
}

void forget_helpers(void)
{
    pthread_mutex_init(&lock, NULL);
    pthread_cond_init(&has_work, NULL);
    pthread_cond_init(&has_left, NULL);
    first = NULL;
    made = waiting = 0;
    is_ending = false;
}
