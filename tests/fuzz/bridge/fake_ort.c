/* fake_ort.c - see fake_ort.h. */
#include "fake_ort.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pool.h"

enum { MAX_OUTPUT_BYTES = 4 << 20 };

const Op *fake_ops[MAX_OPERATORS];
int fake_op_count;
_Thread_local int fake_failing_call, fake_failed_calls;

static OrtStatus *create_status(int code, const char *text) {
    OrtStatus *status = malloc(sizeof *status);
    if (!status) abort();
    status->code = code;
    snprintf(status->text, sizeof status->text, "%s", text);
    return status;
}

static void release_status(OrtStatus *status) { free(status); }

/* Returns a status if this is the call that fails. */
static OrtStatus *next_call(void) {
    if (!fake_failing_call || --fake_failing_call) return NULL;
    fake_failed_calls++;
    return create_status(ORT_FAIL, "a call of the API failed");
}

#define COUNTED TRY(next_call())

/* ---- nodes ---- */

static const OrtOpAttr *find(const OrtKernelInfo *info, const char *name) {
    for (int a = 0; a < info->count; a++)
        if (!strcmp(info->attributes[a].name, name)) return &info->attributes[a];
    return NULL;
}

static OrtStatus *missing(void) { return create_status(ORT_FAIL, "no such attribute, or of another type"); }

static OrtStatus *get_float(const OrtKernelInfo *info, const char *name, float *value) {
    COUNTED;
    const OrtOpAttr *attribute = find(info, name);
    if (!attribute || attribute->kind != FAKE_FLOAT) return missing();
    *value = attribute->floats[0];
    return NULL;
}

static OrtStatus *get_int(const OrtKernelInfo *info, const char *name, int64_t *value) {
    COUNTED;
    const OrtOpAttr *attribute = find(info, name);
    if (!attribute || attribute->kind != FAKE_INT) return missing();
    *value = attribute->ints[0];
    return NULL;
}

/* Copies text with its NUL, or only tells its size. */
static OrtStatus *give_text(const char *text, char *out, size_t *size) {
    size_t needed = strlen(text) + 1, room = *size;
    *size = needed;
    if (!out) return NULL;
    if (room < needed) return create_status(ORT_INVALID_ARGUMENT, "the buffer is too small");
    memcpy(out, text, needed);
    return NULL;
}

static OrtStatus *get_string(const OrtKernelInfo *info, const char *name, char *out, size_t *size) {
    COUNTED;
    const OrtOpAttr *attribute = find(info, name);
    if (!attribute || attribute->kind != FAKE_STRING) return missing();
    return give_text(attribute->text, out, size);
}

static OrtStatus *get_node_name(const OrtKernelInfo *info, char *out, size_t *size) {
    (void)info;
    COUNTED;
    return give_text("a node", out, size);
}

/* A list of another type is an empty one, as in ONNX Runtime. */
static OrtStatus *give_list(const OrtOpAttr *attribute, int fits, const void *list, size_t width, void *out,
                            size_t *size) {
    if (!attribute || attribute->kind < FAKE_INTS) return missing();
    size_t room = *size, count = fits ? attribute->count : 0;
    *size = count;
    if (!out) return NULL;
    if (room < count) return create_status(ORT_INVALID_ARGUMENT, "the buffer is too small");
    memcpy(out, list, count * width);
    return NULL;
}

static OrtStatus *get_floats(const OrtKernelInfo *info, const char *name, float *out, size_t *size) {
    COUNTED;
    const OrtOpAttr *attribute = find(info, name);
    int fits = attribute && attribute->kind == FAKE_FLOATS;
    return give_list(attribute, fits, attribute ? attribute->floats : NULL, sizeof(float), out, size);
}

static OrtStatus *get_ints(const OrtKernelInfo *info, const char *name, int64_t *out, size_t *size) {
    COUNTED;
    const OrtOpAttr *attribute = find(info, name);
    int fits = attribute && attribute->kind == FAKE_INTS;
    return give_list(attribute, fits, attribute ? attribute->ints : NULL, sizeof(int64_t), out, size);
}

/* ---- tensors ---- */

OrtValue *fake_new_value(int type, size_t rank, const int64_t *shape) {
    OrtValue *value = calloc(1, sizeof *value);
    if (!value || rank > FAKE_MAX_RANK) abort();
    size_t size = mmk_element_size(type);
    value->info.type = type;
    value->info.rank = rank;
    for (size_t d = 0; d < rank; d++) {
        value->info.shape[d] = shape[d];
        if (shape[d] < 0 || (shape[d] && size > MAX_OUTPUT_BYTES / (size_t)shape[d])) {
            free(value);
            return NULL;
        }
        size *= (size_t)shape[d];
    }
    value->bytes = size;
    value->data = malloc(size); /* of the exact size, so that a byte beyond it is found */
    return value;
}

void fake_free_value(OrtValue *value) {
    if (!value) return;
    free(value->data);
    free(value);
}

static OrtStatus *get_type_and_shape(const OrtValue *value, OrtTensorTypeAndShapeInfo **info) {
    COUNTED;
    *info = malloc(sizeof **info);
    if (!*info) abort();
    **info = value->info;
    return NULL;
}

static OrtStatus *refer_to_type_and_shape(const OrtValue *value, int *type, const int64_t **shape, size_t *rank) {
    COUNTED;
    *type = value->info.type;
    *rank = value->info.rank;
    *shape = *rank ? value->info.shape : NULL;
    return NULL;
}

static OrtStatus *create_info(OrtTensorTypeAndShapeInfo **info) {
    COUNTED;
    *info = calloc(1, sizeof **info);
    return NULL;
}

static void release_info(OrtTensorTypeAndShapeInfo *info) { free(info); }

static OrtStatus *get_type(const OrtTensorTypeAndShapeInfo *info, int *type) {
    COUNTED;
    *type = info->type;
    return NULL;
}

static OrtStatus *set_type(OrtTensorTypeAndShapeInfo *info, int type) {
    COUNTED;
    info->type = type;
    return NULL;
}

static OrtStatus *get_rank(const OrtTensorTypeAndShapeInfo *info, size_t *rank) {
    COUNTED;
    *rank = info->rank;
    return NULL;
}

static OrtStatus *get_shape(const OrtTensorTypeAndShapeInfo *info, int64_t *shape, size_t rank) {
    COUNTED;
    memcpy(shape, info->shape, sizeof *shape * (rank < info->rank ? rank : info->rank));
    return NULL;
}

static OrtStatus *set_shape(OrtTensorTypeAndShapeInfo *info, const int64_t *shape, size_t rank) {
    COUNTED;
    if (rank > FAKE_MAX_RANK) abort();
    info->rank = rank;
    memcpy(info->shape, shape, sizeof *shape * rank);
    return NULL;
}

static OrtStatus *get_symbols(const OrtTensorTypeAndShapeInfo *info, const char **symbols, size_t rank) {
    static const char *const names[] = {"", "N", "height"};
    COUNTED;
    for (size_t d = 0; d < rank; d++) symbols[d] = info->shape[d] < 0 ? names[d % 3] : "";
    return NULL;
}

static OrtStatus *set_symbols(OrtTensorTypeAndShapeInfo *info, const char **symbols, size_t rank) {
    COUNTED;
    size_t length = 0;
    for (size_t d = 0; d < rank; d++) length += strlen(symbols[d]);
    return length > 1000 || rank != info->rank ? create_status(ORT_INVALID_ARGUMENT, "strange symbols") : NULL;
}

static OrtStatus *get_data(OrtValue *value, void **data) {
    COUNTED;
    *data = value->data;
    return NULL;
}

/* ---- contexts ---- */

static OrtStatus *get_input(const OrtKernelContext *context, size_t i, const OrtValue **value) {
    COUNTED;
    if (i >= FAKE_MAX_TENSORS) return create_status(ORT_INVALID_ARGUMENT, "no such input");
    *value = context->inputs[i];
    return NULL;
}

static OrtStatus *get_output(OrtKernelContext *context, size_t i, const int64_t *shape, size_t rank, OrtValue **value) {
    COUNTED;
    if (i >= FAKE_MAX_TENSORS || context->outputs[i]) abort();
    context->outputs[i] = *value = fake_new_value(context->row->outputs[i].type, rank, shape);
    return *value ? NULL : create_status(ORT_FAIL, "not enough memory for an output");
}

/* On the threads of the numpy API, so that they are tested too. */
static OrtStatus *parallel_for(const OrtKernelContext *context, void (*run)(void *, size_t), size_t total,
                               size_t batches, void *argument) {
    int32_t threads = context->threads;
    mmk_call call = {.front_end = &threads};
    (void)batches;
    COUNTED;
    mmk_pool_run(&call, run, argument, total);
    return NULL;
}

static OrtStatus *get_input_info(const OrtShapeInferContext *context, size_t i, OrtTensorTypeAndShapeInfo **info) {
    COUNTED;
    if (i >= (size_t)context->input_count) return create_status(ORT_INVALID_ARGUMENT, "no such input");
    *info = (OrtTensorTypeAndShapeInfo *)&context->inputs[i];
    return NULL;
}

static OrtStatus *get_attribute(const OrtShapeInferContext *context, const char *name, const OrtOpAttr **attribute) {
    COUNTED;
    *attribute = find(context->node, name);
    return *attribute ? NULL : missing();
}

static OrtStatus *read_attribute(const OrtOpAttr *attribute, int type, void *value, size_t bytes, size_t *size) {
    COUNTED;
    if (type != ORT_OP_ATTR_INT || attribute->kind != FAKE_INT || bytes < sizeof(int64_t)) return missing();
    memcpy(value, attribute->ints, sizeof(int64_t));
    *size = sizeof(int64_t);
    return NULL;
}

static OrtStatus *set_output_info(const OrtShapeInferContext *context, size_t i,
                                  const OrtTensorTypeAndShapeInfo *info) {
    (void)context;
    COUNTED;
    if (i >= FAKE_MAX_TENSORS || info->rank > FAKE_MAX_RANK) abort();
    return NULL;
}

/* ---- registration ---- */

struct OrtCustomOpDomain {
    int operators;
};

static OrtStatus *create_domain(const char *name, OrtCustomOpDomain **domain) {
    if (!*name) abort();
    COUNTED;
    *domain = calloc(1, sizeof **domain);
    return NULL;
}

static void release_domain(OrtCustomOpDomain *domain) { free(domain); }

static OrtStatus *add_operator(OrtCustomOpDomain *domain, const OrtCustomOp *operator) {
    COUNTED;
    domain->operators++;
    for (int i = 0; i < fake_op_count; i++)
        if (fake_ops[i]->row == ((const Op *)operator)->row) return NULL;
    fake_ops[fake_op_count++] = (const Op *)operator;
    return NULL;
}

static OrtStatus *add_domain(OrtSessionOptions *options, OrtCustomOpDomain *domain) {
    (void)options;
    COUNTED;
    return domain->operators ? NULL : create_status(ORT_FAIL, "an empty domain");
}

static const OrtApi api = {
    .CreateStatus = create_status,
    .ReleaseStatus = release_status,
    .CreateCustomOpDomain = create_domain,
    .ReleaseCustomOpDomain = release_domain,
    .CustomOpDomain_Add = add_operator,
    .AddCustomOpDomain = add_domain,
    .GetTensorMutableData = get_data,
    .CreateTensorTypeAndShapeInfo = create_info,
    .ReleaseTensorTypeAndShapeInfo = release_info,
    .SetTensorElementType = set_type,
    .SetDimensions = set_shape,
    .GetTensorElementType = get_type,
    .GetDimensionsCount = get_rank,
    .GetDimensions = get_shape,
    .GetSymbolicDimensions = get_symbols,
    .SetSymbolicDimensions = set_symbols,
    .GetTensorTypeAndShape = get_type_and_shape,
    .KernelInfoGetAttribute_float = get_float,
    .KernelInfoGetAttribute_int64 = get_int,
    .KernelInfoGetAttribute_string = get_string,
    .KernelInfoGetAttributeArray_float = get_floats,
    .KernelInfoGetAttributeArray_int64 = get_ints,
    .KernelInfo_GetNodeName = get_node_name,
    .KernelContext_GetInput = get_input,
    .KernelContext_GetOutput = get_output,
    .KernelContext_ParallelFor = parallel_for,
    .ShapeInferContext_GetInputTypeShape = get_input_info,
    .ShapeInferContext_GetAttribute = get_attribute,
    .ShapeInferContext_SetOutputTypeShape = set_output_info,
    .ReadOpAttr = read_attribute,
    .GetTensorElementTypeAndShapeDataReference = refer_to_type_and_shape,
};

static const OrtApi *get_api(uint32_t version) { return version <= 24 ? &api : NULL; }
static const char *get_version(void) { return "1.24.0"; }

OrtStatus *ORT_CALL RegisterCustomOps(OrtSessionOptions *options, const OrtApiBase *base);

int fake_register(void) {
    static const OrtApiBase base = {get_api, get_version};
    OrtStatus *status = RegisterCustomOps(NULL, &base);
    int failed = status != NULL;
    release_status(status);
    return failed;
}
