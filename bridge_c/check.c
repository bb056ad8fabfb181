/* check.c - the functions of mmk.h: checks, error messages and output sizes for `prepare`, scratch memory. */
#ifdef __linux__
#include <sys/mman.h>
#endif
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "mmk.h"
#include "shapes.h"

static int simd_limit = MMK_SIMD_LEVELS - 1;

void mmk_limit_simd(int level) { simd_limit = level; }

int mmk_simd(void) {
    int level = MMK_BASELINE;
#if MMK_HAS_CLONES
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) level = MMK_AVX2;
    if (__builtin_cpu_supports("avx512f")) level = MMK_AVX512;
#endif
    return level < simd_limit ? level : simd_limit;
}

const char *mmk_simd_level(void) {
    static const char *const names[MMK_SIMD_LEVELS] = {"baseline", "avx2", "avx512"};
    return names[mmk_simd()];
}

/* Flags that several threads read and write; no other memory depends on their order. */
#if defined(__GNUC__)
static int32_t load(const int32_t *flag) { return __atomic_load_n(flag, __ATOMIC_RELAXED); }
static int32_t exchange(int32_t *flag, int32_t value) { return __atomic_exchange_n(flag, value, __ATOMIC_RELAXED); }
#else
static int32_t load(const volatile int32_t *flag) { return *flag; }
static int32_t exchange(volatile int32_t *flag, int32_t value) {
    int32_t before = *flag;
    *flag = value;
    return before;
}
#endif

int mmk_fail(mmk_call *call, const char *format, ...) {
    if (exchange(&call->stopped, 1)) return -1;
    int used = snprintf(call->message, MMK_MESSAGE, "%s: ", call->name);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(call->message + used, MMK_MESSAGE - (size_t)used, format, arguments);
    va_end(arguments);
    return -1;
}

/* Returns a clock that may jump: only differences of about a second matter. */
static int32_t milliseconds(void) {
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    return (int32_t)(((int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000) & INT32_MAX);
}

int mmk_is_stopped(mmk_call *call) {
    const int32_t interval = 100;
    if (call->is_interrupted && !load(&call->stopped)) {
        int32_t now = milliseconds(), since = now - load(&call->asked);
        if (since < 0 || since > interval) {
            int answer = call->is_interrupted();
            if (answer >= 0) exchange(&call->asked, now);
            if (answer > 0) exchange(&call->stopped, 1);
        }
    }
    return load(&call->stopped);
}

/* "[3, 4]" */
static void write_shape(char *text, size_t size, int rank, const int64_t *shape) {
    size_t used = (size_t)snprintf(text, size, "[");
    for (int d = 0; d < rank && used < size; d++)
        used += (size_t)snprintf(text + used, size - used, d ? ", %lld" : "%lld", (long long)shape[d]);
    if (used < size) snprintf(text + used, size - used, "]");
}

static const int64_t *find_dimension(const mmk_call *call, const char *name, size_t length) {
    for (int d = 0; d < call->dimension_count; d++) {
        const mmk_dimension *known = &call->dimensions[d];
        if (known->length == length && !memcmp(known->name, name, length)) return &known->size;
    }
    return NULL;
}

int mmk_check_shape(mmk_call *call, int i, const char *argument, const char *required) {
    const mmk_tensor *tensor = &call->inputs[i];
    const char *cursor = required;
    mmk_shape_token token;
    int d = 0, fits = 1, open_ended = 0;
    char bound[96] = "", actual[160];
    while (mmk_next_dimension(&cursor, &token)) {
        if (token.kind == SHAPE_REST) {
            open_ended = 1;
            break;
        }
        if (d >= tensor->rank) {
            fits = 0;
        } else if (token.kind == SHAPE_SIZE) {
            fits &= tensor->shape[d] == token.size;
        } else {
            const int64_t *known = find_dimension(call, token.text, token.length);
            if (!known && call->dimension_count < MMK_MAX_DIMENSIONS) {
                call->dimensions[call->dimension_count++] = (mmk_dimension){token.text, token.length, tensor->shape[d]};
            } else if (known && *known != tensor->shape[d]) {
                fits = 0;
                size_t used = strlen(bound);
                snprintf(bound + used, sizeof bound - used, "%s%.*s = %lld", used ? ", " : " with ", (int)token.length,
                         token.text, (long long)*known);
            }
        }
        d++;
    }
    if (fits && (d == tensor->rank || (open_ended && d < tensor->rank))) return 0;
    write_shape(actual, sizeof actual, tensor->rank, tensor->shape);
    return mmk_fail(call, "%s must be %s%s, got %s", argument, required, d == tensor->rank ? bound : "", actual);
}

int mmk_set_output(mmk_call *call, int i, int type, int rank, const int64_t *shape) {
    mmk_tensor *output = &call->outputs[i];
    const int64_t limit = INT64_MAX / 16; /* elements have at most 8 bytes */
    int64_t size = 1;
    if (rank > MMK_MAX_RANK)
        return mmk_fail(call, "arrays may have up to %d dimensions, output %d has %d", MMK_MAX_RANK, i, rank);
    output->type = type;
    output->rank = rank;
    for (int d = 0; d < rank; d++) {
        output->shape[d] = shape[d];
        if (shape[d] < 0 || (shape[d] > 1 && size > limit / shape[d])) {
            char text[160];
            write_shape(text, sizeof text, rank, shape);
            return mmk_fail(call, "an output of shape %s is too large", text);
        }
        size *= shape[d];
    }
    output->size = size;
    return 0;
}

int mmk_check_steps(mmk_call *call, double steps, const char *name) {
    double elements = 0;
    for (int i = 0; i < MMK_MAX_INPUTS; i++) elements += (double)call->inputs[i].size;
    for (int i = 0; i < MMK_MAX_OUTPUTS; i++) elements += (double)call->outputs[i].size;
    if (steps <= 4294967296.0 + 16384 * elements) return 0;
    return mmk_fail(call, "%.3g %s are more than the limit, 2**32 and 2**14 for each of %.0f input and output elements",
                    steps, name, elements);
}

void *mmk_allocate_scratch(size_t size, void **memory) {
    const uintptr_t alignment = 64;
    *memory = size && size <= SIZE_MAX - alignment ? malloc(size + alignment) : NULL;
    return *memory ? (void *)(((uintptr_t)*memory + alignment - 1) & ~(alignment - 1)) : NULL;
}

void mmk_ask_for_large_pages(void *memory, size_t size) {
#ifdef MADV_HUGEPAGE
    const uintptr_t page = (uintptr_t)2 << 20;
    uintptr_t begin = ((uintptr_t)memory + page - 1) & ~(page - 1);
    uintptr_t end = ((uintptr_t)memory + size) & ~(page - 1);
    if (begin < end)
        madvise((void *)begin, end - begin, MADV_HUGEPAGE); /* only a hint, so its result does not matter */
#else
    (void)memory;
    (void)size;
#endif
}
