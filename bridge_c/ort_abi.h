/* ort_abi.h - the part of ONNX Runtime's C ABI that the bridge uses, declared here so that building needs no header.
 *
 * OrtApi is an append-only table of pointer-sized slots: a slot's index never changes.  Only the slots used are named;
 * `_slot_a_b` stands for slots a..b, and the static asserts at the end pin every index.  The numbers are facts of the
 * public C API; nothing here is copied from ONNX Runtime's header. */
#ifndef MMORT_ORT_ABI_H
#define MMORT_ORT_ABI_H
#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define ORT_CALL __stdcall
#else
#define ORT_CALL
#endif

typedef struct OrtStatus OrtStatus;
typedef struct OrtValue OrtValue;
typedef struct OrtKernelInfo OrtKernelInfo;
typedef struct OrtKernelContext OrtKernelContext;
typedef struct OrtSessionOptions OrtSessionOptions;
typedef struct OrtCustomOpDomain OrtCustomOpDomain;
typedef struct OrtTensorInfo OrtTensorInfo; /* OrtTensorTypeAndShapeInfo */
typedef struct OrtShapeInferContext OrtShapeInferContext;
typedef struct OrtOpAttr OrtOpAttr;
typedef struct OrtApi OrtApi;
typedef struct OrtCustomOp OrtCustomOp;

enum { ORT_FAIL = 1, ORT_INVALID_ARGUMENT = 2, ORT_NOT_IMPLEMENTED = 9 };
enum { ORT_ATTRIBUTE_INT = 1 };
enum { ORT_REQUIRED = 0, ORT_OPTIONAL = 1 };

typedef struct OrtApiBase {
    const OrtApi *(ORT_CALL *GetApi)(uint32_t version); /* NULL, and a line on stderr, when too new */
    const char *(ORT_CALL *GetVersionString)(void);     /* "1.31.1" */
} OrtApiBase;

/* Field names are ours where ONNX Runtime's are long. */
struct OrtApi {
    OrtStatus *(ORT_CALL *CreateStatus)(int code, const char *message); /* 0 */
    void *_slot_1_25[25];
    OrtStatus *(ORT_CALL *CreateCustomOpDomain)(const char *domain, OrtCustomOpDomain **); /* 26 */
    OrtStatus *(ORT_CALL *CustomOpDomain_Add)(OrtCustomOpDomain *, const OrtCustomOp *);   /* 27 */
    OrtStatus *(ORT_CALL *AddCustomOpDomain)(OrtSessionOptions *, OrtCustomOpDomain *);    /* 28 */
    void *_slot_29_50[22];
    OrtStatus *(ORT_CALL *GetTensorMutableData)(OrtValue *, void **); /* 51 */
    void *_slot_52_56[5];
    OrtStatus *(ORT_CALL *CreateTensorInfo)(OrtTensorInfo **);                                  /* 57 */
    OrtStatus *(ORT_CALL *SetTensorElementType)(OrtTensorInfo *, int type);                     /* 58 */
    OrtStatus *(ORT_CALL *SetDimensions)(OrtTensorInfo *, const int64_t *, size_t);             /* 59 */
    OrtStatus *(ORT_CALL *GetTensorElementType)(const OrtTensorInfo *, int *);                  /* 60 */
    OrtStatus *(ORT_CALL *GetDimensionsCount)(const OrtTensorInfo *, size_t *);                 /* 61 */
    OrtStatus *(ORT_CALL *GetDimensions)(const OrtTensorInfo *, int64_t *, size_t);             /* 62 */
    OrtStatus *(ORT_CALL *GetSymbolicDimensions)(const OrtTensorInfo *, const char **, size_t); /* 63 */
    void *_slot_64[1];
    OrtStatus *(ORT_CALL *GetTensorInfo)(const OrtValue *, OrtTensorInfo **); /* 65 */
    void *_slot_66_84[19];
    OrtStatus *(ORT_CALL *AttributeFloat)(const OrtKernelInfo *, const char *name, float *);           /* 85 */
    OrtStatus *(ORT_CALL *AttributeInt)(const OrtKernelInfo *, const char *name, int64_t *);           /* 86 */
    OrtStatus *(ORT_CALL *AttributeString)(const OrtKernelInfo *, const char *name, char *, size_t *); /* 87 */
    void *_slot_88_89[2];
    OrtStatus *(ORT_CALL *GetInput)(const OrtKernelContext *, size_t i, const OrtValue **);               /* 90 */
    OrtStatus *(ORT_CALL *GetOutput)(OrtKernelContext *, size_t i, const int64_t *, size_t, OrtValue **); /* 91 */
    void *_slot_92[1];
    void(ORT_CALL *ReleaseStatus)(OrtStatus *); /* 93 */
    void *_slot_94_98[5];
    void(ORT_CALL *ReleaseTensorInfo)(OrtTensorInfo *); /* 99 */
    void *_slot_100[1];
    void(ORT_CALL *ReleaseCustomOpDomain)(OrtCustomOpDomain *); /* 101 */
    void *_slot_102_161[60];
    OrtStatus *(ORT_CALL *AttributeFloats)(const OrtKernelInfo *, const char *name, float *, size_t *); /* 162 */
    OrtStatus *(ORT_CALL *AttributeInts)(const OrtKernelInfo *, const char *name, int64_t *, size_t *); /* 163 */
    void *_slot_164_229[66];
    OrtStatus *(ORT_CALL *InfoInputCount)(const OrtKernelInfo *, size_t *); /* 230 */
    void *_slot_231_243[13];
    OrtStatus *(ORT_CALL *InfoNodeName)(const OrtKernelInfo *, char *, size_t *); /* 244 */
    void *_slot_245_267[23];
    OrtStatus *(ORT_CALL *InferInputInfo)(const OrtShapeInferContext *, size_t i, OrtTensorInfo **);           /* 268 */
    OrtStatus *(ORT_CALL *InferAttribute)(const OrtShapeInferContext *, const char *name, const OrtOpAttr **); /* 269 */
    OrtStatus *(ORT_CALL *InferSetOutput)(const OrtShapeInferContext *, size_t i, const OrtTensorInfo *);      /* 270 */
    OrtStatus *(ORT_CALL *SetSymbolicDimensions)(OrtTensorInfo *, const char **, size_t);                      /* 271 */
    OrtStatus *(ORT_CALL *ReadOpAttr)(const OrtOpAttr *, int type, void *, size_t, size_t *);                  /* 272 */
    void *_slot_273[1];
    OrtStatus *(ORT_CALL *ParallelFor)(const OrtKernelContext *, void (*)(void *, size_t), size_t total, size_t batches,
                                       void *); /* 274 */
};

/* `version` tells ONNX Runtime how much of this struct exists: fields up to the one marked 16 are read when
 * version >= 16, and so on. */
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
    OrtStatus *(ORT_CALL *CreateKernelV2)(const OrtCustomOp *, const OrtApi *, const OrtKernelInfo *, void **); /* 16 */
    OrtStatus *(ORT_CALL *KernelComputeV2)(void *kernel, OrtKernelContext *);
    OrtStatus *(ORT_CALL *InferOutputShape)(const OrtCustomOp *, OrtShapeInferContext *); /* 17 */
    int(ORT_CALL *GetStartVersion)(const OrtCustomOp *);
    int(ORT_CALL *GetEndVersion)(const OrtCustomOp *);
    size_t(ORT_CALL *GetMayInplace)(int **, int **); /* 18 */
    void(ORT_CALL *ReleaseMayInplace)(int *, int *);
    size_t(ORT_CALL *GetAliasMap)(int **, int **);
    void(ORT_CALL *ReleaseAliasMap)(int *, int *);
};

#define ORT_SLOT(field, slot) _Static_assert(offsetof(struct OrtApi, field) == (slot) * sizeof(void *), #field)
ORT_SLOT(CreateStatus, 0);
ORT_SLOT(CreateCustomOpDomain, 26);
ORT_SLOT(CustomOpDomain_Add, 27);
ORT_SLOT(AddCustomOpDomain, 28);
ORT_SLOT(GetTensorMutableData, 51);
ORT_SLOT(CreateTensorInfo, 57);
ORT_SLOT(SetTensorElementType, 58);
ORT_SLOT(SetDimensions, 59);
ORT_SLOT(GetTensorElementType, 60);
ORT_SLOT(GetDimensionsCount, 61);
ORT_SLOT(GetDimensions, 62);
ORT_SLOT(GetSymbolicDimensions, 63);
ORT_SLOT(GetTensorInfo, 65);
ORT_SLOT(AttributeFloat, 85);
ORT_SLOT(AttributeInt, 86);
ORT_SLOT(AttributeString, 87);
ORT_SLOT(GetInput, 90);
ORT_SLOT(GetOutput, 91);
ORT_SLOT(ReleaseStatus, 93);
ORT_SLOT(ReleaseTensorInfo, 99);
ORT_SLOT(ReleaseCustomOpDomain, 101);
ORT_SLOT(AttributeFloats, 162);
ORT_SLOT(AttributeInts, 163);
ORT_SLOT(InfoInputCount, 230);
ORT_SLOT(InfoNodeName, 244);
ORT_SLOT(InferInputInfo, 268);
ORT_SLOT(InferAttribute, 269);
ORT_SLOT(InferSetOutput, 270);
ORT_SLOT(SetSymbolicDimensions, 271);
ORT_SLOT(ReadOpAttr, 272);
ORT_SLOT(ParallelFor, 274);
_Static_assert(offsetof(struct OrtCustomOp, CreateKernelV2) == 17 * sizeof(void *), "OrtCustomOp");
_Static_assert(sizeof(struct OrtCustomOp) == 26 * sizeof(void *), "OrtCustomOp");
#endif
