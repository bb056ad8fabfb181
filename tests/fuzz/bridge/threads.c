/* threads.c - eight threads register the library at the same time, then run the same nodes, whose phases run on threads
 * too; ThreadSanitizer watches.
 *
 * Usage: threads SECONDS FILE ...  All results are those of the first run. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "case.h"

enum { THREADS = 8, HELPERS = 4, MAX_CASES = 4096 };

typedef struct {
    Case given;
    void *kernel;
    OrtKernelContext expected;
    int refused;
} Shared;

static Shared cases[MAX_CASES];
static int case_count;
static double end;
static atomic_long runs;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void *register_again(void *argument) {
    (void)argument;
    if (fake_register()) abort();
    return NULL;
}

static int compute(const Shared *shared, OrtKernelContext *context) {
    const Op *op = shared->given.op;
    memset(context, 0, sizeof *context);
    memcpy(context->inputs, shared->given.inputs, sizeof context->inputs);
    context->row = op->row;
    context->threads = THREADS + HELPERS;
    OrtStatus *status = op->ort.KernelComputeV2(shared->kernel, context);
    int failed = status != NULL;
    if (failed) op->api->ReleaseStatus(status);
    return failed;
}

static void *hammer(void *argument) {
    for (size_t i = (size_t)argument * 37; now() < end; i++) {
        const Shared *shared = &cases[i % (size_t)case_count];
        OrtKernelContext context;
        if (compute(shared, &context) != shared->refused) abort();
        for (int o = 0; o < FAKE_MAX_TENSORS; o++) {
            const OrtValue *got = context.outputs[o], *wanted = shared->expected.outputs[o];
            if (!got != !wanted || (got && got->bytes && memcmp(got->data, wanted->data, got->bytes))) abort();
        }
        free_outputs(&context);
        atomic_fetch_add(&runs, 1);
    }
    return NULL;
}

static void run_threads(void *(*function)(void *)) {
    pthread_t threads[THREADS];
    for (size_t t = 0; t < THREADS; t++)
        if (pthread_create(&threads[t], NULL, function, (void *)t)) abort();
    for (size_t t = 0; t < THREADS; t++) pthread_join(threads[t], NULL);
}

int main(int count, char **arguments) {
    static uint8_t data[1 << 22];
    run_threads(register_again);
    for (int f = 2; f < count && case_count < MAX_CASES; f++) {
        Shared *shared = &cases[case_count];
        FILE *file = fopen(arguments[f], "rb");
        if (!file) return 1;
        size_t size = fread(data, 1, sizeof data, file);
        fclose(file);
        if (!read_case(data, size, &shared->given)) continue;
        const Op *op = shared->given.op;
        OrtStatus *status = op->ort.CreateKernelV2(&op->ort, op->api, &shared->given.node, &shared->kernel);
        if (status) {
            op->api->ReleaseStatus(status);
            free_case(&shared->given);
            continue;
        }
        shared->refused = compute(shared, &shared->expected);
        case_count++;
    }
    if (!case_count) return 1;
    end = now() + atof(arguments[1]);
    run_threads(hammer);
    for (int i = 0; i < case_count; i++) {
        cases[i].given.op->ort.KernelDestroy(cases[i].kernel);
        free_outputs(&cases[i].expected);
        free_case(&cases[i].given);
    }
    printf("%d threads, %d nodes, %ld runs\n", THREADS, case_count, atomic_load(&runs));
    return 0;
}
