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

    {.kernel = "grid_sample",
     .type = "grid_sampler",
     .domains = {"mmcv", "mmdeploy"},
     .inputs = {{"input", "[N, C, H, W]", MMK_FLOAT32}, {"grid", "[N, OH, OW, 2]", MMK_FLOAT32}},
     .outputs = {{"output", "[N, C, OH, OW]", MMK_FLOAT32}},
     .attributes = {INT("interpolation_mode", 0), INT("padding_mode", 0), INT("align_corners", 0)}},

    {.kernel = "group_norm",
     .type = "GroupNorm",
     .domains = {"mmort"},
     .inputs = {{"x", "[N, C, ...]", MMK_FLOAT32}, {"scale", "[C]", MMK_FLOAT32}, {"bias", "[C]", MMK_FLOAT32}},
     .outputs = {{"output", "[...]", MMK_FLOAT32}},
     .attributes = {REQUIRED_INT("num_groups"), FLOAT("epsilon", 1e-5)}},

    {.kernel = "multi_scale_deformable_attention",
     .type = "MultiScaleDeformableAttention",
     .domains = {"mmort"},
     .inputs = {{"value", "[B, S, M, D]", MMK_FLOAT32},
                {"spatial_shapes", "[L, 2]", MMK_INT64},
                {"level_start_index", "[L]", MMK_INT64},
                {"sampling_locations", "[B, Q, M, L, P, 2]", MMK_FLOAT32},
                {"attention_weights", "[B, Q, M, L, P]", MMK_FLOAT32}},
     .outputs = {{"output", "[B, Q, ?]", MMK_FLOAT32}}},

    {.kernel = "multiclass_nms",
     .type = "MultiClassNMS",
     .domains = {"mmort"},
     .inputs = {{"boxes", "[B, N, 4]", MMK_FLOAT32}, {"scores", "[B, N, C]", MMK_FLOAT32}},
     .outputs = {{"dets", "[B, max_per_image, 5]", MMK_FLOAT32},
                 {"labels", "[B, max_per_image]", MMK_INT64},
                 {"indices", "[B, max_per_image]", MMK_INT64}},
     .attributes = {FLOAT("score_threshold", 0.05),
                    FLOAT("iou_threshold", 0.5),
                    INT("max_per_image", 100),
                    INT("nms_pre", -1),
                    INT("class_agnostic", 0),
                    {.name = "method",
                     .type = ATTRIBUTE_STRING,
                     .choices = {"nms", "soft_nms_naive", "soft_nms_linear", "soft_nms_gaussian"}},
                    FLOAT("sigma", 0.5),
                    FLOAT("min_score", 1e-3),
                    INT("offset", 0)}},

    {.kernel = "nms",
     .type = "NonMaxSuppression",
     .domains = {"mmcv"},
     .inputs = {{"boxes", "[N, 4]", MMK_FLOAT32}, {"scores", "[N]", MMK_FLOAT32}},
     .outputs = {{"indices", "[?]", MMK_INT64}},
     .attributes = {REQUIRED_FLOAT("iou_threshold"), INT("offset", 0), FLOAT("score_threshold", 0),
                    INT("max_num", -1)}},

    {.kernel = "nms_match_pairs",
     .type = "NMSMatch",
     .domains = {"mmdeploy"},
     .inputs = {{"boxes", "[B, K, 4]", MMK_FLOAT32},
                {"scores", "[B, C, K]", MMK_FLOAT32},
                {"iou_threshold", "[...]", MMK_FLOAT32},
                {"score_threshold", "[...]", MMK_FLOAT32}},
     .outputs = {{"indices", "[?, 4]", MMK_INT64}}},

    {.kernel = "nms_rotated_indices",
     .type = "NMSRotated",
     .domains = {"mmdeploy"},
     .inputs = {{"boxes", "[B, K, 5]", MMK_FLOAT32}, {"scores", "[B, C, K]", MMK_FLOAT32}},
     .outputs = {{"indices", "[?, 3]", MMK_INT64}},
     .attributes = {REQUIRED_FLOAT("iou_threshold"), REQUIRED_FLOAT("score_threshold")}},

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

    {.kernel = "roi_align_rotated",
     .type = "MMCVRoIAlignRotated",
     .domains = {"mmcv", "mmdeploy"},
     .inputs = {{"input", "[N, C, H, W]", MMK_FLOAT32}, {"rois", "[K, 6]", MMK_FLOAT32}},
     .outputs = {{"output", "[K, C, output_height, output_width]", MMK_FLOAT32}},
     .attributes = {REQUIRED_INT("output_height"), REQUIRED_INT("output_width"), FLOAT("spatial_scale", 1),
                    INT("sampling_ratio", 0), INT("aligned", 1), INT("clockwise", 0)}},

    {.kernel = "rotated_feature_align",
     .type = "MMCVRotatedFeatureAlign",
     .domains = {"mmcv"},
     .inputs = {{"features", "[N, C, H, W]", MMK_FLOAT32}, {"best_rbboxes", "[N, H, W, 5]", MMK_FLOAT32}},
     .outputs = {{"output", "[N, C, H, W]", MMK_FLOAT32}},
     .attributes = {FLOAT("spatial_scale", 0.125), INT("points", 1)}},

    {.kernel = "soft_nms",
     .type = "SoftNonMaxSuppression",
     .domains = {"mmcv"},
     .inputs = {{"boxes", "[N, 4]", MMK_FLOAT32}, {"scores", "[N]", MMK_FLOAT32}},
     .outputs = {{"dets", "[?, 5]", MMK_FLOAT32}, {"indices", "[?]", MMK_INT64}},
     .attributes = {FLOAT("iou_threshold", 0.3), FLOAT("sigma", 0.5), FLOAT("min_score", 1e-3), INT("method", 1),
                    INT("offset", 0)}},

    {.type = NULL},
};

_Static_assert(sizeof operator_rows / sizeof *operator_rows <= MOST_OPERATORS, "MOST_OPERATORS is too small");
