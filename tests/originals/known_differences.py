"""Cases in which mmort differs from MMDetection, and why: an empty dict is the goal."""

KNOWN: dict[str, str] = {
    "gliding_vertex": "MMRotate 1 takes the corners for rotated boxes when it maps them to the original image",
}
