"""The demo's detector in a browser: the page of examples/web as a folder of static files, served to this machine."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import subprocess
import sys
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from mmort._files.outputs import inside, make_folder, require_new, require_output, write_output
from mmort._files.text import printable
from mmort.configs.captions import Texts
from mmort.demo import IMAGES, MODEL

_DEMO = Path(__file__).resolve().parent
# Installed, the page is part of this package; in mmort's sources it is one of the examples.
PAGE = next(path for path in (_DEMO / "web", _DEMO.parents[1] / "examples" / "web") if path.is_dir())
RUNTIME = "onnxruntime-web"
WORDS = "grounding_dino.onnx"

HEADERS = {
    # With these two, browsers let a page use threads.
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cache-Control": "no-cache",
}


def run(output: str | os.PathLike[str], texts: Texts | None = None, *, force: bool = False) -> None:
    """Write the page and serve it until this process is interrupted.

    Parameters
    ----------
    output : path
        Directory to write to; it is made if its parent exists.  The page is in its folder ``web``.
    texts : str, sequence of str or dict, optional
        What a Grounding DINO, exported for the page, looks for.  Default: the Mask R-CNN and its ten digits.
    force : bool, default False
        Whether to replace files of the page that exist.

    Raises
    ------
    OSError
        If the directory cannot be made or written to, files exist and are not to be replaced, or onnxruntime-web cannot
        be fetched.
    ValueError
        If the texts are empty or too long.
    ImportError
        If the onnx package is not installed, or with `texts`, what an export needs.
    """
    make_folder(output, parents=False)
    folder = Path(output) / "web"
    write(folder, texts, force=force)
    with make_server(folder) as server:
        print(
            f"Open http://127.0.0.1:{server.server_port}/ in a browser; Ctrl-C stops. The page is in {folder}",
            flush=True,
        )
        server.serve_forever()


def write(folder: Path, texts: Texts | None = None, *, force: bool = False) -> None:
    """Write the page, a portable detector and sample images; fetch onnxruntime-web unless it is there already.

    Links are not followed, and files that exist are replaced only with `force`.
    """
    make_folder(inside(folder.parent, folder.name), parents=False)
    sources = [*(path for path in PAGE.iterdir() if path.suffix in (".css", ".html", ".js")), *IMAGES]
    model, samples = inside(folder, MODEL.name if texts is None else WORDS), inside(folder, "samples.json")
    targets = {inside(folder, path.name): path for path in sources}
    inside(folder, RUNTIME)
    for file in (*targets, model, samples):
        require_output(file)
        if not force:
            require_new(file)
    for file, source in targets.items():
        write_output(file, source.read_bytes())
    if texts is None:
        _write_detector(model)
    else:
        _write_detector_of_words(model, texts)
    names = {"model": model.name, "pictures": [image.name for image in IMAGES]}
    write_output(samples, json.dumps(names))
    if not (folder / RUNTIME).is_dir():
        _fetch_runtime(folder)


def _write_detector(model: Path) -> None:
    """Write the Mask R-CNN as a portable file."""
    from mmort.onnx import make_portable

    make_portable(MODEL, model, force=True)


def _write_detector_of_words(model: Path, texts: Texts) -> None:
    """Export a Grounding DINO that looks for `texts` as a portable file."""
    from mmort.demo import walkthrough

    walkthrough.export_words(model, texts=texts, portable=True)


def make_server(folder: Path, port: int = 0) -> ThreadingHTTPServer:
    """Return a server of a folder on the loopback address; a port of 0 is any that is free."""
    return _Server(("127.0.0.1", port), partial(_Handler, directory=os.fspath(folder)))


def _fetch_runtime(folder: Path) -> None:
    """Fetch onnxruntime-web with npm."""
    script = PAGE / "vendor.sh"
    if shutil.which("npm") is None:
        raise FileNotFoundError(
            f"the page needs {RUNTIME}, and npm, which fetches it, is not installed; where it is, run "
            f"'sh {script} DIR', and copy DIR/{RUNTIME} to {folder}"
        )
    print(f"Fetch {RUNTIME} from the npm registry", flush=True)
    done = subprocess.run(["sh", script, folder], capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"npm cannot fetch {RUNTIME}: {done.stderr.strip()}")


class _Server(ThreadingHTTPServer):
    """A server that says nothing of clients that have gone."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print the traceback of an error, unless the client has closed its connection."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(SimpleHTTPRequestHandler):
    """Serves the regular files of a folder, to pages of this machine, with the headers that the page needs."""

    extensions_map = SimpleHTTPRequestHandler.extensions_map | {".mjs": "text/javascript", ".wasm": "application/wasm"}

    def send_head(self) -> Any:
        """Refuse requests for other hosts, whose names may lead here, and for paths outside the page."""
        port = self.connection.getsockname()[1]
        if self.headers.get("Host") not in (f"127.0.0.1:{port}", f"localhost:{port}"):
            self.send_error(HTTPStatus.FORBIDDEN, "This server is for this machine only")
            return None
        if not self._is_file():
            self.send_error(HTTPStatus.NOT_FOUND, "File not found")
            return None
        return super().send_head()

    def _is_file(self) -> bool:
        """Return whether the path is that of the page, or of a regular file that no link leads to."""
        try:
            path = self.translate_path(self.path)
            if path == os.path.join(self.directory, ""):
                path = os.path.join(path, "index.html")
            inside(self.directory, os.path.relpath(path, self.directory))
            return stat.S_ISREG(os.lstat(path).st_mode)
        except (OSError, ValueError):  # a null character, among others
            return False

    def end_headers(self) -> None:
        for name, value in HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def copyfile(self, source: Any, outputfile: Any) -> None:
        with contextlib.suppress(ConnectionError):
            super().copyfile(source, outputfile)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Print nothing for a request that was answered."""

    def log_message(self, format: str, *args: Any) -> None:
        """Print a problem; requests may have any characters."""
        print(f"mmort: {printable(format % args, breaks=False)}", file=sys.stderr)
