/* host.c - a program without Python that runs the example's operator in ONNX Runtime.
 *
 *     ./host LIBONNXRUNTIME LIBRARY MODEL < input
 *
 * reads x [1, 4, 3, 3], scale [4] and bias [4] as text and writes output [1, 4, 3, 3].  Built without ONNX Runtime's
 * header:  cc -std=c11 -I$(python -c "import mmort.build; print(mmort.build.get_include())") host.c -o host -ldl */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "ort_abi.h"

static const OrtApi *api;

static void check(OrtStatus *status) {
    if (!status) return;
    fprintf(stderr, "%s\n", api->GetErrorMessage(status));
    exit(1);
}

/* Reads the elements of a tensor of this shape into `data`, which the tensor keeps using. */
static OrtValue *read_tensor(float *data, const int64_t *shape, size_t rank) {
    OrtMemoryInfo *memory;
    OrtValue *value;
    size_t count = 1;
    for (size_t d = 0; d < rank; d++) count *= (size_t)shape[d];
    for (size_t i = 0; i < count; i++)
        if (scanf("%f", &data[i]) != 1) {
            fprintf(stderr, "the input is too short\n");
            exit(1);
        }
    check(api->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &memory));
    check(api->CreateTensorWithDataAsOrtValue(memory, data, count * sizeof *data, shape, rank,
                                              ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, &value));
    api->ReleaseMemoryInfo(memory);
    return value;
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: %s LIBONNXRUNTIME LIBRARY MODEL < input\n", argv[0]);
        return 2;
    }
    void *runtime = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    const OrtApiBase *(*get_base)(void) = NULL;
    if (runtime) *(void **)&get_base = dlsym(runtime, "OrtGetApiBase");
    if (!get_base) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    api = get_base()->GetApi(ORT_API_MIN);

    OrtEnv *environment;
    OrtSessionOptions *options;
    OrtSession *session;
    check(api->CreateEnv(ORT_LOGGING_LEVEL_FATAL, "host", &environment));
    check(api->CreateSessionOptions(&options));
    check(api->RegisterCustomOpsLibrary_V2(options, argv[2]));
    check(api->CreateSession(environment, argv[3], options, &session));
    api->ReleaseSessionOptions(options);

    static float x[4 * 3 * 3], scale[4], bias[4], *y;
    const char *const input_names[] = {"x", "scale", "bias"}, *const output_names[] = {"output"};
    OrtValue *inputs[] = {read_tensor(x, (int64_t[]){1, 4, 3, 3}, 4), read_tensor(scale, (int64_t[]){4}, 1),
                          read_tensor(bias, (int64_t[]){4}, 1)};
    OrtValue *output = NULL;
    check(api->Run(session, NULL, input_names, (const OrtValue *const *)inputs, 3, output_names, 1, &output));
    check(api->GetTensorMutableData(output, (void **)&y));
    for (size_t i = 0; i < sizeof x / sizeof *x; i++) printf("%.9g\n", y[i]);

    for (int i = 0; i < 3; i++) api->ReleaseValue(inputs[i]);
    api->ReleaseValue(output);
    api->ReleaseSession(session);
    api->ReleaseEnv(environment);
    return 0;
}
