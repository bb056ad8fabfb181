/* bridge.c - runs a node: unpacks its inputs, calls the kernel on ONNX Runtime's threads, and packs the outputs. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bridge.h"

typedef struct {
    const Op *op;
    mmk_attribute attributes[MMK_MAX_ATTRIBUTES];
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

static OrtStatus *get_input(const Op *op, OrtKernelContext *context, int i, mmk_tensor *tensor) {
    const OrtApi *api = op->api;
    const OrtValue *value = NULL;
    OrtTensorTypeAndShapeInfo *info = NULL;
    size_t rank = 0;
    int type = MMK_ABSENT;
    TRY(api->KernelContext_GetInput(context, (size_t)i, &value));
    if (!value) return NULL; /* optional, left out */
    TRY(api->GetTensorTypeAndShape(value, &info));
    OrtStatus *status = api->GetTensorElementType(info, &type);
    if (!status) status = api->GetDimensionsCount(info, &rank);
    if (!status && rank > MMK_MAX_RANK) {
        char text[NAME_SIZE];
        snprintf(text, sizeof text, "%s: arrays may have up to %d dimensions, got %zu", op->row->kernel, MMK_MAX_RANK,
                 rank);
        status = api->CreateStatus(ORT_INVALID_ARGUMENT, text);
    }
    if (!status) status = api->GetDimensions(info, tensor->shape, rank);
    api->ReleaseTensorTypeAndShapeInfo(info);
    if (status) return status;
    tensor->type = type;
    tensor->rank = (int32_t)rank;
    tensor->size = count_elements(tensor->shape, rank);
    if (tensor->size < 0) return too_large(op, i);
    return api->GetTensorMutableData((OrtValue *)value, &tensor->data);
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

/* A phase of a call, split into chunks for ONNX Runtime's threads. */
typedef struct {
    const mmk_operator *kernel;
    mmk_call *call;
    int phase;
    int64_t work, chunks;
    atomic_int out_of_memory;
} Loop;

static void run_chunk(void *argument, size_t i) {
    Loop *loop = argument;
    int64_t step = loop->work / loop->chunks, rest = loop->work % loop->chunks, n = (int64_t)i;
    int64_t begin = n * step + (n < rest ? n : rest), end = begin + step + (n < rest);
    size_t scratch_size = loop->call->worker_scratch_size[loop->phase];
    void *memory, *scratch = mmk_allocate_scratch(scratch_size, &memory);
    if (scratch_size && !scratch)
        atomic_store(&loop->out_of_memory, 1);
    else
        loop->kernel->run(loop->call, loop->phase, begin, end, scratch);
    free(memory);
}

/* Runs a phase, on several threads if there is enough work. */
static OrtStatus *run_phase(const Op *op, OrtKernelContext *context, mmk_call *call, int phase) {
    enum { MAX_CHUNKS = 64 };
    Loop loop = {.kernel = op->kernel, .call = call, .phase = phase, .work = call->work[phase]};
    loop.chunks = loop.work / call->grain[phase];
    if (loop.chunks > MAX_CHUNKS) loop.chunks = MAX_CHUNKS;
    if (loop.chunks < 2 || op->ort.version < 17) {
        loop.chunks = 1;
        run_chunk(&loop, 0);
    } else {
        TRY(op->api->KernelContext_ParallelFor(context, run_chunk, (size_t)loop.chunks, 0, &loop));
    }
    return atomic_load(&loop.out_of_memory) ? out_of_memory(op) : NULL;
}

/* Runs a call whose inputs are set, and packs its outputs. */
static OrtStatus *run_call(const Op *op, OrtKernelContext *context, mmk_call *call) {
    const OrtApi *api = op->api;
    if (op->kernel->prepare(call) || call->stopped) return api->CreateStatus(ORT_INVALID_ARGUMENT, call->message);
    if (!call->late_outputs) TRY(make_outputs(op, context, call));
    void *memory;
    call->scratch = mmk_allocate_scratch(call->scratch_size, &memory);
    if (call->scratch_size && !call->scratch) return out_of_memory(op);
    OrtStatus *status = NULL;
    for (int phase = 0; !status && phase < call->phases; phase++) {
        status = run_phase(op, context, call, phase);
        if (!status && call->stopped) status = api->CreateStatus(ORT_INVALID_ARGUMENT, call->message);
    }
    if (!status && call->late_outputs) status = make_outputs(op, context, call);
    free(memory);
    return status;
}

OrtStatus *ORT_CALL mmk_compute_node(void *kernel, OrtKernelContext *context) {
    const Node *node = kernel;
    const Op *op = node->op;
    mmk_call call = {.name = op->row->kernel};
    memcpy(call.attributes, node->attributes, sizeof call.attributes);
    for (int i = 0; op->row->inputs[i].name; i++) TRY(get_input(op, context, i, &call.inputs[i]));
    void *copies;
    OrtStatus *status = mmk_copy_inputs(op->row, &call, &copies) ? out_of_memory(op) : run_call(op, context, &call);
    free(copies);
    return status;
}
