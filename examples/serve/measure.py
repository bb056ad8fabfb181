"""Requests a second of the server, beside the detector alone: measure.py URL MODEL.onnx PICTURE...

The server is this machine's, and the requests are bounded: 400, by 16 clients.  The detector alone is `session.run` on
images that are read and prepared already, with a thread for each core.
"""

import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from mmort import Predictor

REQUESTS, CLIENTS, RUNS = 400, 16, 200


def ask(url: str, image: bytes) -> float:
    """Return the seconds until an image is answered."""
    begin = time.perf_counter()
    with urllib.request.urlopen(urllib.request.Request(url, image, method="POST"), timeout=60) as answer:
        answer.read()
    return time.perf_counter() - begin


def main(url: str, model: str, *paths: str) -> None:
    images = [Path(path).read_bytes() for path in paths]
    with ThreadPoolExecutor(CLIENTS) as clients:
        list(clients.map(lambda number: ask(url, images[number % len(images)]), range(CLIENTS)))  # warms up
        begin = time.perf_counter()
        times = list(clients.map(lambda number: ask(url, images[number % len(images)]), range(REQUESTS)))
        rate = REQUESTS / (time.perf_counter() - begin)
    median, slow = np.percentile(np.array(times) * 1000, (50, 99))
    print(f"server       {rate:6.1f} pictures/s, {median:.0f} ms median, {slow:.0f} ms 99 %")

    predictor = Predictor(model, score_threshold=0)
    inputs = [predictor.preprocessing.batch([predictor.preprocessing(path)]) for path in paths]
    predictor.network(*inputs[0])
    begin = time.perf_counter()
    for number in range(RUNS):
        predictor.network(*inputs[number % len(inputs)])
    alone = RUNS / (time.perf_counter() - begin)
    print(f"session.run  {alone:6.1f} pictures/s; the server reaches {rate / alone:.2f} of it")


if __name__ == "__main__":
    main(*sys.argv[1:])
