/* neighbour.c - a library as MMCV's and MMDeploy's were: one domain, and operators that only have CreateKernel and
 * KernelCompute.  Its one operator, Twice, returns its input doubled.
 *
 *     cc -std=c11 -shared -fPIC -DDOMAIN='"mmcv"' -Ibridge_c tests/ort/neighbour.c -o neighbour.so */
#include "ort_abi.h"

#ifndef DOMAIN
#define DOMAIN "mmcv"
#endif

static const OrtApi *api;

static void *create(const OrtCustomOp *op, const OrtApi *given, const OrtKernelInfo *info) {
    static char kernel;
    (void)op;
    (void)given;
    (void)info;
    return &kernel;
}
static void destroy(void *kernel) { (void)kernel; }
static const char *name(const OrtCustomOp *op) {
    (void)op;
    return "Twice";
}
static const char *provider(const OrtCustomOp *op) {
    (void)op;
    return NULL;
}
static size_t one(const OrtCustomOp *op) {
    (void)op;
    return 1;
}
static int type(const OrtCustomOp *op, size_t i) {
    (void)op;
    (void)i;
    return ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
}

static int required(const OrtCustomOp *op, size_t i) {
    (void)op;
    (void)i;
    return INPUT_OUTPUT_REQUIRED;
}

static void compute(void *kernel, OrtKernelContext *context) {
    const OrtValue *input;
    OrtValue *output;
    OrtTensorTypeAndShapeInfo *info;
    int64_t shape[4];
    size_t rank, count;
    void *from, *to;
    (void)kernel;
    api->KernelContext_GetInput(context, 0, &input);
    api->GetTensorTypeAndShape(input, &info);
    api->GetDimensionsCount(info, &rank);
    api->GetDimensions(info, shape, rank);
    api->GetTensorShapeElementCount(info, &count);
    api->ReleaseTensorTypeAndShapeInfo(info);
    api->KernelContext_GetOutput(context, 0, shape, rank, &output);
    api->GetTensorMutableData((OrtValue *)input, &from);
    api->GetTensorMutableData(output, &to);
    for (size_t i = 0; i < count; i++) ((float *)to)[i] = 2 * ((const float *)from)[i];
}

static OrtCustomOp twice = {.version = 11, /* of ONNX Runtime 1.11 */
                            .CreateKernel = create,
                            .GetName = name,
                            .GetExecutionProviderType = provider,
                            .GetInputType = type,
                            .GetInputTypeCount = one,
                            .GetOutputType = type,
                            .GetOutputTypeCount = one,
                            .KernelCompute = compute,
                            .KernelDestroy = destroy,
                            .GetInputCharacteristic = required,
                            .GetOutputCharacteristic = required};

OrtStatus *RegisterCustomOps(OrtSessionOptions *options, const OrtApiBase *base) {
    static OrtCustomOpDomain *domain;
    api = base->GetApi(14);
    if (!domain) {
        api->CreateCustomOpDomain(DOMAIN, &domain);
        api->CustomOpDomain_Add(domain, &twice);
    }
    return api->AddCustomOpDomain(options, domain);
}
