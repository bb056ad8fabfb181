/* case.c - see case.h. */
#include "case.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_ELEMENTS = 1 << 14 };

typedef struct {
    const uint8_t *data;
    size_t size;
} Bytes;

static void take_bytes(Bytes *bytes, void *out, size_t count) {
    size_t there = count < bytes->size ? count : bytes->size;
    memset(out, 0, count);
    if (there) memcpy(out, bytes->data, there);
    bytes->data += there;
    bytes->size -= there;
}

static uint64_t take(Bytes *bytes, size_t count) {
    uint64_t value = 0;
    take_bytes(bytes, &value, count);
    return value;
}

static void read_attribute(Bytes *bytes, const Attribute *formal, OrtKernelInfo *node) {
    unsigned kind = (unsigned)take(bytes, 1);
    OrtOpAttr *attribute = &node->attributes[node->count];
    if (!(kind & 15) || (kind & 15) > 5) return;
    memset(attribute, 0, sizeof *attribute);
    attribute->name = kind & 16 && formal->former ? formal->former : formal->name;
    attribute->kind = (int)(kind & 15) - 1;
    attribute->count = 1;
    if (attribute->kind == FAKE_STRING) take_bytes(bytes, attribute->text, take(bytes, 1) % sizeof attribute->text);
    if (attribute->kind >= FAKE_INTS) attribute->count = take(bytes, 1) % FAKE_MAX_LIST;
    if (attribute->kind == FAKE_INT || attribute->kind == FAKE_INTS)
        take_bytes(bytes, attribute->ints, attribute->count * sizeof(int64_t));
    if (attribute->kind == FAKE_FLOAT || attribute->kind == FAKE_FLOATS)
        take_bytes(bytes, attribute->floats, attribute->count * sizeof(float));
    attribute->text[sizeof attribute->text - 1] = 0;
    node->count++;
}

/* Fills a tensor with numbers of a kind: small, coordinates, or such as break things. */
static void fill(OrtValue *value, unsigned kind, uint32_t state) {
    static const float strange[] = {
        0, -0.0f, 1, -1, 1e-45f, 1e30f, 3e38f, -3e38f, __builtin_inff(), -__builtin_inff(), __builtin_nanf(""), 0.5f};
    size_t width = mmk_element_size(value->info.type), count = value->bytes / width;
    for (size_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        unsigned random = state >> 8;
        double number = kind % 4 == 1   ? (int)(random % 4000) * 1e-3 - 2
                        : kind % 4 == 2 ? random % 64
                        : kind % 4 == 3 ? strange[random % 12]
                                        : (int)(random % 200) - 20;
        if (value->info.type == MMK_INT64)
            ((int64_t *)value->data)[i] = kind % 4 == 3 ? (int64_t)(random * 0x9e3779b97f4a7c15u) : (int64_t)number;
        else
            ((float *)value->data)[i] = (float)number;
    }
}

static int read_input(Bytes *bytes, const Formal *formal, OrtValue **value) {
    int64_t shape[FAKE_MAX_RANK], elements = 1;
    if (!take(bytes, 1)) return 1;
    size_t rank = take(bytes, 1) % 18;
    for (size_t d = 0; d < rank; d++) {
        shape[d] = (int64_t)take(bytes, 2);
        if (elements && shape[d] > MAX_ELEMENTS / elements) return 0;
        elements *= shape[d];
    }
    *value = fake_new_value(formal->type, rank, shape);
    unsigned filling = (unsigned)take(bytes, 1);
    if (filling)
        fill(*value, filling, (uint32_t)take(bytes, 4));
    else if ((*value)->bytes)
        take_bytes(bytes, (*value)->data, (*value)->bytes);
    return 1;
}

int read_case(const uint8_t *data, size_t size, Case *given) {
    Bytes bytes = {data, size};
    memset(given, 0, sizeof *given);
    given->op = fake_ops[take(&bytes, 1) % (uint64_t)fake_op_count];
    given->failing_call = (int)take(&bytes, 1);
    given->threads = (int)take(&bytes, 1) % 4;
    for (const Attribute *formal = given->op->row->attributes; formal->name; formal++)
        read_attribute(&bytes, formal, &given->node);
    for (int i = 0; given->op->row->inputs[i].name; i++) {
        const Formal *formal = &given->op->row->inputs[i];
        if (!read_input(&bytes, formal, &given->inputs[i])) {
            free_case(given);
            return 0;
        }
        if (!given->inputs[i] && !formal->optional) { /* ONNX Runtime refuses the model */
            free_case(given);
            return 0;
        }
    }
    return 1;
}

void free_case(Case *given) {
    for (int i = 0; i < FAKE_MAX_TENSORS; i++) fake_free_value(given->inputs[i]);
    memset(given->inputs, 0, sizeof given->inputs);
}

/* Infers shapes twice: from the inputs' own, and from such as are not known. */
static void infer(const Case *given) {
    OrtShapeInferContext context = {.node = &given->node};
    if (!given->op->ort.InferOutputShapeFn) return;
    for (int unknown = 0; unknown < 2; unknown++) {
        context.input_count = 0;
        for (int i = 0; given->op->row->inputs[i].name; i++) {
            OrtTensorTypeAndShapeInfo *info = &context.inputs[context.input_count++];
            memset(info, 0, sizeof *info);
            if (given->inputs[i]) *info = given->inputs[i]->info;
            if (unknown)
                for (size_t d = 0; d < info->rank; d += 2) info->shape[d] = -1;
        }
        if (given->op->ort.InferOutputShapeFn(&given->op->ort, &context)) abort(); /* ONNX Runtime would leak it */
    }
}

static int release(const Op *op, OrtStatus *status) {
    int failed = status != NULL;
    if (failed) {
        if (!status->text[0]) abort();
        op->api->ReleaseStatus(status);
    }
    return failed;
}

int run_case(const Case *given, OrtKernelContext *context) {
    const Op *op = given->op;
    void *kernel = NULL;
    memset(context, 0, sizeof *context);
    memcpy(context->inputs, given->inputs, sizeof context->inputs);
    context->row = op->row;
    context->threads = given->threads;
    fake_failing_call = given->failing_call;
    infer(given);
    if (release(op, op->ort.CreateKernelV2(&op->ort, op->api, &given->node, &kernel))) {
        if (kernel) abort();
        fake_failing_call = 0;
        return 1;
    }
    int failed = release(op, op->ort.KernelComputeV2(kernel, context));
    op->ort.KernelDestroy(kernel);
    fake_failing_call = 0;
    return failed;
}

void free_outputs(OrtKernelContext *context) {
    for (int i = 0; i < FAKE_MAX_TENSORS; i++) fake_free_value(context->outputs[i]);
}
