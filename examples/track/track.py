"""Objects keep their numbers from frame to frame; ``python track.py detector.onnx clip.mp4`` prints them."""

import sys
from collections.abc import Iterator

import supervision as sv
from trackers import ByteTrackTracker

from mmort import Predictor


def track(model: str, video: str) -> Iterator[sv.Detections]:
    """Yield the objects in each frame; their ``tracker_id`` is -1 until they have been seen twice."""
    predict = Predictor(model, score_threshold=0.1)  # the tracker also takes weak detections of objects that it knows
    tracker = ByteTrackTracker(frame_rate=sv.VideoInfo.from_video_path(video).fps)
    for detections in predict.predict(sv.get_video_frames_generator(video)):
        yield tracker.update(detections.to_supervision())


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python track.py MODEL VIDEO")
    for number, objects in enumerate(track(*sys.argv[1:])):
        names = zip(objects.data["class_name"], objects.tracker_id, strict=True)
        print(number, *(f"{name}#{identity}" for name, identity in names if identity >= 0))
