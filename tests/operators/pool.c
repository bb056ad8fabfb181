/* pool.c - the threads of the numpy API without Python: loops of many callers, loops in phases, failures, forks.
 *
 * Usage: pool THREADS.  Exits with 0, or aborts at the first result that is wrong. */
#include "pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CALLERS = 4, CALLS = 50, WORK = 50, ROUNDS = 3, BAD_UNIT = 37 };

static atomic_int working, most_working;
static int32_t thread_count;
static int fails;

static void note_thread(int change) {
    int now = atomic_fetch_add(&working, change) + change, most = atomic_load(&most_working);
    while (now > most && !atomic_compare_exchange_weak(&most_working, &most, now)) {
    }
}

/* The argument has a counter for each unit; each round adds 1. */
static void count_units(mmk_call *call, void *argument, int64_t begin, int64_t end) {
    atomic_int *counts = argument;
    note_thread(1);
    for (int64_t unit = begin; unit < end; unit++) {
        atomic_fetch_add(&counts[unit], 1);
        if (fails && unit == BAD_UNIT) mmk_fail(call, "unit %d is bad", (int)unit);
        for (volatile int i = 0; i < 3000; i++) {
        }
    }
    note_thread(-1);
}

static void count_all_units(mmk_call *call, void *argument, int64_t begin, int64_t end) {
    if (begin != 0 || end != WORK) abort();
    count_units(call, argument, begin, end);
}

/* Phase 0 is a single unit that runs loops; phase 1 is split, so that a loop inside it is not. */
static void run(mmk_call *call, int phase, int64_t begin, int64_t end, void *scratch) {
    (void)scratch;
    if (phase == 0) {
        for (int round = 0; round < ROUNDS; round++) mmk_parallel(call, WORK, 1e5, count_units, call->scratch);
    } else {
        atomic_int counts[WORK] = {0};
        if (call->is_split) mmk_parallel(call, WORK, 1e5, count_all_units, counts);
        count_units(call, call->scratch, begin, end);
    }
}

static const mmk_operator kernel = {"counts", NULL, run};

static void call_once(int callers) {
    atomic_int counts[WORK] = {0};
    mmk_call call = {.name = "counts", .scratch = counts, .parallel_for = mmk_pool_run, .front_end = &thread_count};
    call.max_chunks = thread_count == 1 ? 1 : 4 * thread_count;
    mmk_add_phase(&call, 1, 1e5);
    mmk_add_phase(&call, WORK, 1e5);
    int outcome = mmk_run(&kernel, &call);
    if (fails ? outcome != MMK_STOPPED || strcmp(call.message, "counts: unit 37 is bad") : outcome) abort();
    for (int unit = 0; unit < WORK && !fails; unit++)
        if (counts[unit] != ROUNDS + 1) abort();
    if (atomic_load(&most_working) > callers + thread_count - 1) abort(); /* callers that come later do not wait */
}

static void *call_often(void *unused) {
    for (int i = 0; i < CALLS; i++) call_once(CALLERS);
    return unused;
}

/* Forks once, as a signal handler may; a child gets -1 as its `child`. */
static _Atomic pid_t child = -2;
static atomic_int helping;

static int fork_once(void) {
    if (mmk_is_pool_thread()) return -1;
    if (child == -2) {
        pid_t forked = fork();
        child = forked ? forked : -1;
    }
    if (child == -1) alarm(60);
    return 0;
}

/* The fork happens while a helper is at work, however busy the machine is. */
static void wait_and_ask(mmk_call *call, void *argument, int64_t begin, int64_t end) {
    (void)argument, (void)begin, (void)end;
    if (mmk_is_pool_thread()) {
        atomic_store(&helping, 1);
        while (child == -2) usleep(1000);
    } else {
        while (!atomic_load(&helping)) usleep(1000);
    }
    mmk_is_stopped(call);
}

/* The child lacks what its helper had begun, and is told so. */
static void fork_in_call(void) {
    mmk_call call = {.name = "fork", .parallel_for = mmk_pool_run, .front_end = &thread_count, .max_chunks = 4};
    int status;
    call.is_interrupted = fork_once;
    mmk_parallel(&call, 4, 1e6, wait_and_ask, NULL);
    if (child == -1) _exit(strcmp(call.message, "fork: the process was forked during the call") != 0);
    if (call.stopped || waitpid(child, &status, 0) != child || status) abort();
}

int main(int count, char **arguments) {
    pthread_t callers[CALLERS];
    thread_count = count > 1 ? atoi(arguments[1]) : 2;
    for (int i = 0; i < CALLS; i++) call_once(1);
    for (int c = 0; c < CALLERS; c++)
        if (pthread_create(&callers[c], NULL, call_often, NULL)) abort();
    pid_t fork_of_callers = fork(); /* while they hold locks and have helpers */
    if (fork_of_callers == 0) {
        alarm(60);
        atomic_store(&working, 0);
        for (int i = 0; i < CALLS; i++) call_once(CALLERS);
        _exit(0);
    }
    int status;
    if (waitpid(fork_of_callers, &status, 0) != fork_of_callers || status) abort();
    for (int c = 0; c < CALLERS; c++) pthread_join(callers[c], NULL);
    fails = 1;
    atomic_store(&most_working, 0);
    for (int i = 0; i < CALLS; i++) call_once(1);
    if (thread_count > 1) fork_in_call();
    printf("%d threads at most\n", atomic_load(&most_working));
    return 0;
}
