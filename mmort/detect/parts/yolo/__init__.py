"""Parts that the detectors of MMYOLO share: scaled sizes, blocks, their head and how it selects detections."""
