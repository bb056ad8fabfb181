/* ort_host.h - the part of ONNX Runtime's C API that a program needs to run a model, for machines without its header.
 *
 * In the API's own names, so that a program includes "onnxruntime_c_api.h" instead where that is at hand; a slot's
 * place in the table never changes.  The numbers are facts of the public C API; nothing here is copied from its header.
 */
#ifndef MMORT_ORT_HOST_H
#define MMORT_ORT_HOST_H
#include <stddef.h>
#include <stdint.h>

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
#endif
