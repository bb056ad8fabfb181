"""A detector behind HTTP, by Ray Serve: POST an image's bytes, get its detections as JSON.

    MODEL=detector.onnx serve run ray_serve:app
    curl --data-binary @image.jpg http://127.0.0.1:8000/

Requests that arrive at the same time run as one batch; each replica is a process with a detector of its own.  A body
that is no image is answered with 422, a too large one with 413, one that takes too long to arrive with 408, and what
the replicas' queues do not hold with 503.
"""

import asyncio
import os
from collections import defaultdict

from ray import serve
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response

from mmort import Detections, Predictor
from mmort.images import decode_image
from mmort.predict import OnnxRuntime, Prepared

REPLICAS = int(os.environ.get("REPLICAS", "2"))
MAX_BATCH_SIZE = 8
BATCH_WAIT = 0.005  # seconds that a request waits for others to run with
MAX_BYTES = 20_000_000  # of a body
MAX_PIXELS = 50_000_000  # of an image: a small file may hold a huge one
MAX_UPLOAD_TIME = 10  # seconds; a slow client keeps one of a replica's requests busy
MAX_REQUESTS = 200  # of a replica at the same time; twice as many may wait


@serve.deployment(
    num_replicas=REPLICAS,
    max_ongoing_requests=MAX_REQUESTS,
    max_queued_requests=2 * MAX_REQUESTS,
    ray_actor_options={"num_cpus": 1, "runtime_env": {"env_vars": {"OPENCV_IO_MAX_IMAGE_PIXELS": str(MAX_PIXELS)}}},
)
class Detector:
    """A replica: one predictor with one thread."""

    def __init__(self, model: str, score_threshold: float) -> None:
        self._predictor = Predictor(OnnxRuntime(model, threads=1), score_threshold=score_threshold)

    async def __call__(self, request: Request) -> Response:
        try:
            async with asyncio.timeout(MAX_UPLOAD_TIME):
                image = await read_body(request)
        except TimeoutError:
            return PlainTextResponse(f"the image took more than {MAX_UPLOAD_TIME} s to arrive", 408)
        except ClientDisconnect:
            return PlainTextResponse("the client has gone", 400)
        if image is None:
            return PlainTextResponse(f"an image may have {MAX_BYTES} bytes at most", 413)
        detections = await self.detect(image)
        if isinstance(detections, Exception):
            return PlainTextResponse(str(detections), 422)
        return Response(detections.to_json(), media_type="application/json", headers={"X-Replica": str(os.getpid())})

    @serve.batch(max_batch_size=MAX_BATCH_SIZE, batch_wait_timeout_s=BATCH_WAIT)
    async def detect(self, images: list[bytes]) -> list[Detections | Exception]:
        """Detect in the images of several requests."""
        return await asyncio.to_thread(self._detect, images)

    def _detect(self, images: list[bytes]) -> list[Detections | Exception]:
        """Run images of one shape together, so that no padding makes a result depend on what others send."""
        results: list[Detections | Exception | Prepared] = []
        groups = defaultdict(list)
        for index, image in enumerate(images):
            try:
                results.append(self._predictor.preprocessing(decode_image(image)))
                groups[results[index].pad_shape].append(index)
            except ValueError as error:
                results.append(error)
        for indices in groups.values():
            try:
                outputs = self._predictor.run([results[index] for index in indices])
            except ValueError as error:  # images of a shape that the file does not take
                outputs = [error] * len(indices)
            for index, result in zip(indices, outputs, strict=True):
                results[index] = result
        return results


async def read_body(request: Request) -> bytes | None:
    """Return the body, None if it is too large; it is read to its end, as a client that still sends gets no answer."""
    body, size = bytearray(), 0
    async for chunk in request.stream():
        size += len(chunk)
        if size <= MAX_BYTES:
            body += chunk
    return bytes(body) if size <= MAX_BYTES else None


app = Detector.bind(os.environ.get("MODEL", "detector.onnx"), float(os.environ.get("SCORE_THRESHOLD", "0.3")))
