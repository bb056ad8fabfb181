"""`mmort predict` on videos, cameras, standard input, and folders with all kinds of files."""

import io
import json
import os
import re
import shutil
import struct
import sys
import types

import cv2
import numpy as np
import pytest

from mmort import Predictor
from mmort.demo import IMAGES
from mmort.predict import Record, draw, list_images, read_image
from mmort.predict.predicting import video_source
from mmort.predict.video import AnnotatedVideo, Video
from mmort.predict.video_containers import stated_size
from tests.cli.running import misused, refused, run
from tests.predict import tiny_detector

COUNT, RATE, HEIGHT, WIDTH = 10, 5, 48, 64


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return tiny_detector.write(tmp_path_factory.mktemp("model") / "tiny.onnx")


def write(path, codec, count=COUNT):
    """Write a video whose frames get brighter."""
    writer = cv2.VideoWriter(path, cv2.VideoWriter_fourcc(*codec), RATE, (WIDTH, HEIGHT))
    for number in range(count):
        writer.write(np.full((HEIGHT, WIDTH, 3), 20 * number % 256, np.uint8))
    writer.release()


@pytest.fixture
def clip(folder):
    write("clip.avi", "MJPG")
    return "clip.avi"


def predict(model, *arguments):
    return run("predict", model, "--threads", 1, *arguments)


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


def brightness(path):
    return [float(frame.image[-4:, -4:].mean()) for frame in Video(path).frames()]


@pytest.mark.parametrize("batch_size", [1, 3])
def test_frames_come_in_order_with_their_time(tiny, clip, batch_size):
    code, out, err = predict(tiny, clip, "--json", "--batch-size", batch_size)
    assert (code, err) == (0, "")
    entries = lines(out)
    assert [entry["frame"] for entry in entries] == list(range(COUNT))
    np.testing.assert_allclose([entry["time"] for entry in entries], np.arange(COUNT) / RATE, atol=1e-3)
    expected = Predictor(tiny, score_threshold=0.3)(next(Video(clip).frames()).image).to_dict()
    assert all(entry == entry | expected | {"image": clip} for entry in entries)
    assert predict(tiny, clip)[1].splitlines()[3] == "clip.avi 0.60 s: b 0.50"


def test_an_interrupted_run_goes_on(tiny, clip, folder):
    whole = predict(tiny, clip, "--json")[1]
    assert predict(tiny, clip, "-o", "out") == (0, f"wrote out/detections.jsonl ({COUNT} frames)\n", "")
    file = folder / "out" / "detections.jsonl"
    assert file.read_text() == whole
    content = file.read_bytes()
    file.write_bytes(content[: content.index(b"\n", content.index(b'"frame": 3')) + 20])
    assert predict(tiny, clip, "-o", "out")[0] == 0
    assert file.read_bytes() == content
    assert predict(tiny, clip, "-o", "out")[0] == 0
    assert file.read_bytes() == content
    shutil.copy(IMAGES[0], "photo.png")
    counted = f"wrote out/detections.jsonl (1 image, {COUNT} frames, {COUNT} of them by an earlier run)\n"
    assert predict(tiny, "photo.png", "-o", "out") == (0, counted, "")


def test_annotated_videos(tiny, clip, folder):
    assert predict(tiny, clip, "--show-dir", "show/b") == (0, "wrote show/b/clip.mp4\n", "")
    drawn = Video("show/b/clip.mp4")
    assert (drawn.frames_per_second, drawn.stated_frames) == (RATE, COUNT)
    np.testing.assert_allclose(brightness("show/b/clip.mp4"), brightness(clip), atol=6)
    frame = next(Video(clip).frames()).image
    annotated = draw(frame, Predictor(tiny, score_threshold=0.3)(frame))
    first = next(drawn.frames()).image
    assert np.abs(first.astype(int) - annotated).mean() < np.abs(frame.astype(int) - annotated).mean() / 2
    assert os.listdir("show/b") == ["clip.mp4"]
    message = "mmort: error: annotated video exists: show/b/clip.mp4; --force replaces it\n"
    assert refused("predict", tiny, clip, "--show-dir", "show/b") == message
    assert predict(tiny, clip, "-o", "out", "--show-dir", "show/b", "--force")[0] == 0
    (folder / "show/b/clip.mp4").write_text("mine")
    assert predict(tiny, clip, "-o", "out", "--show-dir", "show/b")[1].endswith("clip.mp4 (by an earlier run)\n")
    assert (folder / "show/b/clip.mp4").read_text() == "mine"
    assert predict(tiny, clip, "-o", "out", "--show-dir", "show/b", "--force")[1].endswith("clip.mp4\n")
    assert Video("show/b/clip.mp4").stated_frames == COUNT


def test_an_interrupted_annotated_video_is_drawn_again(tiny, clip, folder, monkeypatch):
    add = AnnotatedVideo.add
    frames = iter(range(4))

    def interrupted(self, image):
        if next(frames, None) is None:
            raise KeyboardInterrupt
        add(self, image)

    monkeypatch.setattr(AnnotatedVideo, "add", interrupted)
    assert predict(tiny, clip, "-o", "out", "--show-dir", "show")[0] == 130
    assert os.listdir("show") == []
    monkeypatch.undo()
    os.chdir(folder)
    assert predict(tiny, clip, "-o", "out", "--show-dir", "show")[0] == 0
    assert Video("show/clip.mp4").stated_frames == COUNT
    assert [entry["frame"] for entry in lines((folder / "out" / "detections.jsonl").read_text())] == list(range(COUNT))


def test_a_damaged_video_is_not_taken_for_a_shorter_one(tiny, folder):
    """OpenCV reads no frame there, as at the end."""
    write("clip.avi", "MJPG")
    content = bytearray((folder / "clip.avi").read_bytes())
    begin = content.index(b"00dc", len(content) // 3) + 8
    content[begin : begin + 200] = bytes(200)
    (folder / "clip.avi").write_bytes(content)
    message = refused("predict", tiny, "clip.avi", "--show-dir", "show")
    assert re.search(r"clip\.avi: frame \d+ cannot be read, but later ones can: the file is damaged; ", message)
    assert os.listdir("show") == []


@pytest.mark.parametrize(("suffix", "codec"), [(".avi", "MJPG"), (".mkv", "MJPG"), (".mp4", "mp4v"), (".mov", "MJPG")])
def test_a_video_that_is_cut_is_refused(tiny, folder, suffix, codec):
    """What is left of it would be detected, drawn and finished as if it were all."""
    write(f"clip{suffix}", codec)
    content = (folder / f"clip{suffix}").read_bytes()
    if codec == "mp4v":  # the list of frames comes first, as in files for the web
        begin = content.index(b"moov") - 4
        content = content[:28] + content[begin:] + content[28:begin]
    assert 0 <= stated_size(io.BytesIO(content)) - len(content) < 8
    for length in (len(content) * 3 // 4, len(content) - 100):
        (folder / f"clip{suffix}").write_bytes(content[:length])
        message = refused("predict", tiny, f"clip{suffix}", "--show-dir", "show")
        assert re.search(rf"clip{suffix}: the file is cut: it states \d+ bytes, got {length}; a program ", message)
        assert not (folder / "show").exists()


@pytest.mark.parametrize("name", ["bytes", "edits"])
def test_frames_at_the_end(tiny, folder, name):
    """Damaged ones are missed, and not those that the file itself leaves out."""
    write("clip.mp4", "mp4v", 60)
    content = bytearray((folder / "clip.mp4").read_bytes())
    if name == "bytes":
        begin, end = content.index(b"mdat") + 4, content.index(b"moov") - 4
        content[(begin + end) // 2 : end] = bytes(end - (begin + end) // 2)
    else:  # the duration of the only edit, in milliseconds
        begin = content.index(b"elst") + 12
        content[begin : begin + 4] = struct.pack(">I", 2500)
    (folder / "clip.mp4").write_bytes(content)
    if name == "bytes":
        message = refused("predict", tiny, "clip.mp4", "--show-dir", "show")
        assert re.search(r"clip\.mp4: frame \d+ and the \d+ after it cannot be read: the file is damaged; a ", message)
        assert os.listdir("show") == []
    else:
        code, out, err = predict(tiny, "clip.mp4", "--json")
        assert (code, err[-66:]) == (0, "note: clip.mp4 states 60 frames, of which 13 could be read\n"[-66:])
        assert len(lines(out)) == 13


def test_sizes_of_containers_that_state_none():
    ebml = b"\x1a\x45\xdf\xa3\x80\x18\x53\x80\x67"
    assert stated_size(io.BytesIO(ebml + b"\x01" + b"\xff" * 7)) is None
    assert stated_size(io.BytesIO(ebml + b"\x42\x01")) == len(ebml) + 2 + 0x201
    for content in (b"", b"RIFF\0\0\0\0AVI ", b"\0\0\0\0mdat", ebml[:4] + b"\x01" + b"\xfe" * 7, b"GIF89a"):
        assert stated_size(io.BytesIO(content)) is None
    large = struct.pack(">I4sQ", 1, b"mdat", 2**40)
    assert stated_size(io.BytesIO(struct.pack(">I4s", 8, b"ftyp") + large)) == 8 + 2**40


def test_what_is_no_video(tiny, clip, folder):
    (folder / "text.mp4").write_text("text")
    assert "text.mp4: not a video in a format that OpenCV reads" in refused("predict", tiny, "text.mp4")
    assert "video does not exist, or is no regular file: none.mp4" in refused("predict", tiny, "none.mp4")
    assert "99: cannot be opened" in refused("predict", tiny, "99")
    shutil.copy(clip, folder / "clip.mp4")
    assert "would replace clip.mp4" in refused("predict", tiny, "clip.mp4", "--show-dir", ".")
    assert "clip.avi must be the only source, got 2" in refused("predict", tiny, clip, "photos")
    assert "predict: *.mp4 is a pattern of videos; run one after another" in refused("predict", tiny, "*.mp4")
    assert "windows and engine ray are for image files, got clip.avi" in refused(
        "predict", tiny, clip, "--window", "1024"
    )
    assert "what a camera saw is gone" in refused("predict", tiny, "0", "-o", "out")


def test_frames_that_a_small_file_states(tiny, clip, folder):
    content = bytearray((folder / clip).read_bytes())
    for name, offset in (("avih", 40), ("strf", 12)):  # where the width and height are
        position = content.find(name.encode()) + offset
        content[position : position + 8] = struct.pack("<II", 16_000, 16_000)
    position = -1
    while (position := content.find(b"\xff\xc0", position + 1)) >= 0:  # of each JPEG image
        content[position + 5 : position + 9] = struct.pack(">HH", 16_000, 16_000)
    (folder / "large.avi").write_bytes(content)
    message = "large.avi: frames may have 67108864 pixels, got 16000 x 16000; scale the video down"
    assert message in refused("predict", tiny, "large.avi")


def test_videos_without_a_frame(tiny, clip, folder):
    content = (folder / clip).read_bytes()
    (folder / "broken.avi").write_bytes(content.replace(b"\xff\xc0", b"\xff\xfe"))
    assert "broken.avi: no frame can be read" in refused("predict", tiny, "broken.avi")


@pytest.mark.parametrize(
    "text",
    [
        "ffconcat version 1.0\nfile {}\n",
        "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n{}\n#EXT-X-ENDLIST\n",
        '\n<?xml version="1.0"?><MPD><Period><BaseURL>{}</BaseURL></Period></MPD>',
    ],
)
def test_lists_of_other_videos(tiny, clip, folder, text):
    """FFmpeg would open the files that such a list names."""
    (folder / "list.avi").write_text(text.format(clip))
    assert "list.avi: a list of other files, not a video" in refused("predict", tiny, "list.avi")


@pytest.mark.parametrize(
    ("address", "advice"),
    [("http://example.org/a.jpg", "download it first"), ("rtsp://camera/stream", "pass frames that OpenCV has read")],
)
def test_addresses_are_not_fetched(tiny, address, advice):
    assert f"{address} is an address, and nothing is fetched; {advice}" in refused("predict", tiny, address)


@pytest.mark.parametrize("number", [2**31, 10**30])
def test_numbers_of_cameras(tiny, number):
    message = f"the number of a camera must be from 0 to 2147483647, got {number}"
    assert message in refused("predict", tiny, number)


def test_closed_standard_input(tiny, monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    assert "- is the image on standard input, which is closed" in misused("predict", tiny, "-")


def test_a_file_whose_name_is_a_number_is_no_camera(folder):
    (folder / "0").touch()
    assert video_source(["0"]) is None
    assert video_source(["1"]) == 1


def test_an_image_on_standard_input(tiny, monkeypatch):
    content = types.SimpleNamespace(buffer=io.BytesIO(IMAGES[0].read_bytes()))
    monkeypatch.setattr(sys, "stdin", content)
    assert predict(tiny, "-") == (0, "-: b 0.50\n", "")
    for option in ("-o", "--show-dir"):
        assert "an image on standard input has no name" in misused("predict", tiny, "-", option, "out")
    monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=io.BytesIO(b"no image")))
    message = "mmort: error: standard input: not an image in a format that OpenCV reads, or cut short\n"
    assert refused("predict", tiny, "-") == message


def test_standard_input_without_an_end(tiny, monkeypatch):
    monkeypatch.setattr("mmort.cli.predict.MAX_STANDARD_INPUT", 1000)
    with open("/dev/zero", "rb") as zeros:
        monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=zeros))
        assert "standard input: an image must have at most 1000 bytes there; save it" in refused("predict", tiny, "-")


@pytest.mark.filterwarnings("always::mmort.predict.image_files.LeftOutWarning")
def test_folders_below_a_folder(tiny, folder):
    (folder / "photos" / "2024").mkdir(parents=True)
    shutil.copy(IMAGES[0], "photos")
    shutil.copy(IMAGES[1], "photos/2024")
    code, out, err = predict(tiny, "photos")
    assert (code, out.count("\n")) == (0, 1)
    reason = "folders below it are searched with recursive=True (-r)"
    assert err == f"mmort: warning: photos: left out 2024; {reason}\n"
    code, out, _ = predict(tiny, "photos", "-r")
    assert code == 0
    assert sorted(line.partition(":")[0] for line in out.splitlines()) == [
        f"photos/2024/{IMAGES[1].name}",
        f"photos/{IMAGES[0].name}",
    ]


@pytest.mark.parametrize("suffix", [".gif", ".jp2"])
def test_newer_formats_are_images(tiny, folder, suffix):
    """One that this OpenCV cannot read is named, and never left out silently."""
    (folder / "photos").mkdir()
    (folder / "photos" / f"broken{suffix}").write_bytes(b"no image")
    assert cv2.imwrite(f"photos/whole{suffix}", read_image(IMAGES[0]))
    assert [path.name for path in list_images("photos")] == [f"broken{suffix}", f"whole{suffix}"]
    code, out, err = predict(tiny, "photos")
    assert code == 1
    assert out.startswith(f"photos/whole{suffix}: ")
    assert f"broken{suffix}" in err


def test_a_record_of_frames_knows_the_first_that_is_missing(tiny, clip):
    detections = Predictor(tiny, score_threshold=0)(IMAGES[0])
    record = Record("out", {})
    for frame in (0, 1, 3):
        record.add(clip, detections, frame=frame, time=frame / RATE)
        record.add(clip, detections, frame=frame, time=frame / RATE)
    assert (record.frames(clip), record.frames("other.avi"), len(record), clip in record) == (2, 0, 3, False)
    record.close()
