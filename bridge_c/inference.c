/* inference.c - infers the shapes of a node's outputs from those of its inputs, by the shapes in the row. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "bridge.h"
#include "shapes.h"

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

static const Dimension *find_dimension(const Dimensions *dimensions, const char *name, size_t length) {
    for (int d = 0; d < dimensions->count; d++)
        if (dimensions->known[d].length == length && !memcmp(dimensions->known[d].name, name, length))
            return &dimensions->known[d];
    return NULL;
}

/* Records the named dimensions of an input; none if the rank is 0, which may mean that it is unknown. */
static OrtStatus *add_dimensions(const OrtApi *api, const OrtTensorTypeAndShapeInfo *info, const char *shape,
                                 Dimensions *dimensions) {
    int64_t sizes[MMK_MAX_RANK];
    const char *symbols[MMK_MAX_RANK] = {NULL};
    mmk_shape_token token;
    size_t rank = 0;
    TRY(api->GetDimensionsCount(info, &rank));
    if (rank == 0 || rank > MMK_MAX_RANK) return NULL;
    TRY(api->GetDimensions(info, sizes, rank));
    TRY(api->GetSymbolicDimensions(info, symbols, rank));
    for (size_t d = 0; d < rank && mmk_next_dimension(&shape, &token) && token.kind != SHAPE_REST; d++)
        if (token.kind == SHAPE_NAME && dimensions->count < MMK_MAX_DIMENSIONS &&
            !find_dimension(dimensions, token.text, token.length))
            dimensions->known[dimensions->count++] = (Dimension){token.text, token.length, sizes[d], symbols[d]};
    return NULL;
}

/* Returns the value of the attribute that a dimension is named after; -1 if there is none. */
static int64_t attribute_value(const Op *op, const OrtShapeInferContext *context, const char *name, size_t length) {
    for (const Attribute *attribute = op->row->attributes; attribute->name; attribute++) {
        if (strlen(attribute->name) != length || memcmp(attribute->name, name, length) != 0) continue;
        const char *const names[] = {attribute->name, attribute->former};
        for (int n = 0; n < 2 && names[n]; n++) {
            const OrtOpAttr *op_attribute = NULL;
            int64_t value = -1;
            size_t size = 0;
            if (succeeded(op->api, op->api->ShapeInferContext_GetAttribute(context, names[n], &op_attribute)) &&
                op_attribute &&
                succeeded(op->api, op->api->ReadOpAttr(op_attribute, ORT_OP_ATTR_INT, &value, sizeof value, &size)))
                return value > 0 ? value : -1;
        }
        return !attribute->required && attribute->initial.i > 0 ? attribute->initial.i : -1;
    }
    return -1;
}

/* Returns the size of a product of dimensions, "M*D"; -1 if it is not known. */
static int64_t product(const Dimensions *dimensions, const mmk_shape_token *token) {
    mmk_shape_token factor;
    size_t position = 0;
    int64_t size = 1;
    while (mmk_next_factor(token, &position, &factor)) {
        const Dimension *known = find_dimension(dimensions, factor.text, factor.length);
        int64_t value = factor.kind == SHAPE_SIZE ? factor.size : known ? known->size : -1;
        if (value < 0 || factor.divides || (value && size > INT64_MAX / value)) return -1;
        size *= value;
    }
    return size;
}

/* Sets an output's type and shape.  A dimension without a size or a name gets a new name: ONNX Runtime treats -1 as a
 * size like any other, and would let two tensors "of the same shape" share memory. */
static OrtStatus *set_inferred(const Op *op, OrtShapeInferContext *context, int i, const int64_t *sizes,
                               const char **symbols, size_t rank) {
    static atomic_uint names_made;
    const OrtApi *api = op->api;
    char names[MMK_MAX_RANK][sizeof MMK_LIBRARY + 12]; /* distinct from those of another library in the session */
    OrtTensorTypeAndShapeInfo *info = NULL;
    for (size_t d = 0; d < rank; d++)
        if (sizes[d] < 0 && !(symbols[d] && *symbols[d])) {
            snprintf(names[d], sizeof names[d], MMK_LIBRARY "_%u", atomic_fetch_add(&names_made, 1));
            symbols[d] = names[d];
        }
    TRY(api->CreateTensorTypeAndShapeInfo(&info));
    OrtStatus *status = api->SetTensorElementType(info, op->row->outputs[i].type);
    if (!status) status = api->SetDimensions(info, sizes, rank);
    if (!status) status = api->SetSymbolicDimensions(info, symbols, rank);
    if (!status) status = api->ShapeInferContext_SetOutputTypeShape(context, (size_t)i, info);
    api->ReleaseTensorTypeAndShapeInfo(info);
    return status;
}

static OrtStatus *infer_output(const Op *op, OrtShapeInferContext *context, int i, const Dimensions *dimensions) {
    int64_t sizes[MMK_MAX_RANK];
    const char *symbols[MMK_MAX_RANK], *cursor = op->row->outputs[i].shape;
    mmk_shape_token token;
    size_t rank = 0;
    for (; rank < MMK_MAX_RANK && mmk_next_dimension(&cursor, &token); rank++) {
        const Dimension *known = find_dimension(dimensions, token.text, token.length);
        symbols[rank] = known && known->symbol ? known->symbol : "";
        if (known)
            sizes[rank] = known->size;
        else if (token.kind == SHAPE_SIZE)
            sizes[rank] = token.size;
        else if (token.kind == SHAPE_PRODUCT)
            sizes[rank] = product(dimensions, &token);
        else
            sizes[rank] = attribute_value(op, context, token.text, token.length);
    }
    return set_inferred(op, context, i, sizes, symbols, rank);
}

/* Infers an output that has all dimensions of the first input, perhaps with another type. */
static OrtStatus *infer_same(const Op *op, OrtShapeInferContext *context, int i) {
    const OrtApi *api = op->api;
    OrtTensorTypeAndShapeInfo *input = NULL; /* belongs to the context */
    int64_t sizes[MMK_MAX_RANK];
    const char *symbols[MMK_MAX_RANK] = {NULL};
    size_t rank = 0;
    TRY(api->ShapeInferContext_GetInputTypeShape(context, 0, &input));
    TRY(api->GetDimensionsCount(input, &rank));
    if (rank == 0 || rank > MMK_MAX_RANK) return NULL;
    TRY(api->GetDimensions(input, sizes, rank));
    TRY(api->GetSymbolicDimensions(input, symbols, rank));
    return set_inferred(op, context, i, sizes, symbols, rank);
}

static OrtStatus *infer_all(const Op *op, OrtShapeInferContext *context) {
    Dimensions dimensions = {.count = 0};
    for (int i = 0; op->row->inputs[i].name; i++) {
        OrtTensorTypeAndShapeInfo *info = NULL; /* belongs to the context */
        if (op->row->inputs[i].optional) continue;
        TRY(op->api->ShapeInferContext_GetInputTypeShape(context, (size_t)i, &info));
        TRY(add_dimensions(op->api, info, op->row->inputs[i].shape, &dimensions));
    }
    for (int i = 0; op->row->outputs[i].name; i++)
        TRY(strstr(op->row->outputs[i].shape, "...") ? infer_same(op, context, i)
                                                     : infer_output(op, context, i, &dimensions));
    return NULL;
}

/* ONNX Runtime neither reads nor releases a status returned from here. */
OrtStatus *ORT_CALL mmk_infer_outputs(const OrtCustomOp *custom, OrtShapeInferContext *context) {
    const Op *op = (const Op *)custom;
    succeeded(op->api, infer_all(op, context));
    return NULL;
}
