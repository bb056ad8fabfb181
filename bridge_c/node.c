/* node.c - makes, runs and frees a node: unpacks its inputs, calls the kernel on ONNX Runtime's threads, and packs the
 * outputs. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bridge.h"

typedef struct {
    const Op *op;
    mmk_attribute attributes[MMK_MAX_ATTRIBUTES];
    atomic_uint long_calls;
    atomic_int threads; /* that were seen together; 0 before the first long call */
} Node;

static OrtStatus *out_of_memory(const Op *op) {
    char text[NAME_SIZE];
    snprintf(text, sizeof text, "%s: out of memory", op->row->kernel);
    return op->api->CreateStatus(ORT_FAIL, text);
}

OrtStatus *ORT_CALL mmk_create_node(const OrtCustomOp *custom, const OrtApi *api, const OrtKernelInfo *info,
                                    void **out) {
    const Op *op = (const Op *)custom;
    Node *node = calloc(1, sizeof *node);
    (void)api;
    *out = NULL;
    if (!node) return out_of_memory(op);
    node->op = op;
    OrtStatus *status = mmk_read_attributes(op, info, node->attributes);
    if (status)
        free(node);
    else
        *out = node;
    return status;
}

void ORT_CALL mmk_destroy_node(void *kernel) { free(kernel); }

static OrtStatus *too_large(const Op *op, int i) {
    char text[NAME_SIZE];
    snprintf(text, sizeof text, "%s: the sizes of %s are too large to be multiplied", op->row->kernel,
             op->row->inputs[i].name);
    return op->api->CreateStatus(ORT_INVALID_ARGUMENT, text);
}

/* Returns the product of the sizes; -1 if that of those above 0 is too large, so that kernels can multiply them. */
static int64_t count_elements(const int64_t *shape, size_t rank) {
    int64_t product = 1, is_empty = 0;
    for (size_t d = 0; d < rank; d++) {
        if (shape[d] == 0)
            is_empty = 1;
        else if (shape[d] < 0 || product > (INT64_MAX >> 8) / shape[d])
            return -1;
        else
            product *= shape[d];
    }
    return is_empty ? 0 : product;
}

static OrtStatus *set_shape(const Op *op, const int64_t *shape, size_t rank, mmk_tensor *tensor) {
    if (rank > MMK_MAX_RANK) {
        char text[NAME_SIZE];
        snprintf(text, sizeof text, "%s: arrays may have up to %d dimensions, got %zu", op->row->kernel, MMK_MAX_RANK,
                 rank);
        return op->api->CreateStatus(ORT_INVALID_ARGUMENT, text);
    }
    tensor->rank = (int32_t)rank;
    for (size_t d = 0; d < rank; d++) tensor->shape[d] = shape[d];
    return NULL;
}

/* Gets the type and the shape of an input before ONNX Runtime 1.24, which allocates a copy of them. */
static OrtStatus *copy_type_and_shape(const Op *op, const OrtValue *value, mmk_tensor *tensor) {
    const OrtApi *api = op->api;
    OrtTensorTypeAndShapeInfo *info = NULL;
    int64_t shape[MMK_MAX_RANK];
    size_t rank = 0;
    TRY(api->GetTensorTypeAndShape(value, &info));
    OrtStatus *status = api->GetTensorElementType(info, &tensor->type);
    if (!status) status = api->GetDimensionsCount(info, &rank);
    if (!status) status = api->GetDimensions(info, shape, rank < MMK_MAX_RANK ? rank : MMK_MAX_RANK);
    if (!status) status = set_shape(op, shape, rank, tensor);
    api->ReleaseTensorTypeAndShapeInfo(info);
    return status;
}

static OrtStatus *get_type_and_shape(const Op *op, const OrtValue *value, mmk_tensor *tensor) {
    const int64_t *shape = NULL;
    size_t rank = 0;
    if (op->runtime < ORT_API_WITH_REFERENCE) return copy_type_and_shape(op, value, tensor);
    TRY(op->api->GetTensorElementTypeAndShapeDataReference(value, &tensor->type, &shape, &rank));
    return set_shape(op, shape, rank, tensor);
}

static OrtStatus *get_input(const Op *op, OrtKernelContext *context, int i, mmk_tensor *tensor) {
    const OrtValue *value = NULL;
    TRY(op->api->KernelContext_GetInput(context, (size_t)i, &value));
    if (!value) return NULL; /* optional, left out */
    TRY(get_type_and_shape(op, value, tensor));
    tensor->size = count_elements(tensor->shape, (size_t)tensor->rank);
    if (tensor->size < 0) return too_large(op, i);
    return op->api->GetTensorMutableData((OrtValue *)value, &tensor->data);
}

static OrtStatus *make_outputs(const Op *op, OrtKernelContext *context, mmk_call *call) {
    for (int i = 0; op->row->outputs[i].name; i++) {
        mmk_tensor *tensor = &call->outputs[i];
        OrtValue *value = NULL;
        void *data = NULL;
        TRY(op->api->KernelContext_GetOutput(context, (size_t)i, tensor->shape, (size_t)tensor->rank, &value));
        TRY(op->api->GetTensorMutableData(value, &data));
        if (!call->late_outputs)
            tensor->data = data;
        else if (tensor->size)
            memcpy(data, tensor->data, (size_t)tensor->size * mmk_element_size(tensor->type));
    }
    return NULL;
}

enum { MAX_CHUNKS = 64 };

/* The threads of the session that a node runs in. */
typedef struct {
    const OrtApi *api;
    OrtKernelContext *context;
    OrtStatus *status; /* of the first loop that failed */
    int are_counted;
    atomic_uintptr_t seen[MAX_CHUNKS]; /* threads that have run a chunk of this call, if they are counted; then 0 */
} Threads;

/* A loop whose threads are counted: ONNX Runtime does not say how many there are. */
typedef struct {
    Threads *threads;
    mmk_chunk run_chunk;
    void *loop;
} CountedLoop;

static void run_counted(void *argument, size_t i) {
    static _Thread_local char mark; /* whose address is the thread's */
    const CountedLoop *counted = argument;
    const uintptr_t me = (uintptr_t)&mark;
    for (int k = 0; k < MAX_CHUNKS; k++) {
        uintptr_t other = 0;
        if (atomic_compare_exchange_strong(&counted->threads->seen[k], &other, me) || other == me) break;
    }
    counted->run_chunk(counted->loop, i);
}

static void parallel_for(mmk_call *call, mmk_chunk run_chunk, void *loop, size_t chunks) {
    Threads *threads = call->front_end;
    CountedLoop counted = {threads, run_chunk, loop};
    if (threads->status) return;
    if (threads->are_counted) run_chunk = run_counted, loop = &counted;
    threads->status = threads->api->KernelContext_ParallelFor(threads->context, run_chunk, chunks, 0, loop);
}

enum { MIN_CHUNK = 20000, LONG_CALL = 10 * MIN_CHUNK };

/* Sets of how many chunks a loop may be: each has costs of its own, which one thread need not have 64 times.
 *
 * The threads are counted in long calls 1, 2, 4, 8, ...: some may have been busy before, or asleep. */
static void set_chunks(Node *node, mmk_call *call, Threads *threads) {
    enum { PER_THREAD = 4 };
    const int known = atomic_load(&node->threads); /* 0 before they are counted */
    double duration = 0;
    call->min_chunk = MIN_CHUNK;
    call->max_chunks = 1;
    if (node->op->runtime < ORT_API_WITH_PARALLEL_FOR) return;
    for (int i = 0; i < call->phases; i++) duration += (double)call->work[i] * call->nanoseconds[i];
    if (duration > LONG_CALL) {
        const unsigned number = atomic_fetch_add(&node->long_calls, 1) + 1;
        threads->are_counted = !(number & (number - 1));
    }
    if (threads->are_counted || !known || known >= MAX_CHUNKS / PER_THREAD)
        call->max_chunks = MAX_CHUNKS;
    else if (known > 1)
        call->max_chunks = known * PER_THREAD;
}

/* Notes how many threads a call has seen, if none saw more. */
static void note_threads(Node *node, Threads *threads) {
    int seen = 0, known = atomic_load(&node->threads);
    while (seen < MAX_CHUNKS && atomic_load(&threads->seen[seen])) seen++;
    while (seen > known && !atomic_compare_exchange_weak(&node->threads, &known, seen)) {
    }
}

/* Runs all phases, on several threads if there is enough work. */
static OrtStatus *run_phases(Node *node, OrtKernelContext *context, mmk_call *call) {
    const Op *op = node->op;
    Threads threads = {.api = op->api, .context = context};
    call->parallel_for = parallel_for;
    call->front_end = &threads;
    set_chunks(node, call, &threads);
    int outcome = mmk_run(op->kernel, call);
    if (threads.are_counted) note_threads(node, &threads);
    if (threads.status) return threads.status;
    if (outcome == MMK_OUT_OF_MEMORY) return out_of_memory(op);
    return outcome ? op->api->CreateStatus(ORT_INVALID_ARGUMENT, call->message) : NULL;
}

/* Runs a call whose inputs are set, and packs its outputs. */
static OrtStatus *run_call(Node *node, OrtKernelContext *context, mmk_call *call) {
    const Op *op = node->op;
    const OrtApi *api = op->api;
    if (op->kernel->prepare(call) || call->stopped) return api->CreateStatus(ORT_INVALID_ARGUMENT, call->message);
    if (!call->late_outputs) TRY(make_outputs(op, context, call));
    void *memory;
    call->scratch = mmk_allocate_scratch(call->scratch_size, &memory);
    if (call->scratch_size && !call->scratch) return out_of_memory(op);
    OrtStatus *status = run_phases(node, context, call);
    if (!status && call->late_outputs) status = make_outputs(op, context, call);
    free(memory);
    return status;
}

OrtStatus *ORT_CALL mmk_compute_node(void *kernel, OrtKernelContext *context) {
    Node *node = kernel;
    const Op *op = node->op;
    mmk_call call = {.name = op->row->kernel};
    memcpy(call.attributes, node->attributes, sizeof call.attributes);
    for (int i = 0; op->row->inputs[i].name; i++) TRY(get_input(op, context, i, &call.inputs[i]));
    void *copies;
    OrtStatus *status = mmk_copy_inputs(op->row, &call, &copies) ? out_of_memory(op) : run_call(node, context, &call);
    free(copies);
    return status;
}
