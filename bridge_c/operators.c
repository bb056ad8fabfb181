/* operators.c - the table of operators as ONNX sees them, one row each.  Nothing is computed here. */
#include "operators.h"

#define INT(name_, default_) {.name = name_, .type = ATTRIBUTE_INT, .initial.i = default_}
#define FLOAT(name_, default_) {.name = name_, .type = ATTRIBUTE_FLOAT, .initial.f = default_}
#define PAIR(name_, default_) {.name = name_, .type = ATTRIBUTE_PAIR, .initial.i = default_}
#define REQUIRED_INT(name_) {.name = name_, .type = ATTRIBUTE_INT, .required = 1}
#define REQUIRED_FLOAT(name_) {.name = name_, .type = ATTRIBUTE_FLOAT, .required = 1}

const OperatorRow operator_rows[] = {
    {.kernel = "corner_pool",
     .type = "MMCVCornerPool",
     .domains = {"mmcv"},
     .inputs = {{"input", "[N, C, H, W]", MMK_FLOAT32}},
     .outputs = {{"output", "[N, C, H, W]", MMK_FLOAT32}},
     .attributes = {REQUIRED_INT("mode")}},

    {.kernel = "cummax",
     .type = "cummax",
     .domains = {"mmcv"},
     .inputs = {{"input", "[...]", MMK_FLOAT32}},
     .outputs = {{"output", "[...]", MMK_FLOAT32}, {"indices", "[...]", MMK_INT64}},
     .attributes = {REQUIRED_INT("dim")}},

    {.kernel = "cummin",
     .type = "cummin",
     .domains = {"mmcv"},
     .inputs = {{"input", "[...]", MMK_FLOAT32}},
     .outputs = {{"output", "[...]", MMK_FLOAT32}, {"indices", "[...]", MMK_INT64}},
     .attributes = {REQUIRED_INT("dim")}},

    {.kernel = "nms",
     .type = "NonMaxSuppression",
     .domains = {"mmcv"},
     .inputs = {{"boxes", "[N, 4]", MMK_FLOAT32}, {"scores", "[N]", MMK_FLOAT32}},
     .outputs = {{"indices", "[?]", MMK_INT64}},
     .attributes = {REQUIRED_FLOAT("iou_threshold"), INT("offset", 0), FLOAT("score_threshold", 0),
                    INT("max_num", -1)}},

    {.kernel = "soft_nms",
     .type = "SoftNonMaxSuppression",
     .domains = {"mmcv"},
     .inputs = {{"boxes", "[N, 4]", MMK_FLOAT32}, {"scores", "[N]", MMK_FLOAT32}},
     .outputs = {{"dets", "[?, 5]", MMK_FLOAT32}, {"indices", "[?]", MMK_INT64}},
     .attributes = {FLOAT("iou_threshold", 0.3), FLOAT("sigma", 0.5), FLOAT("min_score", 1e-3), INT("method", 1),
                    INT("offset", 0)}},

    {.kernel = "grid_sample",
     .type = "grid_sampler",
     .domains = {"mmcv", "mmdeploy"},
     .inputs = {{"input", "[N, C, H, W]", MMK_FLOAT32}, {"grid", "[N, OH, OW, 2]", MMK_FLOAT32}},
     .outputs = {{"output", "[N, C, OH, OW]", MMK_FLOAT32}},
     .attributes = {INT("interpolation_mode", 0), INT("padding_mode", 0), INT("align_corners", 0)}},

    {.kernel = "roi_align",
     .type = "MMCVRoiAlign",
     .domains = {"mmcv", "mmdeploy"},
     .inputs = {{"input", "[N, C, H, W]", MMK_FLOAT32}, {"rois", "[K, 5]", MMK_FLOAT32}},
     .outputs = {{"output", "[K, C, output_height, output_width]", MMK_FLOAT32}},
     .attributes = {{.name = "output_height", .type = ATTRIBUTE_INT, .required = 1, .former = "aligned_height"},
                    {.name = "output_width", .type = ATTRIBUTE_INT, .required = 1, .former = "aligned_width"},
                    FLOAT("spatial_scale", 1),
                    INT("sampling_ratio", 0),
                    {.name = "mode", .type = ATTRIBUTE_STRING, .former = "pool_mode", .choices = {"avg", "max"}},
                    INT("aligned", 1)}},

    {.kernel = "deform_conv2d",
     .type = "MMCVDeformConv2d",
     .domains = {"mmcv", "mmdeploy"},
     .inputs = {{"input", "[N, C, H, W]", MMK_FLOAT32},
                {"offset", "[N, deform_groups*2*KH*KW, OH, OW]", MMK_FLOAT32},
                {"weight", "[O, C/groups, KH, KW]", MMK_FLOAT32}},
     .outputs = {{"output", "[N, O, OH, OW]", MMK_FLOAT32}},
     .attributes = {PAIR("stride", 1), PAIR("padding", 0), PAIR("dilation", 1), INT("groups", 1),
                    INT("deform_groups", 1)}},

    {.kernel = "modulated_deform_conv2d",
     .type = "MMCVModulatedDeformConv2d",
     .domains = {"mmcv", "mmdeploy"},
     .inputs = {{"input", "[N, C, H, W]", MMK_FLOAT32},
                {"offset", "[N, deform_groups*2*KH*KW, OH, OW]", MMK_FLOAT32},
                {"mask", "[N, deform_groups*KH*KW, OH, OW]", MMK_FLOAT32},
                {"weight", "[O, C/groups, KH, KW]", MMK_FLOAT32},
                {"bias", "[O]", MMK_FLOAT32, .optional = 1}},
     .outputs = {{"output", "[N, O, OH, OW]", MMK_FLOAT32}},
     .attributes = {PAIR("stride", 1), PAIR("padding", 0), PAIR("dilation", 1), INT("groups", 1),
                    INT("deform_groups", 1)}},

    {.type = NULL},
};

_Static_assert(sizeof operator_rows / sizeof *operator_rows <= MOST_OPERATORS, "MOST_OPERATORS is too small");
