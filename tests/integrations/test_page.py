"""The page of mmort demo --web, in Chromium, finds what mmort.Predictor finds, and answers broken files in words."""

import shutil
import struct
import threading
import zlib

import cv2
import numpy as np
import pytest
from playwright.sync_api import Error, expect, sync_playwright

from mmort import Predictor
from mmort.demo import IMAGES, MODEL, page
from mmort.predict import MaskFormat, Preprocessing

FLAGS = ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--no-first-run"]
CAMERA = ["--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS + CAMERA)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """The address of the demo's page."""
    folder = tmp_path_factory.mktemp("site")
    page.write(folder)
    server = page.make_server(folder)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


def open_page(browser, address):
    """Yield the page with its detector loaded; afterwards, it must have asked no other host and raised nothing."""
    page, errors, allowed = browser.new_page(), [], (address, "data:", "blob:")
    page.on("pageerror", lambda error: errors.append(error))
    page.on("request", lambda request: None if request.url.startswith(allowed) else errors.append(request.url))
    page.goto(address)
    expect(page.locator("#status")).to_contain_text("Click a picture above", timeout=60_000)
    yield page
    assert not errors
    page.close()


@pytest.fixture(scope="module")
def modules(browser, address):
    """A page whose modules are called."""
    yield from open_page(browser, address)


@pytest.fixture
def tab(browser, address):
    """A page that is used as people do."""
    yield from open_page(browser, address)


def call(modules, module, function, *arguments):
    """Call a function of one of the page's modules with values for JSON; return its result."""
    script = """async ([module, name, values]) => {
        const result = (await import("./" + module))[name](...values);
        const plain = (_, value) => (ArrayBuffer.isView(value) ? Array.from(value) : value);
        return JSON.parse(JSON.stringify(result, plain));
    }"""
    return modules.evaluate(script, [module, function, arguments])


def choose(tab, element, name, content):
    tab.set_input_files(element, {"name": name, "mimeType": "application/octet-stream", "buffer": content})


def test_equal_detections_in_the_demos_pictures(modules):
    """Boxes, scores and masks, of all detections: also those with low scores."""
    script = """async ([model, pictures]) => {
        const { Detector } = await import("./detector.js");
        const bytes = async (url) => (await fetch(url)).arrayBuffer();
        const detector = await Detector.load(new Uint8Array(await bytes(model)));
        const results = [];
        for (const url of pictures) {
            const picture = await createImageBitmap(new Blob([await bytes(url)]));
            const context = new OffscreenCanvas(picture.width, picture.height).getContext("2d");
            context.drawImage(picture, 0, 0);
            const { detections } = await detector.detect(context.getImageData(0, 0, picture.width, picture.height));
            for (const { mask } of detections) mask.bits = Array.from(mask.bits);
            results.push(detections);
        }
        return results;
    }"""
    results = modules.evaluate(script, [MODEL.name, [image.name for image in IMAGES]])
    predictor = Predictor(MODEL, score_threshold=0)
    for image, detections in zip(IMAGES, results, strict=True):
        expected = predictor(image)
        assert [detection["name"] for detection in detections] == list(expected.names)
        np.testing.assert_allclose([detection["score"] for detection in detections], expected.scores, atol=1e-4)
        np.testing.assert_allclose([detection["box"] for detection in detections], expected.boxes, atol=0.01)
        for index, detection in enumerate(detections):
            mask, whole = detection["mask"], np.zeros(expected.image_size, bool)
            rows, columns = (
                slice(mask["top"], mask["top"] + mask["height"]),
                slice(mask["left"], mask["left"] + mask["width"]),
            )
            whole[rows, columns] = np.reshape(mask["bits"], (mask["height"], mask["width"]))
            assert (whole != expected.mask(index)).sum() <= 1, (image.name, index)


@pytest.mark.parametrize(
    "settings",
    [
        {
            "size": [333, 200],
            "size_divisor": 32,
            "mean": [123.675, 116.28, 103.53],
            "std": [58.395, 57.12, 57.375],
            "to_rgb": True,
        },
        {
            "size": [96, 64],
            "keep_ratio": False,
            "divide": True,
            "mean": [103.5, 116.3, 123.7],
            "std": [57.4, 57.1, 58.4],
        },
        {"size": [80, 56], "padding": {"value": 114.0, "square": True, "size_divisor": 32, "in_image": True}},
        {"pad_or": 127, "mean": [1, 2, 3], "to_rgb": True},
        {"size": [200, 100], "to_float32": True, "padding": {"size": [320, 256]}, "std": [2, 3, 4]},
        {},
    ],
)
def test_equal_preprocessing(modules, settings):
    """Equal to the last bit, but for pictures that are resized as floats."""
    image = np.random.default_rng(0).integers(0, 256, (112, 160, 3), np.uint8)
    expected = Preprocessing.from_dict(settings)(image)
    picture = {"data": cv2.cvtColor(image, cv2.COLOR_BGR2RGBA).ravel().tolist(), "width": 160, "height": 112}
    settings = call(modules, "preprocessing.js", "readSettings", settings)
    prepared = call(modules, "preprocessing.js", "prepare", picture, settings)
    actual = np.reshape(prepared["input"], (3, *prepared["padShape"])).astype(np.float32)
    np.testing.assert_allclose(actual, expected.input, rtol=0, atol=1e-2 if settings["to_float32"] else 0)
    assert tuple(prepared["imgShape"]) == expected.img_shape
    assert tuple(prepared["offset"]) == expected.offset
    np.testing.assert_array_equal(np.float32(prepared["scale"] * 2), expected.scale_factor)


@pytest.mark.parametrize(
    "settings",
    [
        {"size": [10**9, 10**9]},
        {"size": [30_000, 30_000], "keep_ratio": False},
        {"size_divisor": 10**6},
        {"pad_or": 2**20 - 1},
        {"padding": {"size": [10**5, 10**5]}},
        {"size": "many"},
    ],
)
def test_sizes_out_of_proportion(modules, settings):
    """Metadata could ask for gigabytes, which the browser looks for during a minute."""
    picture = {"data": [0] * 4 * 12, "width": 4, "height": 3}
    with pytest.raises(Error, match=r"its metadata asks for \S+ x \S+ pixels, and this page takes 16777216"):
        call(
            modules, "preprocessing.js", "prepare", picture, call(modules, "preprocessing.js", "readSettings", settings)
        )


def test_masks_out_of_proportion(modules):
    format = MaskFormat("image", stride=4096).to_dict()
    shapes = {"originalShape": [9, 9], "imgShape": [9, 9], "padShape": [32, 32], "offset": [0, 0], "scale": [1, 1]}
    arguments = [0.0] * 16, 4, 4, call(modules, "masks.js", "readFormat", format), shapes, [0, 0, 9, 9]
    with pytest.raises(Error, match="its metadata asks for 16384 x 16384 pixels"):
        call(modules, "masks.js", "rescaleMask", *arguments)


@pytest.mark.parametrize("sizes", [(97, 61, 41, 30), (40, 30, 20, 15), (13, 9, 64, 50), (1, 5, 7, 3), (64, 48, 64, 24)])
def test_resizing_gives_opencvs_bits(modules, sizes):
    width, height, new_width, new_height = sizes
    image = np.random.default_rng(1).integers(0, 256, (height, width, 3), np.uint8)
    resized = call(modules, "resize.js", "resizeBytes", image.ravel().tolist(), 3, *sizes)
    expected = cv2.resize(image, (new_width, new_height))
    np.testing.assert_array_equal(np.reshape(list(resized), expected.shape), expected)


@pytest.mark.parametrize("rescaling", ["crop", "edges", "fit", "scale", "stretch"])
def test_equal_masks_over_the_input(modules, rescaling):
    format = MaskFormat("image", threshold=0.0, stride=4, rescaling=rescaling, boxes="masks", scores="masks")
    if rescaling == "edges":  # as the files of ultralytics have it
        format = MaskFormat("image", threshold=0.0, stride=4, rescaling=rescaling, inside_boxes=True)
    box = np.array([[20, 10.5, 90, 70]], np.float32)
    image = Preprocessing(size=(80, 80), size_divisor=32)(np.zeros((81, 120, 3), np.uint8))
    smooth = cv2.GaussianBlur(np.random.default_rng(2).normal(size=(16, 24)).astype(np.float32), None, 3)
    stored = format.store(smooth[None], box, image)
    shapes = {"originalShape": image.ori_shape, "imgShape": image.img_shape, "padShape": image.pad_shape}
    prepared = {**shapes, "offset": image.offset, "scale": image.scale_factor[:2].tolist()}
    script = """async ([values, format, prepared, box]) => {
        const { readFormat, rescaleMask } = await import("./masks.js");
        const { mask, factor } = rescaleMask(Float32Array.from(values), 16, 24, readFormat(format), prepared, box);
        return { ...mask, factor, bits: Array.from(mask.bits) };
    }"""
    actual = modules.evaluate(script, [smooth.ravel().tolist(), format.to_dict(), prepared, box[0].tolist()])
    expected = stored.masks.region(0, 81, 120)
    assert (actual["top"], actual["left"]) == expected[:2]
    assert (np.reshape(actual["bits"], (actual["height"], actual["width"])) != expected.mask).sum() <= 2
    assert actual["factor"] == pytest.approx(stored.score_factors[0], abs=1e-3)


def test_page_shows_detections_and_times(tab, tmp_path):
    tab.click("#samples button >> nth=2")
    expect(tab.locator("#detections")).to_contain_text("4 found", timeout=60_000)
    names = tab.locator("#detections tr td:first-child").all_inner_texts()
    assert names == ["six", "seven", "eight", "five"]
    stages = tab.locator("#times tr td:first-child").all_inner_texts()
    assert stages == ["decoding", "pixels", "preprocessing", "network", "masks", "drawing", "total"]
    assert tab.evaluate("crossOriginIsolated")
    tab.fill("#score", "0.9")
    tab.press("#score", "Enter")
    expect(tab.locator("#detections")).to_contain_text("2 found", timeout=60_000)
    canvas = tmp_path / "canvas.png"
    tab.locator("#canvas").screenshot(path=canvas)
    colour = np.array([74, 255, 74])  # of class 6
    assert (abs(cv2.imread(str(canvas)).astype(int) - colour) < 60).all(axis=2).sum() > 300


def test_broken_files_are_named(tab):
    status = tab.locator("#status")
    header = IMAGES[0].read_bytes()[:16] + struct.pack(">IIBBBBB", 30_000, 30_000, 8, 2, 0, 0, 0)
    for name, content in (
        ("notes.txt", b"no picture"),
        ("nothing.png", b""),
        ("cut.jpg", cv2.imencode(".jpg", cv2.imread(str(IMAGES[0])))[1].tobytes()[:1000]),
        ("wide.png", header + struct.pack(">I", zlib.crc32(header[12:]))),
        ("drawing.svg", b'<svg xmlns="http://www.w3.org/2000/svg"><image href="http://localhost:9/a.png"/></svg>'),
    ):
        choose(tab, "#picture", name, content)
        expect(status).to_have_text(f"{name} is not a picture that this browser can read", timeout=20_000)
    for name, content, reason in (
        ("broken.onnx", MODEL.read_bytes()[:10_000], "it is not an ONNX file, or not all of it"),
        ("text.onnx", b"this is text", "it is not an ONNX file"),
        ("empty.onnx", b"", "it has no preprocessing in its metadata, as files of mmort export have"),
        ("library.onnx", MODEL.read_bytes(), "it needs mmort's library; write a file that does not: mmort portable"),
    ):
        choose(tab, "#model", name, content)
        expect(status).to_contain_text(f"{name} cannot be used as a detector: {reason}", timeout=20_000)
    choose(tab, "#picture", "digits.png", IMAGES[0].read_bytes())  # the detector from before is still there
    expect(tab.locator("#detections")).to_contain_text("7 found", timeout=60_000)


def test_more_pixels_than_the_page_takes(tab):
    """A small file that decodes to 256 MB is refused by the size that it states."""
    row = zlib.compressobj(9)
    rows = b"".join(row.compress(bytes(1 + 3 * 8000)) for _ in range(8000)) + row.flush()
    header = IMAGES[0].read_bytes()[:16] + struct.pack(">IIBBBBB", 8000, 8000, 8, 2, 0, 0, 0)
    chunks = b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in ((b"IDAT", rows), (b"IEND", b""))
    )
    choose(tab, "#picture", "large.png", header + struct.pack(">I", zlib.crc32(header[12:])) + chunks)
    text = "large.png has 8000 x 8000 pixels, and this page takes 33554432; mmort predict takes more"
    expect(tab.locator("#status")).to_have_text(text, timeout=20_000)


def test_camera(tab):
    tab.click("#camera")
    expect(tab.locator("#times")).to_contain_text("network", timeout=60_000)
    tab.click("#camera")
    expect(tab.locator("#camera")).to_have_text("Camera", timeout=60_000)


def test_no_camera_for_pages_of_other_computers(tab):
    """Without https, browsers lend a camera to this computer's own pages only."""
    tab.evaluate("Object.defineProperty(navigator, 'mediaDevices', { value: undefined })")
    tab.click("#camera")
    expect(tab.locator("#status")).to_contain_text("lends a camera only to pages of https")


def test_without_the_demos_files(browser, tmp_path):
    """The page alone, as any host of static files serves it, asks for a detector."""
    for path in page.PAGE.glob("*.*"):
        shutil.copy(path, tmp_path)
    server = page.make_server(tmp_path)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    tab = browser.new_page()
    tab.goto(f"http://127.0.0.1:{server.server_port}/")
    expect(tab.locator("#status")).to_contain_text("Choose a detector")
    choose(tab, "#picture", "digits.png", IMAGES[0].read_bytes())
    expect(tab.locator("#status")).to_contain_text("Choose a detector first")
    tab.close()
    server.shutdown()
    server.server_close()
