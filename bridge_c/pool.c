/* pool.c - the threads of the numpy API: they help callers with the chunks of their loops.
 *
 * A caller works on its own loop, and waits only for chunks that a helper has begun: on a busy machine it does the work
 * alone.  A helper begins where callers and helpers are fewer threads than a call may use, and leaves after its chunk
 * where callers that came later make them more.  One that has nothing to do looks for work for some microseconds,
 * because handing over to it then costs one and not fifty, and sleeps.
 *
 * Waking a helper takes longer than a short job, so those wake one only in a burst of jobs, the next of which it will
 * not miss.  A scheduler may wake it on the caller's processor, where it would keep the caller waiting: it moves. */
#ifdef __linux__
#define _GNU_SOURCE /* processors of threads */
#elif !defined(_WIN32)
#define _POSIX_C_SOURCE 200809L
#endif
#include "pool.h"

#include <stdatomic.h>

#include "threads.h"

enum {
    HELPER_SPIN = 30, /* microseconds */
    CALLER_SPIN = 50,
    LONG_JOB = 100,   /* microseconds */
    BURST = 8,        /* jobs, each of which began while a helper would still have been looking */
    LOCK_SPIN = 100,  /* tries; the lock is held for a fraction of a microsecond */
    ASK_INTERVAL = 50 /* milliseconds between two questions whether the call is interrupted */
};

typedef struct Job {
    mmk_call *call;
    mmk_chunk run_chunk;
    void *loop;
    size_t chunks;
    int processor;       /* the caller's */
    int may_wake;        /* sleeping helpers */
    atomic_size_t begun; /* chunks */
    size_t first;        /* chunk that the caller has not begun; it goes forwards */
    atomic_size_t last;  /* chunks begun by helpers, which go backwards */
    atomic_int helpers;  /* in this job; more only under the lock */
    struct Job *following;
} Job;

typedef struct {
    Mutex lock; /* of what follows, except for the atomic numbers */
    Condition work, done;
    Job *jobs;
    int threads, sleeping, looking; /* of the pool */
    int generation;                 /* how often the process has been forked */
    int64_t ended;                  /* when the last job did, in microseconds */
    int burst;                      /* jobs that followed each other closely */
    atomic_int working;             /* callers and helpers; changed under the lock only */
    atomic_int waiting;             /* callers that sleep until their helpers are done */
    atomic_uint posted;             /* jobs */
} Pool;

static Pool pool = {MUTEX_INITIAL, CONDITION_INITIAL, CONDITION_INITIAL, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0};
static _Thread_local int is_pool_thread;

int mmk_is_pool_thread(void) { return is_pool_thread; }

static void lock_pool(void) {
    for (int i = 0; i < LOCK_SPIN; i++) {
        if (try_lock(&pool.lock)) return;
        relax();
    }
    wait_and_lock(&pool.lock);
}

/* Returns whether a spin that began at `begin` should end, after a pause. */
static int is_over(int64_t begin, int limit) {
    for (int i = 0; i < 8; i++) relax();
    int64_t elapsed = microseconds() - begin;
    return elapsed < 0 || elapsed > limit;
}

/* Returns whether there was a chunk left.  A caller begins at the first and a helper at the last, so that what a thread
 * has written in one loop is in its own cache in the next. */
static int run_next_chunk(Job *job, int helps) {
    if (atomic_fetch_add(&job->begun, 1) >= job->chunks) return 0;
    job->run_chunk(job->loop, helps ? job->chunks - 1 - atomic_fetch_add(&job->last, 1) : job->first++);
    return 1;
}

/* ---- under the lock ---------------------------------------------------------------------------------------------- */

static int threads_of(const Job *job) { return *(const int32_t *)job->call->front_end; }

/* Returns a job that a helper may join; NULL if there is none. */
static Job *find_job(void) {
    for (Job *job = pool.jobs; job; job = job->following)
        if (pool.working < threads_of(job) && atomic_load(&job->begun) < job->chunks) return job;
    return NULL;
}

static ThreadResult THREAD_CALL help(void *unused);

/* Finds a helper for a job that may have one; that helper finds the next, so a thread never wakes more than one. */
static void find_helper(void) {
    const Job *job = find_job();
    if (!job || pool.looking || !job->may_wake) return; /* who looks will find it */
    if (pool.sleeping)
        wake_one(&pool.work);
    else if (pool.threads < threads_of(job) - 1)
        pool.threads += start_thread(help);
}

/* ---- the helpers ------------------------------------------------------------------------------------------------- */

/* Waits until there may be a job; called and returns with the lock held. */
static void wait_for_job(void) {
    unsigned posted = atomic_load(&pool.posted);
    int64_t begin = microseconds();
    int sleepy = 0;
    pool.looking++;
    unlock(&pool.lock);
    while (atomic_load(&pool.posted) == posted && !sleepy) sleepy = is_over(begin, HELPER_SPIN);
    lock_pool();
    pool.looking--;
    if (!sleepy || find_job()) return;
    pool.sleeping++;
    sleep_on(&pool.work, &pool.lock);
    pool.sleeping--;
}

static ThreadResult THREAD_CALL help(void *unused) {
    (void)unused;
    int can_move = 1; /* to another processor */
    is_pool_thread = 1;
    lock_pool();
    for (;;) {
        Job *job = find_job();
        if (!job) {
            wait_for_job();
            continue;
        }
        const int processor = job->processor;
        if (can_move && processor >= 0 && processor == current_processor()) {
            unlock(&pool.lock);
            can_move = leave_processor(processor);
            lock_pool();
            continue;
        }
        atomic_fetch_add(&job->helpers, 1);
        pool.working++;
        find_helper();
        unlock(&pool.lock);
        while (atomic_load(&pool.working) <= threads_of(job) && run_next_chunk(job, 1)) {
        }
        /* The job is gone once it has no helpers. */
        if (atomic_fetch_sub(&job->helpers, 1) == 1 && atomic_load(&pool.waiting)) {
            lock_pool();
            wake_all(&pool.done);
        } else {
            lock_pool();
        }
        pool.working--;
    }
    return 0;
}

/* ---- the callers ------------------------------------------------------------------------------------------------- */

#ifndef _WIN32
/* Threads do not survive a fork, nor does what they held; a call from which a signal handler forks may lack chunks. */
static void forget_threads(void) {
    for (Job *job = pool.jobs; job; job = job->following)
        if (atomic_exchange(&job->helpers, 0)) mmk_fail(job->call, "the process was forked during the call");
    pool.lock = (Mutex)MUTEX_INITIAL;
    pool.work = pool.done = (Condition)CONDITION_INITIAL;
    pool.jobs = NULL;
    pool.threads = pool.sleeping = pool.looking = 0;
    pool.generation++;
    atomic_store(&pool.working, 0);
    atomic_store(&pool.waiting, 0);
}
#endif

/* Waits until a job has no helpers.  Returns with the lock held, without which a helper might still join. */
static void wait_for_helpers(Job *job) {
    int64_t begin = microseconds();
    while (atomic_load(&job->helpers) && !is_over(begin, CALLER_SPIN)) {
    }
    lock_pool();
    while (atomic_load(&job->helpers)) {
        atomic_fetch_add(&pool.waiting, 1);
        if (atomic_load(&job->helpers)) sleep_at_most(&pool.done, &pool.lock, ASK_INTERVAL);
        atomic_fetch_sub(&pool.waiting, 1);
        unlock(&pool.lock);
        mmk_is_stopped(job->call); /* the helpers cannot ask */
        lock_pool();
    }
}

void mmk_pool_run(mmk_call *call, mmk_chunk run_chunk, void *loop, size_t chunks) {
    Job job = {.call = call, .run_chunk = run_chunk, .loop = loop, .chunks = chunks, .processor = current_processor()};
    lock_pool();
#ifndef _WIN32
    static int is_registered; /* survives a fork, as the handler does */
    if (!is_registered) is_registered = !pthread_atfork(NULL, NULL, forget_threads);
#endif
    const int generation = pool.generation;
    Job **last = &pool.jobs;
    while (*last) last = &(*last)->following;
    *last = &job;
    pool.burst = microseconds() - pool.ended < HELPER_SPIN ? pool.burst + 1 : 0;
    job.may_wake = call->duration >= LONG_JOB * 1000.0 || pool.burst >= BURST;
    pool.working++;
    find_helper();
    unlock(&pool.lock);
    atomic_fetch_add(&pool.posted, 1);
    while (run_next_chunk(&job, 0)) {
    }
    wait_for_helpers(&job);
    if (generation == pool.generation) {
        Job **link = &pool.jobs;
        while (*link != &job) link = &(*link)->following;
        *link = job.following;
        pool.ended = microseconds();
        pool.working--;
        find_helper(); /* for the job of another caller */
    }
    unlock(&pool.lock);
}
