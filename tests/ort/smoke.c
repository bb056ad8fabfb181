/* smoke.c - a program without Python that runs a model with mmort's operators and checks what comes out.
 *
 *     cc -std=c11 -Ibridge_c tests/ort/smoke.c -o smoke -ldl && ./smoke libonnxruntime.so.1.x.y libmmort_ort.so
 * nms.onnx
 *
 * The model is one NonMaxSuppression node: boxes [N, 4], scores [N] -> indices [?], with iou_threshold 0.5
 * (test_smoke.py writes it). */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ort_abi.h"

static const OrtApi *api;

static void expect(int condition, const char *what) {
    if (!condition) {
        printf("FAILED: %s\n", what);
        exit(1);
    }
    printf("ok: %s\n", what);
}

static void check(OrtStatus *status) {
    if (!status) return;
    printf("FAILED: %s\n", api->GetErrorMessage(status));
    exit(1);
}

static OrtValue *tensor(float *data, size_t count, const int64_t *shape, size_t rank) {
    OrtMemoryInfo *memory;
    OrtValue *value;
    check(api->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &memory));
    check(api->CreateTensorWithDataAsOrtValue(memory, data, count * sizeof *data, shape, rank,
                                              ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, &value));
    api->ReleaseMemoryInfo(memory);
    return value;
}

/* Boxes of `width` numbers through the session; the status is the caller's. */
static OrtStatus *run(OrtSession *session, float *boxes, int64_t count, int64_t width, float *scores, OrtValue **out) {
    const char *const input_names[] = {"boxes", "scores"}, *const output_names[] = {"indices"};
    OrtValue *inputs[] = {tensor(boxes, (size_t)(count * width), (int64_t[]){count, width}, 2),
                          tensor(scores, (size_t)count, &count, 1)};
    *out = NULL;
    OrtStatus *status = api->Run(session, NULL, input_names, (const OrtValue *const *)inputs, 2, output_names, 1, out);
    for (int i = 0; i < 2; i++) api->ReleaseValue(inputs[i]);
    return status;
}

static void expect_indices(OrtSession *session, const char *what) {
    float boxes[] = {0, 0, 10, 10, 1, 1, 11, 11, 20, 20, 30, 30, 21, 20, 31, 30}, scores[] = {.8f, .9f, .7f, .7f};
    static const int64_t expected[] = {1, 2};
    OrtTensorTypeAndShapeInfo *info;
    OrtValue *indices;
    size_t count;
    void *data;
    int type;
    check(run(session, boxes, 4, 4, scores, &indices));
    check(api->GetTensorTypeAndShape(indices, &info));
    check(api->GetTensorElementType(info, &type));
    check(api->GetTensorShapeElementCount(info, &count));
    check(api->GetTensorMutableData(indices, &data));
    expect(type == ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64 && count == 2 && !memcmp(data, expected, sizeof expected), what);
    api->ReleaseTensorTypeAndShapeInfo(info);
    api->ReleaseValue(indices);
}

static void expect_error(OrtSession *session, const char *wanted) {
    float boxes[3 * 5] = {0}, scores[3] = {0};
    OrtValue *indices;
    OrtStatus *status = run(session, boxes, 3, 5, scores, &indices);
    expect(status && !indices && strstr(api->GetErrorMessage(status), wanted), wanted);
    api->ReleaseStatus(status);
}

/* Whether a file whose path holds `part` is mapped into this process. */
static int mapped(const char *part) {
    char line[4096];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    if (!maps) expect(0, "/proc/self/maps can be read");
    while (!found && fgets(line, sizeof line, maps)) found = strstr(line, part) != NULL;
    fclose(maps);
    return found;
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: %s LIBONNXRUNTIME LIBMMORT_ORT MODEL\n", argv[0]);
        return 2;
    }
    const char *library = argv[2], *model = argv[3];
    void *runtime = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!runtime) printf("%s\n", dlerror());
    expect(runtime != NULL, "ONNX Runtime is loaded");
    const OrtApiBase *(*get_base)(void);
    *(void **)&get_base = dlsym(runtime, "OrtGetApiBase");
    expect(get_base != NULL, "it has OrtGetApiBase");
    api = get_base()->GetApi(ORT_API_MIN);
    expect(api != NULL, get_base()->GetVersionString());

    OrtEnv *environment;
    check(api->CreateEnv(ORT_LOGGING_LEVEL_FATAL, "smoke", &environment));
    for (int load = 0; load < 2; load++) {
        OrtSessionOptions *options;
        OrtSession *session;
        check(api->CreateSessionOptions(&options));
        check(api->RegisterCustomOpsLibrary_V2(options, library));
        check(api->CreateSession(environment, model, options, &session));
        api->ReleaseSessionOptions(options);
        expect(mapped("libmmort_ort"), load ? "the library is loaded again" : "the library is loaded");
        expect_indices(session, "indices are 1, 2");
        expect_error(session, "nms: boxes must be [N, 4], got [3, 5]");
        expect_indices(session, "after the error they are the same");
        expect(!mapped("libpython") && !mapped(".cpython-"), "there is no Python in this process");
        api->ReleaseSession(session);
        expect(!mapped("libmmort_ort"), "with its last session the library is unloaded");
    }
    api->ReleaseEnv(environment);
    return 0;
}
