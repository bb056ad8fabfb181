/* smoke.c - a program without Python that runs a model with mmort's operators and checks what comes out.
 *
 *     cc -std=c11 tests/smoke.c -o smoke -ldl && ./smoke libonnxruntime.so.1.x.y libmmort_ort.so nms.onnx
 *
 * The model is one NonMaxSuppression node: boxes [N, 4], scores [N] -> indices [?], with iou_threshold 0.5
 * (test_smoke.py writes it).  A program that has ONNX Runtime's header includes that instead of the declarations. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what is used of ONNX Runtime's C API, in its own names; a slot's place in the table never changes --------- */

enum { API_VERSION = 16, LOG_FATAL = 4, TENSOR_FLOAT = 1, TENSOR_INT64 = 7, ARENA_ALLOCATOR = 1, DEFAULT_MEMORY = 0 };

typedef struct OrtEnv OrtEnv;
typedef struct OrtStatus OrtStatus;
typedef struct OrtSession OrtSession;
typedef struct OrtSessionOptions OrtSessionOptions;
typedef struct OrtRunOptions OrtRunOptions;
typedef struct OrtMemoryInfo OrtMemoryInfo;
typedef struct OrtValue OrtValue;
typedef struct OrtTensorTypeAndShapeInfo OrtTensorTypeAndShapeInfo;

typedef struct {
    void *slots_0_1[2];
    const char *(*GetErrorMessage)(const OrtStatus *); /* 2 */
    OrtStatus *(*CreateEnv)(int severity, const char *logger, OrtEnv **);
    void *slots_4_6[3];
    OrtStatus *(*CreateSession)(OrtEnv *, const char *path, const OrtSessionOptions *, OrtSession **); /* 7 */
    void *slot_8;
    OrtStatus *(*Run)(OrtSession *, const OrtRunOptions *, const char *const *input_names,
                      const OrtValue *const *inputs, size_t input_count, const char *const *output_names,
                      size_t output_count, OrtValue **outputs);
    OrtStatus *(*CreateSessionOptions)(OrtSessionOptions **); /* 10 */
    void *slots_11_48[38];
    OrtStatus *(*CreateTensorWithDataAsOrtValue)(const OrtMemoryInfo *, void *data, size_t bytes, const int64_t *shape,
                                                 size_t rank, int type, OrtValue **); /* 49 */
    void *slot_50;
    OrtStatus *(*GetTensorMutableData)(OrtValue *, void **);
    void *slots_52_59[8];
    OrtStatus *(*GetTensorElementType)(const OrtTensorTypeAndShapeInfo *, int *); /* 60 */
    void *slots_61_63[3];
    OrtStatus *(*GetTensorShapeElementCount)(const OrtTensorTypeAndShapeInfo *, size_t *); /* 64 */
    OrtStatus *(*GetTensorTypeAndShape)(const OrtValue *, OrtTensorTypeAndShapeInfo **);
    void *slots_66_68[3];
    OrtStatus *(*CreateCpuMemoryInfo)(int allocator, int memory, OrtMemoryInfo **); /* 69 */
    void *slots_70_91[22];
    void (*ReleaseEnv)(OrtEnv *); /* 92 */
    void (*ReleaseStatus)(OrtStatus *);
    void (*ReleaseMemoryInfo)(OrtMemoryInfo *);
    void (*ReleaseSession)(OrtSession *);
    void (*ReleaseValue)(OrtValue *);
    void *slots_97_98[2];
    void (*ReleaseTensorTypeAndShapeInfo)(OrtTensorTypeAndShapeInfo *); /* 99 */
    void (*ReleaseSessionOptions)(OrtSessionOptions *);
    void *slots_101_227[127];
    OrtStatus *(*RegisterCustomOpsLibrary_V2)(OrtSessionOptions *, const char *path); /* 228 */
} OrtApi;

_Static_assert(offsetof(OrtApi, Run) == 9 * sizeof(void *), "Run");
_Static_assert(offsetof(OrtApi, CreateTensorWithDataAsOrtValue) == 49 * sizeof(void *), "CreateTensor");
_Static_assert(offsetof(OrtApi, CreateCpuMemoryInfo) == 69 * sizeof(void *), "CreateCpuMemoryInfo");
_Static_assert(offsetof(OrtApi, ReleaseSessionOptions) == 100 * sizeof(void *), "ReleaseSessionOptions");
_Static_assert(offsetof(OrtApi, RegisterCustomOpsLibrary_V2) == 228 * sizeof(void *), "RegisterCustomOpsLibrary_V2");

typedef struct {
    const OrtApi *(*GetApi)(uint32_t version);
    const char *(*GetVersionString)(void);
} OrtApiBase;

/* ---- the program ------------------------------------------------------------------------------------------------- */

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
    check(api->CreateCpuMemoryInfo(ARENA_ALLOCATOR, DEFAULT_MEMORY, &memory));
    check(api->CreateTensorWithDataAsOrtValue(memory, data, count * sizeof *data, shape, rank, TENSOR_FLOAT, &value));
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
    expect(type == TENSOR_INT64 && count == 2 && !memcmp(data, expected, sizeof expected), what);
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
    api = get_base()->GetApi(API_VERSION);
    expect(api != NULL, get_base()->GetVersionString());

    OrtEnv *environment;
    check(api->CreateEnv(LOG_FATAL, "smoke", &environment));
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
