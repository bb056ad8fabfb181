/* registry.c - registers every row of operators.c as a custom operator of ONNX Runtime. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bridge.h"

#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

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
    return row_of(custom)->inputs[i].optional ? INPUT_OUTPUT_OPTIONAL : INPUT_OUTPUT_REQUIRED;
}
static int ORT_CALL get_output_characteristic(const OrtCustomOp *custom, size_t i) {
    (void)custom;
    (void)i;
    return INPUT_OUTPUT_REQUIRED;
}
static int ORT_CALL get_memory_type(const OrtCustomOp *custom, size_t i) {
    (void)custom;
    (void)i;
    return 0; /* the default: the provider's own memory */
}
static int ORT_CALL get_arity(const OrtCustomOp *custom) {
    (void)custom;
    return 1;
}

static Op make_op(const OperatorRow *row, const OrtApi *api, int runtime) {
    /* Before 1.24 ONNX Runtime itself crashes in shape inference on an optional input left out as "". */
    int may_infer = runtime >= 17 && (runtime >= 24 || !has_optional_input(row));
    return (Op){.api = api,
                .row = row,
                .kernel = mmk_find_kernel(row->kernel),
                .runtime = runtime,
                /* CreateKernel and KernelCompute stay NULL: 1.16 takes the V2 pair only then. */
                .ort = {.version = (uint32_t)(runtime < ORT_CUSTOM_OP_VERSION ? runtime : ORT_CUSTOM_OP_VERSION),
                        .GetName = get_name,
                        .GetExecutionProviderType = get_provider,
                        .GetInputType = get_input_type,
                        .GetInputTypeCount = get_input_count,
                        .GetOutputType = get_output_type,
                        .GetOutputTypeCount = get_output_count,
                        .KernelDestroy = mmk_destroy_node,
                        .GetInputCharacteristic = get_input_characteristic,
                        .GetOutputCharacteristic = get_output_characteristic,
                        .GetInputMemoryType = get_memory_type,
                        .GetVariadicInputMinArity = get_arity,
                        .GetVariadicInputHomogeneity = get_arity,
                        .GetVariadicOutputMinArity = get_arity,
                        .GetVariadicOutputHomogeneity = get_arity,
                        .CreateKernelV2 = mmk_create_node,
                        .KernelComputeV2 = mmk_compute_node,
                        .InferOutputShapeFn = may_infer ? mmk_infer_outputs : NULL}};
}

/* What is registered with one runtime.  ONNX Runtime keeps raw pointers to all of it, so it lives as long as the
 * library.  There is hardly ever a second runtime in a process, and the first registry takes no heap memory, for hosts
 * that load and unload the library. */
typedef struct Registry {
    struct Registry *next;
    const OrtApi *api;
    int domain_count;
    const char *names[MAX_DOMAINS];
    OrtCustomOpDomain *domains[MAX_DOMAINS];
    Op ops[MAX_OPERATORS];
} Registry;

static OrtStatus *table_error(const OrtApi *api, const OperatorRow *row, const char *text) {
    char message[NAME_SIZE];
    snprintf(message, sizeof message, MMK_LIBRARY ": the row of %s in operators.c %s",
             row->type ? row->type : row->kernel, text);
    return api->CreateStatus(ORT_FAIL, message);
}

/* Adds an operator to one of its domains, which is created with its first operator. */
static OrtStatus *add_to_domain(Registry *registry, const Op *op, const char *domain) {
    int d = 0;
    while (d < registry->domain_count && strcmp(registry->names[d], domain) != 0) d++;
    if (d == MAX_DOMAINS) return table_error(op->api, op->row, "names one domain more than a library may have");
    if (d == registry->domain_count) {
        TRY(op->api->CreateCustomOpDomain(domain, &registry->domains[d]));
        registry->names[registry->domain_count++] = domain;
    }
    return op->api->CustomOpDomain_Add(registry->domains[d], &op->ort);
}

static OrtStatus *fill_registry(Registry *registry, const OrtApi *api, int runtime) {
    registry->api = api;
    int count = 0;
    for (const OperatorRow *row = operator_rows; row->kernel; row++) {
        const char *error = mmk_row_error(row);
        if (error) return table_error(api, row, error);
        if (!row->type) continue;
        if (count == MAX_OPERATORS) return table_error(api, row, "is one more than a library may have");
        Op *op = &registry->ops[count++];
        *op = make_op(row, api, runtime);
        for (const char *const *domain = row->domains; *domain; domain++) TRY(add_to_domain(registry, op, *domain));
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
    /* GetApi returns NULL and prints a line on stderr for a version that is too new, so look at the version first. */
    int runtime = 0;
    if (sscanf(base->GetVersionString(), "%*d.%d", &runtime) != 1) runtime = ORT_API_MIN;
    const OrtApi *api = base->GetApi((uint32_t)(runtime < ORT_API_MAX ? runtime : ORT_API_MAX));
    if (!api) return NULL; /* without an API no status can be made */
    if (runtime < ORT_API_MIN) {
        char text[NAME_SIZE];
        snprintf(text, sizeof text, MMK_LIBRARY ": ONNX Runtime 1.%d or newer is required, got %s", ORT_API_MIN,
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
