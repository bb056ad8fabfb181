"""Cases in which mmort differs from MMDetection today, and why: an empty dict is the goal."""

_MATRIX_NMS = "nms_pre is applied before empty masks are dropped and scores are weighted by masks"
KNOWN: dict[str, str] = {
    "solo": _MATRIX_NMS,
    "decoupled_solo": _MATRIX_NMS,
    "decoupled_solo_light": _MATRIX_NMS,
    "solov2": _MATRIX_NMS,
}
