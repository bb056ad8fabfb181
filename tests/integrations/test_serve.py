"""The Ray Serve example: right answers, also to hostile requests, beside slow clients, and when a replica dies."""

import json
import os
import pathlib
import signal
import socket
import struct
import time
import urllib.error
import urllib.request
import zlib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
import ray

from mmort import Predictor
from mmort.demo import IMAGES, MODEL

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "serve"
pytestmark = [  # of Ray itself
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


@pytest.fixture(scope="module")
def port():
    """The port of the example, with two replicas, on the loopback address."""
    from ray import serve  # warns of itself

    patch = pytest.MonkeyPatch()
    patch.syspath_prepend(str(EXAMPLE))
    patch.setenv("PYTHONPATH", str(EXAMPLE))  # of the replicas
    for name, value in {"MODEL": str(MODEL), "SCORE_THRESHOLD": "0.3", "REPLICAS": "2"}.items():
        patch.setenv(name, value)
    patch.setenv("RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S", "60")  # Ray kills a proxy that takes five seconds to start
    import ray_serve

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False)
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    serve.run(ray_serve.app)
    yield port
    serve.shutdown()
    ray.shutdown()
    patch.undo()


@pytest.fixture(scope="module")
def expected():
    """What each picture must be answered with."""
    predictor = Predictor(MODEL, score_threshold=0.3)
    return {path: json.loads(predictor(path).to_json())["detections"] for path in IMAGES}


def post(port, body):
    """Return status, body and replica of an answer."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/", body, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read(), answer.headers["X-Replica"]
    except urllib.error.HTTPError as error:
        return error.code, error.read(), None


def assert_right(answer, expected):
    """Compare an answer with Python's; a batch of several pictures changes the last digits."""
    actual = json.loads(answer)["detections"]
    assert len(actual) == len(expected) > 2
    for entry in expected:
        assert any(
            other["name"] == entry["name"]
            and other["score"] == pytest.approx(entry["score"], abs=1e-3)
            and other["box"] == pytest.approx(entry["box"], abs=0.02)
            for other in actual
        )


def picture_of(width, height):
    """A PNG file of one colour, which is small."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    pixels = zlib.compress(bytes(width + 1) * height)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def test_concurrent_requests_get_their_own_detections(port, expected):
    pictures = [IMAGES[number % len(IMAGES)] for number in range(120)]
    with ThreadPoolExecutor(16) as clients:
        answers = list(clients.map(lambda path: post(port, path.read_bytes()), pictures))
    assert {status for status, _, _ in answers} == {200}
    assert len({replica for _, _, replica in answers}) == 2
    for path, (_, body, _) in zip(pictures, answers, strict=True):
        assert_right(body, expected[path])


def test_hostile_bodies_are_answered(port, expected):
    image = IMAGES[0].read_bytes()
    cases = [
        (b"", 422),
        (b"no picture", 422),
        (image[:500], 422),
        (b"\x89PNG\r\n\x1a\n" + b"\xff" * 59, 422),
        (picture_of(12_000, 12_000), 422),
        (bytes(20_000_001), 413),
    ]
    with ThreadPoolExecutor(8) as clients:  # together with good ones, so that they share batches
        hostile = [(clients.submit(post, port, body), status) for body, status in cases * 3]
        good = [clients.submit(post, port, image) for _ in range(20)]
        statuses = [(future.result()[0], status) for future, status in hostile]
        assert [actual for actual, _ in statuses] == [status for _, status in statuses]
        for future in good:
            assert future.result()[0] == 200
            assert_right(future.result()[1], expected[IMAGES[0]])


def test_slow_clients_do_not_starve_others(port, expected):
    clients = []
    for _ in range(60):
        client = socket.create_connection(("127.0.0.1", port))
        client.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n" + b"x" * 10)
        clients.append(client)
    begin = time.perf_counter()
    for _ in range(10):
        status, body, _ = post(port, IMAGES[1].read_bytes())
        assert status == 200
        assert_right(body, expected[IMAGES[1]])
    assert time.perf_counter() - begin < 15
    clients[0].settimeout(30)
    assert b"408" in clients[0].recv(100)
    for client in clients:
        client.close()
    assert post(port, IMAGES[1].read_bytes())[0] == 200


def test_a_killed_replica_loses_no_answer(port, expected):
    victim = int(post(port, IMAGES[0].read_bytes())[2])
    pictures = [IMAGES[number % len(IMAGES)] for number in range(160)]

    def ask(item):
        number, path = item
        if number == 40:
            os.kill(victim, signal.SIGKILL)
        return post(port, path.read_bytes())

    with ThreadPoolExecutor(8) as clients:
        answers = list(clients.map(ask, enumerate(pictures)))
    statuses = Counter(status for status, _, _ in answers)
    assert statuses[200] >= 140, statuses  # those that the replica was working on fail, and may be asked again
    for path, (status, body, _) in zip(pictures, answers, strict=True):
        if status == 200:
            assert_right(body, expected[path])
        else:
            assert status in (500, 503)
    deadline = time.monotonic() + 60
    replicas = set()
    while len(replicas) < 2 and time.monotonic() < deadline:  # a new one takes its place
        replicas.add(post(port, IMAGES[0].read_bytes())[2])
    assert len(replicas) == 2
    assert str(victim) not in replicas
