/* failing_malloc.c - a library to preload, in which a malloc that the numpy module's own code calls can fail.
 *
 * The process calls fail_malloc(k): the k-th call from then on fails; count_malloc() returns how many there were. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

void *__libc_malloc(size_t size);
void fail_malloc(long k);
long count_malloc(void);

static long counted = -1, failing;

void fail_malloc(long k) {
    counted = 0;
    failing = k;
}

long count_malloc(void) { return counted; }

void *malloc(size_t size) {
    Dl_info info;
    if (counted >= 0 && dladdr(__builtin_return_address(0), &info) && info.dli_fname &&
        strstr(info.dli_fname, "_kernels/numpy_api") && ++counted == failing)
        return NULL;
    return __libc_malloc(size);
}
