/* ort_abi.h - the part of ONNX Runtime's C ABI that the library and small programs need, so that neither needs the
 * header onnxruntime_c_api.h.
 *
 * OrtApi is an append-only table of pointer-sized slots: the index of a slot never changes.  Only the slots used are
 * named, as the API names them; `_slots_a_b` stands for slots a to b, and the static asserts below pin every index. The
 * numbers are facts of the public C API; nothing here is copied from ONNX Runtime's header. */
#ifndef MMORT_ORT_ABI_H
#define MMORT_ORT_ABI_H
#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define ORT_CALL __stdcall
typedef wchar_t OrtPathChar;
#else
#define ORT_CALL
typedef char OrtPathChar;
#endif

typedef struct OrtApi OrtApi;
typedef struct OrtCustomOp OrtCustomOp;
typedef struct OrtCustomOpDomain OrtCustomOpDomain;
typedef struct OrtEnv OrtEnv;
typedef struct OrtKernelContext OrtKernelContext;
typedef struct OrtKernelInfo OrtKernelInfo;
typedef struct OrtMemoryInfo OrtMemoryInfo;
typedef struct OrtOpAttr OrtOpAttr;
typedef struct OrtRunOptions OrtRunOptions;
typedef struct OrtSession OrtSession;
typedef struct OrtSessionOptions OrtSessionOptions;
typedef struct OrtShapeInferContext OrtShapeInferContext;
typedef struct OrtStatus OrtStatus;
typedef struct OrtTensorTypeAndShapeInfo OrtTensorTypeAndShapeInfo;
typedef struct OrtValue OrtValue;

enum { ORT_FAIL = 1, ORT_INVALID_ARGUMENT = 2, ORT_NOT_IMPLEMENTED = 9 };
enum { ORT_OP_ATTR_INT = 1 };
enum { INPUT_OUTPUT_REQUIRED = 0, INPUT_OUTPUT_OPTIONAL = 1 };
/* Versions of the API: 16 is ONNX Runtime 1.16's. */
enum {
    ORT_API_MIN = 16,               /* the oldest supported, with all slots below but those marked 17 or 24 */
    ORT_API_WITH_PARALLEL_FOR = 17, /* the first with KernelContext_ParallelFor */
    ORT_API_WITH_REFERENCE = 24,    /* the first with GetTensorElementTypeAndShapeDataReference */
    ORT_API_MAX = 24,               /* the newest that adds a slot below */
    ORT_CUSTOM_OP_VERSION = 17      /* the fields of OrtCustomOp below */
};
enum { ORT_LOGGING_LEVEL_FATAL = 4, OrtArenaAllocator = 1, OrtMemTypeDefault = 0 };
enum { ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT = 1, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64 = 7 };

typedef struct {
    const OrtApi *(ORT_CALL *GetApi)(uint32_t version); /* NULL, and a line on stderr, if the version is too new */
    const char *(ORT_CALL *GetVersionString)(void);     /* "1.31.1" */
} OrtApiBase;

struct OrtApi {
    OrtStatus *(ORT_CALL *CreateStatus)(int code, const char *message); /* 0 */
    void *_slot_1;
    const char *(ORT_CALL *GetErrorMessage)(const OrtStatus *);                    /* 2 */
    OrtStatus *(ORT_CALL *CreateEnv)(int severity, const char *logger, OrtEnv **); /* 3 */
    void *_slots_4_6[3];
    OrtStatus *(ORT_CALL *CreateSession)(OrtEnv *, const OrtPathChar *model, const OrtSessionOptions *,
                                         OrtSession **); /* 7 */
    void *_slot_8;
    OrtStatus *(ORT_CALL *Run)(OrtSession *, const OrtRunOptions *, const char *const *input_names,
                               const OrtValue *const *inputs, size_t input_count, const char *const *output_names,
                               size_t output_count, OrtValue **outputs); /* 9 */
    OrtStatus *(ORT_CALL *CreateSessionOptions)(OrtSessionOptions **);   /* 10 */
    void *_slots_11_25[15];
    OrtStatus *(ORT_CALL *CreateCustomOpDomain)(const char *domain, OrtCustomOpDomain **); /* 26 */
    OrtStatus *(ORT_CALL *CustomOpDomain_Add)(OrtCustomOpDomain *, const OrtCustomOp *);   /* 27 */
    OrtStatus *(ORT_CALL *AddCustomOpDomain)(OrtSessionOptions *, OrtCustomOpDomain *);    /* 28 */
    void *_slots_29_48[20];
    OrtStatus *(ORT_CALL *CreateTensorWithDataAsOrtValue)(const OrtMemoryInfo *, void *data, size_t bytes,
                                                          const int64_t *shape, size_t rank, int type,
                                                          OrtValue **); /* 49 */
    void *_slot_50;
    OrtStatus *(ORT_CALL *GetTensorMutableData)(OrtValue *, void **); /* 51 */
    void *_slots_52_56[5];
    OrtStatus *(ORT_CALL *CreateTensorTypeAndShapeInfo)(OrtTensorTypeAndShapeInfo **);                      /* 57 */
    OrtStatus *(ORT_CALL *SetTensorElementType)(OrtTensorTypeAndShapeInfo *, int type);                     /* 58 */
    OrtStatus *(ORT_CALL *SetDimensions)(OrtTensorTypeAndShapeInfo *, const int64_t *, size_t);             /* 59 */
    OrtStatus *(ORT_CALL *GetTensorElementType)(const OrtTensorTypeAndShapeInfo *, int *);                  /* 60 */
    OrtStatus *(ORT_CALL *GetDimensionsCount)(const OrtTensorTypeAndShapeInfo *, size_t *);                 /* 61 */
    OrtStatus *(ORT_CALL *GetDimensions)(const OrtTensorTypeAndShapeInfo *, int64_t *, size_t);             /* 62 */
    OrtStatus *(ORT_CALL *GetSymbolicDimensions)(const OrtTensorTypeAndShapeInfo *, const char **, size_t); /* 63 */
    OrtStatus *(ORT_CALL *GetTensorShapeElementCount)(const OrtTensorTypeAndShapeInfo *, size_t *);         /* 64 */
    OrtStatus *(ORT_CALL *GetTensorTypeAndShape)(const OrtValue *, OrtTensorTypeAndShapeInfo **);           /* 65 */
    void *_slots_66_68[3];
    OrtStatus *(ORT_CALL *CreateCpuMemoryInfo)(int allocator, int memory, OrtMemoryInfo **); /* 69 */
    void *_slots_70_84[15];
    OrtStatus *(ORT_CALL *KernelInfoGetAttribute_float)(const OrtKernelInfo *, const char *name, float *);   /* 85 */
    OrtStatus *(ORT_CALL *KernelInfoGetAttribute_int64)(const OrtKernelInfo *, const char *name, int64_t *); /* 86 */
    OrtStatus *(ORT_CALL *KernelInfoGetAttribute_string)(const OrtKernelInfo *, const char *name, char *,
                                                         size_t *); /* 87 */
    void *_slots_88_89[2];
    OrtStatus *(ORT_CALL *KernelContext_GetInput)(const OrtKernelContext *, size_t i, const OrtValue **); /* 90 */
    OrtStatus *(ORT_CALL *KernelContext_GetOutput)(OrtKernelContext *, size_t i, const int64_t *shape, size_t rank,
                                                   OrtValue **); /* 91 */
    void(ORT_CALL *ReleaseEnv)(OrtEnv *);                        /* 92 */
    void(ORT_CALL *ReleaseStatus)(OrtStatus *);                  /* 93 */
    void(ORT_CALL *ReleaseMemoryInfo)(OrtMemoryInfo *);          /* 94 */
    void(ORT_CALL *ReleaseSession)(OrtSession *);                /* 95 */
    void(ORT_CALL *ReleaseValue)(OrtValue *);                    /* 96 */
    void *_slots_97_98[2];
    void(ORT_CALL *ReleaseTensorTypeAndShapeInfo)(OrtTensorTypeAndShapeInfo *); /* 99 */
    void(ORT_CALL *ReleaseSessionOptions)(OrtSessionOptions *);                 /* 100 */
    void(ORT_CALL *ReleaseCustomOpDomain)(OrtCustomOpDomain *);                 /* 101 */
    void *_slots_102_161[60];
    OrtStatus *(ORT_CALL *KernelInfoGetAttributeArray_float)(const OrtKernelInfo *, const char *name, float *,
                                                             size_t *); /* 162 */
    OrtStatus *(ORT_CALL *KernelInfoGetAttributeArray_int64)(const OrtKernelInfo *, const char *name, int64_t *,
                                                             size_t *); /* 163 */
    void *_slots_164_227[64];
    OrtStatus *(ORT_CALL *RegisterCustomOpsLibrary_V2)(OrtSessionOptions *, const OrtPathChar *library); /* 228 */
    void *_slots_229_243[15];
    OrtStatus *(ORT_CALL *KernelInfo_GetNodeName)(const OrtKernelInfo *, char *, size_t *); /* 244 */
    void *_slots_245_267[23];
    OrtStatus *(ORT_CALL *ShapeInferContext_GetInputTypeShape)(const OrtShapeInferContext *, size_t i,
                                                               OrtTensorTypeAndShapeInfo **); /* 268, 17 */
    OrtStatus *(ORT_CALL *ShapeInferContext_GetAttribute)(const OrtShapeInferContext *, const char *name,
                                                          const OrtOpAttr **); /* 269, 17 */
    OrtStatus *(ORT_CALL *ShapeInferContext_SetOutputTypeShape)(const OrtShapeInferContext *, size_t i,
                                                                const OrtTensorTypeAndShapeInfo *);      /* 270, 17 */
    OrtStatus *(ORT_CALL *SetSymbolicDimensions)(OrtTensorTypeAndShapeInfo *, const char **, size_t);    /* 271, 17 */
    OrtStatus *(ORT_CALL *ReadOpAttr)(const OrtOpAttr *, int type, void *, size_t bytes, size_t *given); /* 272, 17 */
    void *_slot_273;
    OrtStatus *(ORT_CALL *KernelContext_ParallelFor)(const OrtKernelContext *, void (*)(void *, size_t), size_t total,
                                                     size_t batches, void *); /* 274, 17 */
    void *_slots_275_413[139];
    /* The shape stays that of the value; it may be NULL for a scalar. */
    OrtStatus *(ORT_CALL *GetTensorElementTypeAndShapeDataReference)(const OrtValue *, int *type, const int64_t **shape,
                                                                     size_t *rank); /* 414, 24 */
};

/* `version` tells ONNX Runtime how much of this struct exists: it reads the fields up to the one marked 16 if version
 * is at least 16, and those up to the one marked 17 if it is at least 17. */
struct OrtCustomOp {
    uint32_t version;
    void *(ORT_CALL *CreateKernel)(const OrtCustomOp *, const OrtApi *, const OrtKernelInfo *);
    const char *(ORT_CALL *GetName)(const OrtCustomOp *);
    const char *(ORT_CALL *GetExecutionProviderType)(const OrtCustomOp *);
    int(ORT_CALL *GetInputType)(const OrtCustomOp *, size_t);
    size_t(ORT_CALL *GetInputTypeCount)(const OrtCustomOp *);
    int(ORT_CALL *GetOutputType)(const OrtCustomOp *, size_t);
    size_t(ORT_CALL *GetOutputTypeCount)(const OrtCustomOp *);
    void(ORT_CALL *KernelCompute)(void *kernel, OrtKernelContext *);
    void(ORT_CALL *KernelDestroy)(void *kernel);
    int(ORT_CALL *GetInputCharacteristic)(const OrtCustomOp *, size_t);
    int(ORT_CALL *GetOutputCharacteristic)(const OrtCustomOp *, size_t);
    int(ORT_CALL *GetInputMemoryType)(const OrtCustomOp *, size_t);
    int(ORT_CALL *GetVariadicInputMinArity)(const OrtCustomOp *);
    int(ORT_CALL *GetVariadicInputHomogeneity)(const OrtCustomOp *);
    int(ORT_CALL *GetVariadicOutputMinArity)(const OrtCustomOp *);
    int(ORT_CALL *GetVariadicOutputHomogeneity)(const OrtCustomOp *);
    OrtStatus *(ORT_CALL *CreateKernelV2)(const OrtCustomOp *, const OrtApi *, const OrtKernelInfo *, void **);
    OrtStatus *(ORT_CALL *KernelComputeV2)(void *kernel, OrtKernelContext *); /* 16 */
    OrtStatus *(ORT_CALL *InferOutputShapeFn)(const OrtCustomOp *, OrtShapeInferContext *);
    int(ORT_CALL *GetStartVersion)(const OrtCustomOp *);
    int(ORT_CALL *GetEndVersion)(const OrtCustomOp *); /* 17 */
};

#define ORT_SLOT(field, slot) _Static_assert(offsetof(OrtApi, field) == (slot) * sizeof(void *), #field)
ORT_SLOT(CreateStatus, 0);
ORT_SLOT(GetErrorMessage, 2);
ORT_SLOT(CreateEnv, 3);
ORT_SLOT(CreateSession, 7);
ORT_SLOT(Run, 9);
ORT_SLOT(CreateSessionOptions, 10);
ORT_SLOT(CreateCustomOpDomain, 26);
ORT_SLOT(CustomOpDomain_Add, 27);
ORT_SLOT(AddCustomOpDomain, 28);
ORT_SLOT(CreateTensorWithDataAsOrtValue, 49);
ORT_SLOT(GetTensorMutableData, 51);
ORT_SLOT(CreateTensorTypeAndShapeInfo, 57);
ORT_SLOT(SetTensorElementType, 58);
ORT_SLOT(SetDimensions, 59);
ORT_SLOT(GetTensorElementType, 60);
ORT_SLOT(GetDimensionsCount, 61);
ORT_SLOT(GetDimensions, 62);
ORT_SLOT(GetSymbolicDimensions, 63);
ORT_SLOT(GetTensorShapeElementCount, 64);
ORT_SLOT(GetTensorTypeAndShape, 65);
ORT_SLOT(CreateCpuMemoryInfo, 69);
ORT_SLOT(KernelInfoGetAttribute_float, 85);
ORT_SLOT(KernelInfoGetAttribute_int64, 86);
ORT_SLOT(KernelInfoGetAttribute_string, 87);
ORT_SLOT(KernelContext_GetInput, 90);
ORT_SLOT(KernelContext_GetOutput, 91);
ORT_SLOT(ReleaseEnv, 92);
ORT_SLOT(ReleaseStatus, 93);
ORT_SLOT(ReleaseMemoryInfo, 94);
ORT_SLOT(ReleaseSession, 95);
ORT_SLOT(ReleaseValue, 96);
ORT_SLOT(ReleaseTensorTypeAndShapeInfo, 99);
ORT_SLOT(ReleaseSessionOptions, 100);
ORT_SLOT(ReleaseCustomOpDomain, 101);
ORT_SLOT(KernelInfoGetAttributeArray_float, 162);
ORT_SLOT(KernelInfoGetAttributeArray_int64, 163);
ORT_SLOT(RegisterCustomOpsLibrary_V2, 228);
ORT_SLOT(KernelInfo_GetNodeName, 244);
ORT_SLOT(ShapeInferContext_GetInputTypeShape, 268);
ORT_SLOT(ShapeInferContext_GetAttribute, 269);
ORT_SLOT(ShapeInferContext_SetOutputTypeShape, 270);
ORT_SLOT(SetSymbolicDimensions, 271);
ORT_SLOT(ReadOpAttr, 272);
ORT_SLOT(KernelContext_ParallelFor, 274);
ORT_SLOT(GetTensorElementTypeAndShapeDataReference, 414);
_Static_assert(offsetof(OrtCustomOp, CreateKernelV2) == 17 * sizeof(void *), "OrtCustomOp");
_Static_assert(sizeof(OrtCustomOp) == 22 * sizeof(void *), "OrtCustomOp");
#endif
