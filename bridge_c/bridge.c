/* bridge.c - makes ONNX Runtime custom operators of the rows in operators.c and the kernels behind them.
 *
 * Nothing here knows a single operator: attributes, tensors, threads and errors are unpacked and packed the same way
 * for all.  The library links to neither ONNX Runtime nor Python; all it calls comes with the OrtApiBase handed in. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "operators.h"
#include "ort_abi.h"

#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

enum {
    API_MIN = 16, /* the oldest ONNX Runtime served (1.16) */
    API_MAX = 17, /* the newest that has a slot used here */
    MESSAGE = MMK_MESSAGE + 320,
    NAME = 256
};

/* ONNX Runtime hands back the address of `ort`, so it comes first. */
typedef struct {
    OrtCustomOp ort;
    const OrtApi *api;
    const OperatorRow *row;
    const mmk_operator *kernel;
} Op;

typedef struct {
    const Op *op;
    mmk_attribute attributes[MMK_MAX_ATTRIBUTES];
} Node;

#define TRY(expression)                    \
    do {                                   \
        OrtStatus *status_ = (expression); \
        if (status_) return status_;       \
    } while (0)

static OrtStatus *out_of_memory(const Op *op) {
    char text[NAME];
    snprintf(text, sizeof text, "%s: out of memory", op->row->kernel);
    return op->api->CreateStatus(ORT_FAIL, text);
}

/* ---- creating a node: its attributes ------------------------------------------------------------------------- */

/* Drops the status; 1 if there was none. */
static int succeeded(const OrtApi *api, OrtStatus *status) {
    if (!status) return 1;
    api->ReleaseStatus(status);
    return 0;
}

/* ONNX Runtime gives the same error for an attribute that is missing and for one of another type. */
static const char *type_found(const OrtApi *api, const OrtKernelInfo *info, const char *name) {
    float f;
    int64_t i;
    size_t size = 0;
    if (succeeded(api, api->AttributeFloat(info, name, &f))) return "FLOAT";
    if (succeeded(api, api->AttributeInt(info, name, &i))) return "INT";
    if (succeeded(api, api->AttributeString(info, name, NULL, &size))) return "STRING";
    /* Of an attribute of any other type than the list asked for ONNX Runtime gives an empty list. */
    size = 0;
    if (!succeeded(api, api->AttributeFloats(info, name, NULL, &size))) return NULL;
    if (size) return "FLOATS";
    if (succeeded(api, api->AttributeInts(info, name, NULL, &size)) && size) return "INTS";
    return "another type";
}

static OrtStatus *attribute_error(const Op *op, const OrtKernelInfo *info, const char *text) {
    char node[NAME] = "", message[MESSAGE];
    size_t size = sizeof node;
    succeeded(op->api, op->api->InfoNodeName(info, node, &size));
    snprintf(message, sizeof message, "%s: %s (%s node '%s')", op->row->kernel, text, op->row->type, node);
    return op->api->CreateStatus(ORT_INVALID_ARGUMENT, message);
}

static OrtStatus *read_choice(const Op *op, const OrtKernelInfo *info, const Attribute *attribute, const char *name,
                              mmk_attribute *value) {
    char text[64] = "", message[NAME], allowed[NAME] = "";
    size_t size = sizeof text;
    int known = succeeded(op->api, op->api->AttributeString(info, name, text, &size));
    for (int c = 0; attribute->choices[c]; c++) {
        if (known && !strcmp(text, attribute->choices[c])) {
            value->i = c;
            return NULL;
        }
        size_t used = strlen(allowed);
        snprintf(allowed + used, sizeof allowed - used, "%s'%s'", c ? " or " : "", attribute->choices[c]);
    }
    snprintf(message, sizeof message, "%s must be %s, got '%s'", name, allowed, known ? text : "a longer text");
    return attribute_error(op, info, message);
}

static OrtStatus *read_pair(const Op *op, const OrtKernelInfo *info, const char *name, const char *found,
                            mmk_attribute *values) {
    int64_t given[4];
    size_t size = sizeof given / sizeof *given;
    char message[NAME];
    if (!strcmp(found, "INT")) {
        size = 1;
        TRY(op->api->AttributeInt(info, name, given));
    } else if (!succeeded(op->api, op->api->AttributeInts(info, name, given, &size))) {
        size = 0; /* more than there is room for */
    }
    int fits = size == 1 || size == 2 || (size == 4 && given[0] == given[1] && given[2] == given[3]);
    if (!fits) {
        snprintf(message, sizeof message, "%s must be two integers (or four, each twice), got others", name);
        return attribute_error(op, info, message);
    }
    values[0].i = given[0];
    values[1].i = given[size / 2];
    return NULL;
}

/* Fills in one value, or two for a PAIR. */
static OrtStatus *read_attribute(const Op *op, const OrtKernelInfo *info, const Attribute *attribute,
                                 mmk_attribute *value) {
    static const char *const type_names[] = {"INT", "FLOAT", "STRING", "INTS"};
    const OrtApi *api = op->api;
    const char *name = attribute->name, *found = type_found(api, info, name);
    char message[NAME];
    float f = 0;
    if (!found && attribute->former) {
        found = type_found(api, info, attribute->former);
        if (found) name = attribute->former;
    }
    if (!found && attribute->required) {
        snprintf(message, sizeof message, "attribute %s (%s) is missing", name, type_names[attribute->type]);
        return attribute_error(op, info, message);
    }
    int is_pair = attribute->type == ATTRIBUTE_PAIR;
    if (found && strcmp(found, type_names[attribute->type]) != 0 && !(is_pair && !strcmp(found, "INT"))) {
        snprintf(message, sizeof message, "attribute %s must be of type %s, got %s", name, type_names[attribute->type],
                 found);
        return attribute_error(op, info, message);
    }
    *value = attribute->initial;
    if (is_pair) value[1] = attribute->initial;
    if (!found) return NULL;
    if (is_pair) return read_pair(op, info, name, found, value);
    if (attribute->type == ATTRIBUTE_STRING) return read_choice(op, info, attribute, name, value);
    if (attribute->type == ATTRIBUTE_INT) return api->AttributeInt(info, name, &value->i);
    TRY(api->AttributeFloat(info, name, &f));
    value->f = f;
    return NULL;
}

static OrtStatus *ORT_CALL create_node(const OrtCustomOp *custom, const OrtApi *api, const OrtKernelInfo *info,
                                       void **out) {
    const Op *op = (const Op *)custom;
    Node *node = calloc(1, sizeof *node);
    (void)api;
    *out = NULL;
    if (!node) return out_of_memory(op);
    node->op = op;
    mmk_attribute *value = node->attributes;
    for (const Attribute *a = op->row->attributes; a->name; a++) {
        OrtStatus *status = read_attribute(op, info, a, value);
        if (status) {
            free(node);
            return status;
        }
        value += a->type == ATTRIBUTE_PAIR ? 2 : 1;
    }
    *out = node;
    return NULL;
}

static void ORT_CALL destroy_node(void *node) { free(node); }

/* ---- running a node --------------------------------------------------------------------------------------- */

static OrtStatus *get_input(const Op *op, OrtKernelContext *context, int i, mmk_tensor *tensor) {
    const OrtApi *api = op->api;
    const OrtValue *value = NULL;
    OrtTensorInfo *info = NULL;
    size_t rank = 0;
    int type = MMK_ABSENT;
    TRY(api->GetInput(context, (size_t)i, &value));
    if (!value) return NULL; /* optional, left out */
    TRY(api->GetTensorInfo(value, &info));
    OrtStatus *status = api->GetTensorElementType(info, &type);
    if (!status) status = api->GetDimensionsCount(info, &rank);
    if (!status && rank > MMK_MAX_RANK) {
        char text[NAME];
        snprintf(text, sizeof text, "%s: arrays may have up to %d dimensions, got %zu", op->row->kernel, MMK_MAX_RANK,
                 rank);
        status = api->CreateStatus(ORT_INVALID_ARGUMENT, text);
    }
    if (!status) status = api->GetDimensions(info, tensor->shape, rank);
    api->ReleaseTensorInfo(info);
    if (status) return status;
    tensor->type = type;
    tensor->rank = (int32_t)rank;
    tensor->size = 1;
    for (size_t d = 0; d < rank; d++) tensor->size *= tensor->shape[d];
    return api->GetTensorMutableData((OrtValue *)value, &tensor->data);
}

static OrtStatus *make_outputs(const Op *op, OrtKernelContext *context, mmk_call *call) {
    for (int i = 0; op->row->outputs[i].name; i++) {
        mmk_tensor *tensor = &call->outputs[i];
        OrtValue *value = NULL;
        void *data = NULL;
        TRY(op->api->GetOutput(context, (size_t)i, tensor->shape, (size_t)tensor->rank, &value));
        TRY(op->api->GetTensorMutableData(value, &data));
        if (!call->late_outputs)
            tensor->data = data;
        else if (tensor->size)
            memcpy(data, tensor->data, (size_t)tensor->size * (tensor->type == MMK_INT64 ? 8 : 4));
    }
    return NULL;
}

typedef struct {
    const mmk_operator *kernel;
    mmk_call *call;
    int phase;
    int64_t work, pieces;
    atomic_int out_of_memory;
} Loop;

static void run_piece(void *argument, size_t i) {
    Loop *loop = argument;
    int64_t step = loop->work / loop->pieces, rest = loop->work % loop->pieces, n = (int64_t)i;
    int64_t begin = n * step + (n < rest ? n : rest), end = begin + step + (n < rest);
    size_t scratch_size = loop->call->worker_scratch_size[loop->phase];
    void *memory, *scratch = mmk_allocate_scratch(scratch_size, &memory);
    if (scratch_size && !scratch)
        atomic_store(&loop->out_of_memory, 1);
    else
        loop->kernel->run(loop->call, loop->phase, begin, end, scratch);
    free(memory);
}

/* One phase, on ONNX Runtime's own threads where there is enough to do. */
static OrtStatus *run_phase(const Op *op, OrtKernelContext *context, mmk_call *call, int phase) {
    enum { MOST_PIECES = 64 };
    Loop loop = {.kernel = op->kernel, .call = call, .phase = phase, .work = call->work[phase]};
    loop.pieces = loop.work / call->grain[phase];
    if (loop.pieces > MOST_PIECES) loop.pieces = MOST_PIECES;
    if (loop.pieces < 2 || op->ort.version < 17) {
        loop.pieces = 1;
        run_piece(&loop, 0);
    } else {
        TRY(op->api->ParallelFor(context, run_piece, (size_t)loop.pieces, 0, &loop));
    }
    return atomic_load(&loop.out_of_memory) ? out_of_memory(op) : NULL;
}

static OrtStatus *ORT_CALL compute(void *kernel, OrtKernelContext *context) {
    const Node *node = kernel;
    const Op *op = node->op;
    mmk_call call = {.name = op->row->kernel};
    memcpy(call.attributes, node->attributes, sizeof call.attributes);
    for (int i = 0; op->row->inputs[i].name; i++) TRY(get_input(op, context, i, &call.inputs[i]));
    if (op->kernel->prepare(&call)) return op->api->CreateStatus(ORT_INVALID_ARGUMENT, call.message);
    if (!call.late_outputs) TRY(make_outputs(op, context, &call));
    void *memory;
    call.scratch = mmk_allocate_scratch(call.scratch_size, &memory);
    if (call.scratch_size && !call.scratch) return out_of_memory(op);
    OrtStatus *status = NULL;
    for (int phase = 0; !status && phase < call.phases; phase++) status = run_phase(op, context, &call, phase);
    if (!status && call.late_outputs) status = make_outputs(op, context, &call);
    free(memory);
    return status;
}

/* ---- shape inference -------------------------------------------------------------------------------------- */

typedef struct {
    const char *name;
    size_t length;
    int64_t size;
    const char *symbol;
} Dimension;

typedef struct {
    Dimension known[MMK_MAX_DIMENSIONS];
    int count;
} Dimensions;

static size_t next_token(const char **cursor) {
    *cursor += strspn(*cursor, "[, ");
    return strcspn(*cursor, ", ]");
}

static const Dimension *find_dimension(const Dimensions *dimensions, const char *name, size_t length) {
    for (int d = 0; d < dimensions->count; d++)
        if (dimensions->known[d].length == length && !memcmp(dimensions->known[d].name, name, length))
            return &dimensions->known[d];
    return NULL;
}

/* Learns the named dimensions of an input.  A rank of 0 also stands for "rank unknown", so nothing is learnt then. */
static OrtStatus *learn_dimensions(const OrtApi *api, const OrtTensorInfo *info, const char *shape,
                                   Dimensions *dimensions) {
    int64_t sizes[MMK_MAX_RANK];
    const char *symbols[MMK_MAX_RANK] = {NULL};
    size_t rank = 0, length, d = 0;
    TRY(api->GetDimensionsCount(info, &rank));
    if (rank == 0 || rank > MMK_MAX_RANK) return NULL;
    TRY(api->GetDimensions(info, sizes, rank));
    TRY(api->GetSymbolicDimensions(info, symbols, rank));
    for (const char *cursor = shape; (length = next_token(&cursor)) && d < rank; cursor += length, d++)
        if (*cursor >= 'A' && *cursor <= 'Z' && dimensions->count < MMK_MAX_DIMENSIONS &&
            !find_dimension(dimensions, cursor, length))
            dimensions->known[dimensions->count++] = (Dimension){cursor, length, sizes[d], symbols[d]};
    return NULL;
}

/* The size that an attribute gives a dimension; -1: none. */
static int64_t attribute_value(const Op *op, const OrtShapeInferContext *context, const char *name, size_t length) {
    for (const Attribute *a = op->row->attributes; a->name; a++) {
        if (strlen(a->name) != length || memcmp(a->name, name, length) != 0) continue;
        const char *const names[] = {a->name, a->former};
        for (int n = 0; n < 2 && names[n]; n++) {
            const OrtOpAttr *attribute = NULL;
            int64_t value = -1;
            size_t size = 0;
            if (succeeded(op->api, op->api->InferAttribute(context, names[n], &attribute)) && attribute &&
                succeeded(op->api, op->api->ReadOpAttr(attribute, ORT_ATTRIBUTE_INT, &value, sizeof value, &size)))
                return value > 0 ? value : -1;
        }
        return !a->required && a->initial.i > 0 ? a->initial.i : -1;
    }
    return -1;
}

/* The size of a product of dimensions, "M*D"; -1: not known. */
static int64_t product(const Dimensions *dimensions, const char *factor, size_t length) {
    const char *end = factor + length;
    int64_t size = 1;
    while (factor < end) {
        size_t letters = strcspn(factor, "*, ]");
        const Dimension *known = find_dimension(dimensions, factor, letters);
        if (!known || known->size < 0 || (known->size && size > INT64_MAX / known->size)) return -1;
        size *= known->size;
        factor += letters + 1;
    }
    return size;
}

/* A dimension of which neither size nor name is known gets a name of its own: ONNX Runtime takes the size -1 for a size
 * like any other, and lets two tensors "of the same shape" share their memory. */
static OrtStatus *set_inferred(const Op *op, OrtShapeInferContext *context, int i, const int64_t *sizes,
                               const char **symbols, size_t rank) {
    static atomic_uint names_given;
    const OrtApi *api = op->api;
    char names[MMK_MAX_RANK][sizeof MMK_LIBRARY + 12]; /* with the library's name: there may be two in a session */
    OrtTensorInfo *info = NULL;
    for (size_t d = 0; d < rank; d++)
        if (sizes[d] < 0 && !(symbols[d] && *symbols[d])) {
            snprintf(names[d], sizeof names[d], MMK_LIBRARY "_%u", atomic_fetch_add(&names_given, 1));
            symbols[d] = names[d];
        }
    TRY(api->CreateTensorInfo(&info));
    OrtStatus *status = api->SetTensorElementType(info, op->row->outputs[i].type);
    if (!status) status = api->SetDimensions(info, sizes, rank);
    if (!status) status = api->SetSymbolicDimensions(info, symbols, rank);
    if (!status) status = api->InferSetOutput(context, (size_t)i, info);
    api->ReleaseTensorInfo(info);
    return status;
}

static OrtStatus *infer_output(const Op *op, OrtShapeInferContext *context, int i, const Dimensions *dimensions) {
    int64_t sizes[MMK_MAX_RANK];
    const char *symbols[MMK_MAX_RANK];
    size_t rank = 0, length;
    for (const char *cursor = op->row->outputs[i].shape; (length = next_token(&cursor)) && rank < MMK_MAX_RANK;
         cursor += length) {
        const Dimension *known = find_dimension(dimensions, cursor, length);
        symbols[rank] = known && known->symbol ? known->symbol : "";
        if (known)
            sizes[rank++] = known->size;
        else if (*cursor >= '0' && *cursor <= '9')
            sizes[rank++] = *cursor - '0';
        else if (memchr(cursor, '*', length))
            sizes[rank++] = product(dimensions, cursor, length);
        else
            sizes[rank++] = attribute_value(op, context, cursor, length);
    }
    return set_inferred(op, context, i, sizes, symbols, rank);
}

/* The output has all dimensions of the first input, and perhaps another type. */
static OrtStatus *infer_same(const Op *op, OrtShapeInferContext *context, int i) {
    const OrtApi *api = op->api;
    OrtTensorInfo *input = NULL; /* belongs to the context */
    int64_t sizes[MMK_MAX_RANK];
    const char *symbols[MMK_MAX_RANK] = {NULL};
    size_t rank = 0;
    TRY(api->InferInputInfo(context, 0, &input));
    TRY(api->GetDimensionsCount(input, &rank));
    if (rank == 0 || rank > MMK_MAX_RANK) return NULL;
    TRY(api->GetDimensions(input, sizes, rank));
    TRY(api->GetSymbolicDimensions(input, symbols, rank));
    return set_inferred(op, context, i, sizes, symbols, rank);
}

static OrtStatus *infer_outputs(const Op *op, OrtShapeInferContext *context) {
    Dimensions dimensions = {.count = 0};
    for (int i = 0; op->row->inputs[i].name; i++) {
        OrtTensorInfo *info = NULL; /* belongs to the context */
        if (op->row->inputs[i].optional) continue;
        TRY(op->api->InferInputInfo(context, (size_t)i, &info));
        TRY(learn_dimensions(op->api, info, op->row->inputs[i].shape, &dimensions));
    }
    for (int i = 0; op->row->outputs[i].name; i++)
        TRY(strstr(op->row->outputs[i].shape, "...") ? infer_same(op, context, i)
                                                     : infer_output(op, context, i, &dimensions));
    return NULL;
}

/* ONNX Runtime neither looks at a status from here nor frees it. */
static OrtStatus *ORT_CALL infer(const OrtCustomOp *custom, OrtShapeInferContext *context) {
    const Op *op = (const Op *)custom;
    succeeded(op->api, infer_outputs(op, context));
    return NULL;
}

/* ---- the face of an operator ------------------------------------------------------------------------------ */

static const OperatorRow *row_of(const OrtCustomOp *custom) { return ((const Op *)custom)->row; }

static size_t count(const Formal *formals) {
    size_t n = 0;
    while (formals[n].name) n++;
    return n;
}

static int has_optional_input(const OperatorRow *row) {
    for (const Formal *input = row->inputs; input->name; input++)
        if (input->optional) return 1;
    return 0;
}

static const char *ORT_CALL get_name(const OrtCustomOp *custom) { return row_of(custom)->type; }
static const char *ORT_CALL get_provider(const OrtCustomOp *custom) {
    (void)custom;
    return NULL; /* CPU */
}
static size_t ORT_CALL get_input_count(const OrtCustomOp *custom) { return count(row_of(custom)->inputs); }
static size_t ORT_CALL get_output_count(const OrtCustomOp *custom) { return count(row_of(custom)->outputs); }
static int ORT_CALL get_input_type(const OrtCustomOp *custom, size_t i) { return row_of(custom)->inputs[i].type; }
static int ORT_CALL get_output_type(const OrtCustomOp *custom, size_t i) { return row_of(custom)->outputs[i].type; }
static int ORT_CALL get_input_characteristic(const OrtCustomOp *custom, size_t i) {
    return row_of(custom)->inputs[i].optional ? ORT_OPTIONAL : ORT_REQUIRED;
}
static int ORT_CALL get_output_characteristic(const OrtCustomOp *custom, size_t i) {
    (void)custom;
    (void)i;
    return ORT_REQUIRED;
}
static int ORT_CALL get_memory_type(const OrtCustomOp *custom, size_t i) {
    (void)custom;
    (void)i;
    return 0; /* the default: the provider's own memory */
}
static int ORT_CALL one(const OrtCustomOp *custom) {
    (void)custom;
    return 1;
}

static const mmk_operator *find_kernel(const char *name) {
    const mmk_operator *kernel = mmk_operators;
    while (kernel->name && strcmp(kernel->name, name) != 0) kernel++;
    return kernel->name ? kernel : NULL;
}

static Op make_op(const OperatorRow *row, const OrtApi *api, int runtime) {
    /* Before 1.24 ONNX Runtime itself crashes in shape inference on an optional input left out as "". */
    int may_infer = runtime >= 17 && (runtime >= 24 || !has_optional_input(row));
    return (Op){.api = api,
                .row = row,
                .kernel = find_kernel(row->kernel),
                /* CreateKernel and KernelCompute stay NULL: 1.16 takes the V2 pair only then. */
                .ort = {.version = (uint32_t)(runtime < API_MAX ? runtime : API_MAX),
                        .GetName = get_name,
                        .GetExecutionProviderType = get_provider,
                        .GetInputType = get_input_type,
                        .GetInputTypeCount = get_input_count,
                        .GetOutputType = get_output_type,
                        .GetOutputTypeCount = get_output_count,
                        .KernelDestroy = destroy_node,
                        .GetInputCharacteristic = get_input_characteristic,
                        .GetOutputCharacteristic = get_output_characteristic,
                        .GetInputMemoryType = get_memory_type,
                        .GetVariadicInputMinArity = one,
                        .GetVariadicInputHomogeneity = one,
                        .GetVariadicOutputMinArity = one,
                        .GetVariadicOutputHomogeneity = one,
                        .CreateKernelV2 = create_node,
                        .KernelComputeV2 = compute,
                        .InferOutputShape = may_infer ? infer : NULL}};
}

/* ---- registration ----------------------------------------------------------------------------------------- */

/* ONNX Runtime keeps raw pointers to all of this, so it lives as long as the library.  One for each runtime in the
 * process; there is hardly ever more than one, and the first takes no heap, for hosts that load and unload. */
typedef struct Registry {
    struct Registry *next;
    const OrtApi *api;
    int domain_count;
    const char *names[MOST_DOMAINS];
    OrtCustomOpDomain *domains[MOST_DOMAINS];
    Op ops[MOST_OPERATORS];
} Registry;

static OrtStatus *table_error(const OrtApi *api, const OperatorRow *row, const char *text) {
    char message[NAME];
    snprintf(message, sizeof message, MMK_LIBRARY ": the row of %s in operators.c %s", row->type, text);
    return api->CreateStatus(ORT_FAIL, message);
}

/* Puts an operator into one of its domains, which is made when its first operator comes. */
static OrtStatus *add_to_domain(Registry *registry, const Op *op, const char *domain) {
    int d = 0;
    while (d < registry->domain_count && strcmp(registry->names[d], domain) != 0) d++;
    if (d == MOST_DOMAINS) return table_error(op->api, op->row, "names one domain more than a library may have");
    if (d == registry->domain_count) {
        TRY(op->api->CreateCustomOpDomain(domain, &registry->domains[d]));
        registry->names[registry->domain_count++] = domain;
    }
    return op->api->CustomOpDomain_Add(registry->domains[d], &op->ort);
}

static OrtStatus *fill_registry(Registry *registry, const OrtApi *api, int runtime) {
    registry->api = api;
    for (int r = 0; operator_rows[r].type; r++) {
        const OperatorRow *row = &operator_rows[r];
        if (r == MOST_OPERATORS) return table_error(api, row, "is one more than a library may have");
        registry->ops[r] = make_op(row, api, runtime);
        if (!registry->ops[r].kernel) return table_error(api, row, "names a kernel that kernels.h does not list");
        for (const char *const *domain = row->domains; *domain; domain++)
            TRY(add_to_domain(registry, &registry->ops[r], *domain));
    }
    return NULL;
}

static OrtStatus *make_registry(const OrtApi *api, int runtime, Registry **out) {
    static Registry first;
    Registry *registry = first.api ? calloc(1, sizeof *registry) : &first;
    if (!registry) return api->CreateStatus(ORT_FAIL, MMK_LIBRARY ": out of memory");
    OrtStatus *status = fill_registry(registry, api, runtime);
    if (!status) {
        *out = registry;
        return NULL;
    }
    for (int d = 0; d < registry->domain_count; d++) api->ReleaseCustomOpDomain(registry->domains[d]);
    if (registry == &first)
        memset(registry, 0, sizeof *registry);
    else
        free(registry);
    return status;
}

EXPORT OrtStatus *ORT_CALL RegisterCustomOps(OrtSessionOptions *options, const OrtApiBase *base) {
    static Registry *registries;
    static atomic_flag lock = ATOMIC_FLAG_INIT;
    /* GetApi would answer a version that is too new with NULL and a line on stderr, so ask what there is. */
    int runtime = 0;
    if (sscanf(base->GetVersionString(), "%*d.%d", &runtime) != 1) runtime = API_MIN;
    const OrtApi *api = base->GetApi((uint32_t)(runtime < API_MAX ? runtime : API_MAX));
    if (!api) return NULL; /* there is nothing to make a status with */
    if (runtime < API_MIN) {
        char text[NAME];
        snprintf(text, sizeof text, MMK_LIBRARY ": ONNX Runtime 1.%d or newer is required, got %s", API_MIN,
                 base->GetVersionString());
        return api->CreateStatus(ORT_NOT_IMPLEMENTED, text);
    }
    OrtStatus *status = NULL;
    while (atomic_flag_test_and_set(&lock)) {
    }
    Registry *registry = registries;
    while (registry && registry->api != api) registry = registry->next;
    if (!registry) {
        status = make_registry(api, runtime, &registry);
        if (!status) {
            registry->next = registries;
            registries = registry;
        }
    }
    atomic_flag_clear(&lock);
    for (int d = 0; !status && d < registry->domain_count; d++)
        status = api->AddCustomOpDomain(options, registry->domains[d]);
    return status;
}
