/* allocations.c - runs cases with each allocation of the bridge and the kernels failing once, and each call of the API.
 *
 * Usage: allocations FILE ...  The bridge's sources are compiled with -Dmalloc=counted_malloc -Dcalloc=counted_calloc.
 * A failure must become a status; afterwards the same case gives the same results.  LeakSanitizer watches. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "case.h"

void *counted_malloc(size_t size);
void *counted_calloc(size_t count, size_t size);

static long allocations, failing; /* counted from 1; 0: none fails */

void *counted_malloc(size_t size) { return ++allocations == failing ? NULL : malloc(size); }
void *counted_calloc(size_t count, size_t size) { return ++allocations == failing ? NULL : calloc(count, size); }

static uint8_t data[1 << 22];

static void die(const char *file, const char *text, long step) {
    fprintf(stderr, "%s: %s (%ld)\n", file, text, step);
    exit(1);
}

static int same(const OrtKernelContext *first, const OrtKernelContext *second) {
    for (int i = 0; i < FAKE_MAX_TENSORS; i++) {
        const OrtValue *a = first->outputs[i], *b = second->outputs[i];
        if (!a != !b || (a && (a->bytes != b->bytes || (a->bytes && memcmp(a->data, b->data, a->bytes))))) return 0;
    }
    return 1;
}

/* Runs a case with a failing allocation or call; returns whether it failed. */
static int run_failing(Case *given, long allocation, int call) {
    OrtKernelContext context;
    allocations = 0;
    failing = allocation;
    given->failing_call = call;
    int failed = run_case(given, &context);
    failing = 0;
    given->failing_call = 0;
    free_outputs(&context);
    return failed;
}

int main(int count, char **files) {
    long failed_allocations = 0;
    for (long step = 1; (allocations = 0, failing = step, fake_register()); step++) failed_allocations++;
    for (int call = 1; (fake_failing_call = call, fake_register()); call++) continue;
    failing = 0;
    fake_failing_call = 0;
    for (int f = 1; f < count; f++) {
        Case given;
        OrtKernelContext expected, again;
        FILE *file = fopen(files[f], "rb");
        if (!file) die(files[f], "cannot be read", 0);
        size_t size = fread(data, 1, sizeof data, file);
        fclose(file);
        if (!read_case(data, size, &given)) continue;
        given.failing_call = 0;
        allocations = 0;
        int refused = run_case(&given, &expected);
        long total = allocations;
        for (long step = 1; step <= total; step++, failed_allocations++)
            if (!run_failing(&given, step, 0)) die(files[f], "an allocation failed without a status", step);
        for (int call = 1, before = -1; before != fake_failed_calls; call++) {
            before = fake_failed_calls;
            run_failing(&given, 0, call); /* shape inference gives no status */
        }
        if (run_case(&given, &again) != refused || !same(&expected, &again)) die(files[f], "other results", 0);
        free_outputs(&expected);
        free_outputs(&again);
        free_case(&given);
    }
    printf("%d cases, %ld failed allocations, %d failed calls\n", count - 1, failed_allocations, fake_failed_calls);
    return 0;
}
