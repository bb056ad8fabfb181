"""``mmort demo``: the whole way with torch, the shipped file without it; both find what MMDetection finds."""

import json
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import threading
import types
import urllib.request

import cv2
import numpy as np
import onnxruntime
import pytest

from mmort import Detections, Predictor, demo
from mmort.configs import read_config
from mmort.demo import page, walkthrough
from mmort.detect.export import ExportOptions
from mmort.detections.drawing import class_colour
from tests.cli.running import refused, run
from tests.predict import tiny_open_vocabulary

# Detections of MMDetection itself, in PyTorch, with a score above 0.5, on the images that come with the demo.
MMDETECTION = {
    "digits_05.png": [
        ("four", 1.000, (11.5, 77.5, 25.2, 94.9)),
        ("zero", 1.000, (35.4, 1.4, 52.5, 35.1)),
        ("three", 1.000, (34.4, 44.5, 51.0, 68.5)),
        ("two", 0.997, (55.8, 3.2, 89.2, 39.8)),
        ("two", 0.995, (65.1, 40.0, 76.1, 60.1)),
        ("one", 0.993, (101.4, 53.8, 112.1, 80.2)),
    ],
    "digits_27.png": [
        ("nine", 0.999, (58.3, 111.3, 73.2, 133.1)),
        ("three", 0.998, (52.5, 3.6, 62.0, 20.2)),
        ("two", 0.992, (10.6, 112.4, 21.0, 128.5)),
        ("five", 0.988, (91.1, 104.3, 110.1, 144.6)),
        ("one", 0.949, (15.1, 31.5, 36.1, 69.5)),
        ("seven", 0.849, (46.2, 38.1, 53.8, 52.0)),
    ],
    "digits_63.png": [
        ("six", 1.000, (69.5, 72.3, 92.9, 107.8)),
        ("seven", 0.970, (137.6, 21.2, 145.6, 35.0)),
        ("eight", 0.883, (16.9, 37.6, 24.7, 50.2)),
        ("five", 0.584, (156.3, 45.6, 164.1, 57.3)),
    ],
    "digits_75.png": [
        ("four", 1.000, (11.0, 52.0, 24.3, 76.9)),
        ("nine", 1.000, (15.2, 13.4, 34.7, 41.3)),
        ("zero", 1.000, (93.1, 119.8, 107.3, 137.2)),
        ("four", 0.999, (116.6, 116.7, 140.9, 157.3)),
        ("five", 0.997, (80.3, 38.2, 90.6, 55.9)),
        ("six", 0.983, (81.1, 3.3, 104.5, 35.1)),
    ],
}


# The same of the Grounding DINO, for texts that it is given, with a score above 0.4.
MMDETECTION_WORDS = {
    "zero . four . six": {
        "digits_05.png": [
            ("four", 0.529, (12.0, 77.1, 24.5, 95.4)),
            ("zero", 0.491, (35.2, 1.4, 51.5, 35.8)),
        ],
        "digits_27.png": [
            ("six", 0.438, (10.9, 113.2, 20.4, 129.3)),
        ],
        "digits_63.png": [
            ("six", 0.540, (68.6, 71.8, 92.9, 108.5)),
        ],
        "digits_75.png": [
            ("four", 0.584, (10.2, 51.6, 24.6, 76.9)),
            ("zero", 0.478, (92.8, 119.6, 106.0, 137.8)),
        ],
    },
    "six . four . zero . three": {
        "digits_05.png": [
            ("three", 0.639, (34.8, 44.7, 51.8, 67.4)),
            ("zero", 0.505, (35.2, 1.4, 51.3, 35.9)),
            ("four", 0.480, (12.0, 77.1, 24.5, 95.5)),
        ],
        "digits_27.png": [
            ("three", 0.479, (57.8, 111.7, 73.5, 134.4)),
            ("six", 0.452, (10.9, 113.2, 20.3, 129.4)),
        ],
        "digits_63.png": [
            ("six", 0.558, (68.7, 71.7, 92.9, 108.5)),
        ],
        "digits_75.png": [
            ("four", 0.521, (10.3, 51.6, 24.6, 77.0)),
            ("zero", 0.491, (92.8, 119.7, 105.8, 137.7)),
            ("zero", 0.415, (93.0, 119.4, 105.8, 137.6)),
            ("three", 0.403, (82.1, 39.4, 90.8, 55.9)),
        ],
    },
}


def test_the_shipped_file_finds_what_mmdetection_finds():
    result = Predictor(demo.MODEL, score_threshold=0.5).predict(demo.IMAGES)
    for path, detections in zip(demo.IMAGES, result, strict=True):
        assert_equal(detections, MMDETECTION[path.name])
        assert detections.has_masks


def assert_equal(detections, expected):
    names, scores, boxes = zip(*expected, strict=True)
    assert detections.names == names
    np.testing.assert_allclose(detections.scores, scores, rtol=0, atol=0.00051)
    np.testing.assert_allclose(detections.boxes, boxes, rtol=0, atol=0.051)


def test_without_torch(tmp_path):
    command = ["demo", "--output", str(tmp_path / "new")]
    code = f"import sys; sys.modules['torch'] = None; import mmort.cli; sys.exit(mmort.cli.main({command}))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["detections.png"]
    assert "No torch here" in out
    assert "digits_63.png: six seven eight five" in out
    assert out.endswith("pip install 'mmort[demo]'\n")
    sheet = cv2.imread(str(tmp_path / "new" / "detections.png"))
    for label in range(10):  # all are in the images; a label alone has 300 pixels and more
        assert (sheet == class_colour(label)).all(axis=2).sum() > 300, label


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, ()) for name in walkthrough.FILES),
        *((name, ("--texts", "zero")) for name in walkthrough.FILES_WITH_TEXTS),
    ],
)
def test_files_are_replaced_with_force_only(monkeypatch, tmp_path, name, options):
    """But those of the demo with texts and without it are in one folder."""
    monkeypatch.setattr(walkthrough, "run", lambda output: print("ran"))
    monkeypatch.setattr(walkthrough, "run_with_texts", lambda output, texts: print("ran"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mmort_demo").mkdir()
    (tmp_path / "mmort_demo" / "notes.txt").touch()
    assert run("demo", *options)[1] == "ran\n"
    (tmp_path / "mmort_demo" / name).touch()
    assert f"output file exists: {tmp_path / 'mmort_demo' / name}; --force replaces it" in refused("demo", *options)
    assert run("demo", *(() if options else ("--texts", "zero")))[1] == "ran\n"
    assert run("demo", "--force", *options)[1] == "ran\n"


def test_with_torch(monkeypatch, tmp_path):
    """All but the export itself, which takes 20 seconds: tests/detect has it."""
    pytest.importorskip("torch")
    calls = []

    def export(config, checkpoint, output, options, *, progress):
        calls.append((config, checkpoint, options))
        progress("an export's line")
        shutil.copy(demo.MODEL, output)

    monkeypatch.setattr("mmort.detect.export.export", export)
    code, out, err = run("demo", "--output", tmp_path)
    assert (code, err) == (0, "")
    assert calls == [(demo.CONFIG, demo.CHECKPOINT, ExportOptions(input_img=demo.IMAGES[0]))]
    assert {path.name for path in tmp_path.iterdir()} == {"detections.png", "mask_rcnn.onnx", "parity.html"}
    assert "\n  an export's line\n" in out
    assert re.search(r"^  bbox_mAP +0\.\d+ +0\.\d+ +0\.0000$", out, re.MULTILINE)
    assert re.search(r"ONNX Runtime equals torch: .* (\d+) of \1 detections are equal", out)
    assert f"mmort predict {tmp_path / 'mask_rcnn.onnx'}" in out


@pytest.mark.parametrize("texts", MMDETECTION_WORDS)
def test_the_words_decide_as_in_mmdetection(texts):
    """In torch; tests/exports has the command, whose export takes most of a minute."""
    pytest.importorskip("torch")
    pytest.importorskip("tokenizers")
    from mmort.detect.network import load_network

    config = read_config(demo.WORDS_CONFIG, {"model.language_model.name": str(demo.LANGUAGE_MODEL)})
    network = load_network(config, demo.WORDS_CHECKPOINT, texts=texts)
    predict = Predictor(
        network,
        classes=network.classes,
        preprocessing=network.preprocessing,
        score_threshold=walkthrough.WORDS_SCORE_THRESHOLD,
    )
    for path, expected in MMDETECTION_WORDS[texts].items():
        assert_equal(predict(demo.IMAGES[0].with_name(path)), expected)


def test_with_words(monkeypatch, tmp_path):
    """All but the export itself."""
    pytest.importorskip("torch")
    pytest.importorskip("tokenizers")
    calls = []

    def export(config, checkpoint, output, options, *, progress):
        calls.append((config, checkpoint, options))
        progress("an export's line")
        tiny_open_vocabulary.save_encoder(output.with_suffix(".texts.onnx"))
        tiny_open_vocabulary.save_detector(output, texts={"encoder": "grounding_dino.texts.onnx", "digest": "one"})

    monkeypatch.setattr("mmort.detect.export.export", export)
    monkeypatch.setattr(walkthrough, "WORDS_SCORE_THRESHOLD", 0)
    code, out, err = run("demo", "--texts", "cat . red light", "--output", tmp_path)
    assert (code, err) == (0, "")
    options = {"model.language_model.name": str(demo.LANGUAGE_MODEL)}
    options = ExportOptions(cfg_options=options, input_img=demo.IMAGES[0], open_vocabulary=True)
    assert calls == [(demo.WORDS_CONFIG, demo.WORDS_CHECKPOINT, options)]
    files = {"grounding_dino.onnx", "grounding_dino.texts.onnx", "words.png"}
    assert {path.name for path in tmp_path.iterdir()} == files
    assert "\n  an export's line\n" in out
    assert "\nLook for cat, red light with ONNX Runtime" in out
    for path in demo.IMAGES:
        assert re.search(rf"^  {path.name}: (cat red light|red light cat)$", out, re.MULTILINE)
    assert out.endswith(f"mmort predict {tmp_path / 'grounding_dino.onnx'} YOUR_IMAGES --texts 'OTHER . WORDS'\n")


def test_words_that_name_nothing_are_refused_before_the_work(monkeypatch, tmp_path):
    monkeypatch.setattr(walkthrough, "export_words", lambda model, **options: pytest.fail("export began"))
    assert "texts must have at least one name" in refused("demo", "--texts", " . ", "--output", tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("package", ["onnx", "tokenizers"])
def test_words_without_an_extra(monkeypatch, tmp_path, package):
    pytest.importorskip("torch")
    monkeypatch.setitem(sys.modules, package, None)
    assert re.search(rf"{package}.*pip install", refused("demo", "--texts", "six", "--output", tmp_path))


def test_page_with_words_has_a_detector_of_them(monkeypatch, web):
    calls = []

    def export_words(model, **options):
        calls.append(options)
        model.touch()

    monkeypatch.setattr(walkthrough, "export_words", export_words)
    page.write(web / "web", ["seven", "three"])
    assert calls == [{"texts": ["seven", "three"], "portable": True}]
    assert json.loads((web / "web/samples.json").read_text())["model"] == "grounding_dino.onnx"


def test_output_directory_is_checked_before_the_work(monkeypatch, tmp_path):
    monkeypatch.setattr(walkthrough, "_has_torch", lambda: pytest.fail("work began"))
    assert "absent" in refused("demo", "--output", tmp_path / "absent" / "folder")
    (tmp_path / "file").touch()
    assert "file" in refused("demo", "--output", tmp_path / "file")
    monkeypatch.setattr(walkthrough.os, "access", lambda path, mode: False)  # root may write anywhere
    assert f"output directory is not writable: {tmp_path}" in refused("demo", "--output", tmp_path)


def test_without_library(monkeypatch, tmp_path):
    monkeypatch.setattr(walkthrough, "_has_torch", lambda: False)
    monkeypatch.setattr("mmort.ort.library._NAME", "absent.so")
    assert "WITH_ORT=1 pip install" in refused("demo", "--output", tmp_path)


@pytest.mark.parametrize("package", ["cv2", "onnxruntime"])
def test_without_an_extra(monkeypatch, tmp_path, package):
    monkeypatch.setattr(walkthrough, "_has_torch", lambda: False)
    monkeypatch.setitem(sys.modules, package, None)
    assert "pip install 'mmort[predict]'" in refused("demo", "--output", tmp_path)


@pytest.fixture
def web(tmp_path):
    """An output directory whose page has a runtime already, so that npm is not called."""
    (tmp_path / "web" / page.RUNTIME).mkdir(parents=True)
    return tmp_path


def test_page_is_served_with_a_detector_that_runs_without_the_library(web):
    pytest.importorskip("onnx")
    page.write(web / "web")
    session = onnxruntime.InferenceSession(web / "web" / demo.MODEL.name)
    assert [output.name for output in session.get_outputs()] == ["dets", "labels", "masks"]
    (web / "web" / page.RUNTIME / "runtime.mjs").touch()
    with page.make_server(web / "web") as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        answers, types = {}, {}
        for name in ("", "page.js", "onnxruntime-web/runtime.mjs", "samples.json", "digits_05.png"):
            with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/{name}") as answer:
                answers[name] = answer.read()
                assert {*page.HEADERS.items()} <= {*answer.headers.items()}
                types[name] = answer.headers["Content-Type"]
        server.shutdown()
        thread.join()
    assert b"page.js" in answers[""]
    assert types["onnxruntime-web/runtime.mjs"] == "text/javascript"
    assert answers["digits_05.png"] == demo.IMAGES[0].read_bytes()
    assert json.loads(answers["samples.json"])["pictures"] == [path.name for path in demo.IMAGES]


def answer_to(port, path, host=None):
    """Send a request as it stands, which libraries would not."""
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        lines = [f"GET {path} HTTP/1.1", f"Host: {host or f'127.0.0.1:{port}'}", "Connection: close", "", ""]
        connection.sendall("\r\n".join(lines).encode("latin-1"))
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_only_the_pages_files_are_served(tmp_path, capfd):
    (tmp_path / "web/folder").mkdir(parents=True)
    (tmp_path / "web/index.html").write_text("the page")
    (tmp_path / "web/folder/a.js").write_text("a script")
    (tmp_path / "secret").write_text("a secret")
    (tmp_path / "web/link").symlink_to("../secret")
    (tmp_path / "web/linked").symlink_to("..")
    os.mkfifo(tmp_path / "web/pipe")
    with page.make_server(tmp_path / "web") as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            port = server.server_port
            assert answer_to(port, "/").endswith(b"the page")
            assert answer_to(port, "/", f"localhost:{port}").endswith(b"the page")
            assert answer_to(port, "/folder/a.js?x#y").endswith(b"a script")
            paths = (
                "/%00 /a%00b /folder /folder/ /link /linked/secret /pipe /../secret /%2e%2e/secret //etc/passwd /%ff /."
            )
            for path in [*paths.split(), "/" + "a" * 5000, "/\x1b[2J", "/index.html/"]:
                answer = answer_to(port, path)
                assert (path, answer.split(maxsplit=2)[1]) == (path, b"404")
                assert b"secret" not in answer
            for host in ("example.com", f"example.com:{port}", "127.0.0.1", f"127.0.0.1:{port + 1}", ""):
                assert answer_to(port, "/", host or " ").split(maxsplit=2)[1] == b"403"
        finally:
            server.shutdown()
            thread.join()
    err = capfd.readouterr().err
    assert "Traceback" not in err
    assert "\x1b" not in err


def test_page_ends_with_one_line(monkeypatch, web):
    monkeypatch.setattr(page, "write", lambda folder, texts, force: None)

    def interrupt(server):
        raise KeyboardInterrupt

    monkeypatch.setattr(page.ThreadingHTTPServer, "serve_forever", interrupt)
    code, out, err = run("demo", "--web", "--output", web)
    assert (code, err) == (130, "mmort: interrupted\n")
    assert re.match(r"Open http://127\.0\.0\.1:\d+/ in a browser; ", out)


def test_page_replaces_files_with_force_only(monkeypatch, tmp_path):
    monkeypatch.setattr(page, "_write_detector", lambda model: model.touch())
    (tmp_path / "web" / page.RUNTIME).mkdir(parents=True)
    index = tmp_path / "web/index.html"
    index.write_text("mine")
    for _ in range(2):
        with pytest.raises(FileExistsError, match=r"output file exists: .*index\.html; force=True replaces it$"):
            page.write(tmp_path / "web")
        assert (index.read_text(), len(os.listdir(tmp_path / "web"))) == ("mine", 2)
    page.write(tmp_path / "web", force=True)
    assert "<html" in index.read_text()
    code, _, err = run("demo", "--web", "--output", tmp_path)
    assert (code, err.count("--force replaces it")) == (1, 1)


@pytest.mark.parametrize("name", ["index.html", "mask_rcnn.onnx", "samples.json", "digits_05.png", page.RUNTIME, "."])
def test_page_follows_no_links(tmp_path, name):
    (tmp_path / "other").mkdir()
    if name == ".":
        (tmp_path / "web").symlink_to("other")
    else:
        (tmp_path / "web").mkdir()
        (tmp_path / "web" / name).symlink_to(tmp_path / "other")
    with pytest.raises(ValueError, match=r"output file must be inside .* is a link; remove it$"):
        page.write(tmp_path / "web", force=True)
    assert os.listdir(tmp_path / "other") == []


def test_clients_that_reset_their_connection(tmp_path, capfd):
    (tmp_path / "index.html").write_text("the page")
    with page.make_server(tmp_path) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            for _ in range(20):
                with socket.create_connection(("127.0.0.1", server.server_port), 10) as connection:
                    connection.sendall(b"GET / HT")
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            assert answer_to(server.server_port, "/").endswith(b"the page")
        finally:
            server.shutdown()
            thread.join()
    assert capfd.readouterr().err == ""


def test_page_without_npm(monkeypatch, tmp_path):
    pytest.importorskip("onnx")
    monkeypatch.setattr(page.shutil, "which", lambda name: None)
    assert "npm, which fetches it, is not installed" in refused("demo", "--web", "--output", tmp_path)


def test_annotations_are_of_the_images():
    annotations = json.loads(demo.ANNOTATIONS.read_text(encoding="utf-8"))
    assert [image["file_name"] for image in annotations["images"]] == [path.name for path in demo.IMAGES]
    names = {category["id"]: category["name"] for category in annotations["categories"]}
    for image in annotations["images"]:
        entries = [entry for entry in annotations["annotations"] if entry["image_id"] == image["id"]]
        confident = {name for name, score, _ in MMDETECTION[image["file_name"]] if score > 0.8}
        assert confident <= {names[entry["category_id"]] for entry in entries}


def test_a_file_that_differs_fails(monkeypatch, tmp_path):
    pytest.importorskip("torch")
    different = types.SimpleNamespace(ok=False)
    monkeypatch.setattr("mmort.evaluate.parity.compare_models", lambda *arguments: different)
    monkeypatch.setattr("mmort.evaluate.parity.write_report", lambda *arguments, **options: None)
    monkeypatch.setattr(walkthrough, "_export", lambda model: shutil.copy(demo.MODEL, model))
    assert "mask_rcnn.onnx does not find what the checkpoint finds in torch" in refused("demo", "--output", tmp_path)


def test_images_without_a_detection_say_so(capsys):
    nothing = types.SimpleNamespace(predict=lambda images: [Detections.empty((8, 8))] * len(images))
    assert len(list(walkthrough._panels(nothing))) == len(demo.IMAGES)
    assert capsys.readouterr().out == "".join(f"  {path.name}: nothing\n" for path in demo.IMAGES)
