/* run.c - runs the phases of a call, and the loops inside them, on the threads of the front end. */
#include <stdatomic.h>
#include <stdlib.h>

#include "mmk.h"

enum { STEP = 10000000 }; /* nanoseconds between two questions whether the call is stopped */

/* Returns how many units of work fill a time, at least 1. */
static int64_t units_in(double time, double nanoseconds) {
    double units = time / (nanoseconds > 0.02 ? nanoseconds : 0.02);
    return units < 1 ? 1 : (int64_t)units;
}

void mmk_add_phase(mmk_call *call, int64_t work, double nanoseconds) {
    if (call->phases == MMK_MAX_PHASES) {
        mmk_fail(call, "a kernel may have up to %d phases", MMK_MAX_PHASES);
        return;
    }
    call->work[call->phases] = work;
    call->nanoseconds[call->phases++] = nanoseconds;
}

typedef struct {
    mmk_call *call;
    mmk_body body;
    void *argument;
    int64_t work, chunks;
} Loop;

static void run_chunk(void *argument, size_t i) {
    const Loop *loop = argument;
    int64_t step = loop->work / loop->chunks, rest = loop->work % loop->chunks, n = (int64_t)i;
    int64_t begin = n * step + (n < rest ? n : rest);
    loop->body(loop->call, loop->argument, begin, begin + step + (n < rest));
}

static void run_loop(mmk_call *call, int64_t work, double nanoseconds, mmk_body body, void *argument) {
    int64_t chunks = work / units_in(call->min_chunk, nanoseconds);
    if (chunks > call->max_chunks) chunks = call->max_chunks;
    if (chunks < 2 || call->is_split) {
        body(call, argument, 0, work);
        return;
    }
    Loop loop = {call, body, argument, work, chunks};
    call->is_split = 1;
    call->duration = (double)work * nanoseconds;
    call->parallel_for(call, run_chunk, &loop, (size_t)chunks);
    call->is_split = 0;
}

void mmk_parallel(mmk_call *call, int64_t work, double nanoseconds, mmk_body body, void *argument) {
    run_loop(call, work, nanoseconds, body, argument);
}

typedef struct {
    const mmk_operator *kernel;
    int number;
    atomic_int lacks_memory;
} Phase;

static void run_phase(mmk_call *call, void *argument, int64_t begin, int64_t end) {
    Phase *phase = argument;
    const int64_t step = units_in(STEP, call->nanoseconds[phase->number]);
    const size_t scratch_size = call->worker_scratch_size[phase->number];
    void *memory, *scratch = mmk_allocate_scratch(scratch_size, &memory);
    if (scratch_size && !scratch) {
        atomic_store(&phase->lacks_memory, 1);
        return;
    }
    for (; end - begin > step && !mmk_is_stopped(call); begin += step)
        phase->kernel->run(call, phase->number, begin, begin + step, scratch);
    if (end - begin <= step) phase->kernel->run(call, phase->number, begin, end, scratch);
    free(memory);
}

int mmk_run(const mmk_operator *kernel, mmk_call *call) {
    for (int number = 0; number < call->phases; number++) {
        Phase phase = {kernel, number, 0};
        run_loop(call, call->work[number], call->nanoseconds[number], run_phase, &phase);
        if (atomic_load(&phase.lacks_memory)) return MMK_OUT_OF_MEMORY;
        if (call->stopped) return MMK_STOPPED;
    }
    return 0;
}
