"""Files that are written: whole or not at all, inside their directory, and pipes and devices directly."""

import ast
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import numpy as np
import pytest

import mmort.onnx
from mmort._files.outputs import inside, require_folder, require_output, write_output
from mmort.onnx.graph.files import replacing
from mmort.onnx.triton import write_triton_repository
from mmort.predict import AnnotatedImages, Record
from mmort.predict.video import AnnotatedVideo
from tests.predict import tiny_detector

NOBODY = 65534


def test_a_file_is_replaced_whole(tmp_path, monkeypatch):
    file = tmp_path / "a.json"
    write_output(file, "first")
    file.chmod(0o640)

    def full(*arguments):
        raise OSError(28, "No space left on device")

    for name in ("fsync", "replace"):
        monkeypatch.setattr(os, name, full)
        with pytest.raises(OSError, match="No space left"):
            write_output(file, "second")
        monkeypatch.undo()
        assert (os.listdir(tmp_path), file.read_text()) == (["a.json"], "first")
    write_output(file, b"second")
    assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == ("second", 0o640)


@pytest.mark.parametrize("write", [write_output, lambda file, content: write_in_a_block(file)])
def test_a_full_disk_names_the_file(tmp_path, monkeypatch, write):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*/a\.onnx'"):
        write(tmp_path / "a.onnx", b"x")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("write", [write_output, lambda file, content: write_in_a_block(file)])
def test_a_missing_directory_is_named(tmp_path, write):
    with pytest.raises(FileNotFoundError, match=r"^output directory does not exist: .*/none$"):
        write(tmp_path / "none" / "a.onnx", b"x")


def write_in_a_block(file):
    with replacing(file) as draft:
        draft.write_bytes(b"x")


def test_a_kill_leaves_the_former_content(tmp_path):
    """The process ends without any clean-up at each call of the system that a write makes."""
    file = tmp_path / "a.json"
    file.write_text("first")
    for name in ("open", "fsync", "chmod", "replace"):
        code = f"import os\nfrom mmort._files.outputs import write_output\nos.{name} = lambda *a: os._exit(9)\n"
        command = [sys.executable, "-c", f"{code}write_output({str(file)!r}, 'second')"]
        assert subprocess.run(command).returncode == 9
        assert file.read_text() == "first"


KILLED = {
    "a file": (
        "from mmort._files.outputs import write_output\nos.fsync = lambda *a: os._exit(9)\nwrite_output('a', b'x')"
    ),
    "a folder": "from mmort.onnx.graph.files import replacing\nwith replacing('a.onnx'): os._exit(9)",
    "a file beside its neighbours": (
        "from mmort.onnx.graph.files import replacing\n"
        "with replacing('a.onnx', keep_neighbours=True) as draft:\n draft.write_bytes(b'x')\n os._exit(9)"
    ),
    "a video": (
        "import numpy\nfrom mmort.predict.video import AnnotatedVideo\nvideo = AnnotatedVideo('a.mp4', 10)\n"
        "video.add(numpy.zeros((64, 64, 3), numpy.uint8))\nos._exit(9)"
    ),
}
"""Programs that end without any clean-up while they have a draft of a kind."""


@pytest.mark.parametrize("kind", KILLED)
def test_drafts_of_killed_processes_are_removed(tmp_path, kind):
    """Those of running processes stay, and so does what is no draft."""
    (tmp_path / ".mmort-0123456789abcdef").symlink_to(tmp_path.parent)
    (tmp_path / ".mmort-file").touch()
    (tmp_path / ".mmort-0123456789abcde").mkdir()
    before = set(os.listdir(tmp_path))
    with replacing(tmp_path / "first.onnx", keep_neighbours=True) as draft:
        draft.write_bytes(b"x")
        running = set(os.listdir(tmp_path)) - before
        assert len(running) == 2
        code = f"import os\n{KILLED[kind]}"
        assert subprocess.run([sys.executable, "-c", code], cwd=tmp_path).returncode == 9
        assert set(os.listdir(tmp_path)) - before > running
        code = "from mmort._files.outputs import write_output\nwrite_output('b', b'b')"
        subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
        assert set(os.listdir(tmp_path)) - before == running | {"b"}
    assert set(os.listdir(tmp_path)) - before == {"b", "first.onnx"}


def test_drafts_in_a_directory_that_cannot_be_listed(reached):
    def write():
        write_output(reached / "new", "x")

    reached.chmod(0o333)
    assert as_user(write) == ""
    assert (reached / "new").read_text() == "x"


def test_a_former_model_of_triton_is_not_removed(tmp_path):
    """The process ends between two renames; later runs leave the former one."""
    model = tiny_detector.write(tmp_path / "model.onnx")
    repository = tmp_path / "repository"
    write_triton_repository(model, repository)
    code = (
        "import os, pathlib, sys\nfrom mmort.onnx.triton import write_triton_repository\n"
        "rename = pathlib.Path.rename\n"
        "pathlib.Path.rename = lambda *paths: (rename(*paths), os._exit(9))\n"
        "write_triton_repository(sys.argv[1], sys.argv[2], force=True)"
    )
    assert subprocess.run([sys.executable, "-c", code, model, repository]).returncode == 9
    (left,) = os.listdir(repository)
    write_triton_repository(model, repository)
    with replacing(repository / "a.onnx") as draft:
        draft.write_bytes(b"a")
    assert sorted(os.listdir(repository)) == sorted([left, "a.onnx", "model"])
    assert (repository / left / "former" / "config.pbtxt").is_file()


CHANGES = {"mkdir", "makedirs", "rmdir", "removedirs", "unlink", "remove", "rename", "renames", "replace", "rmtree"}
CHANGES |= {
    "touch",
    "truncate",
    "ftruncate",
    "link",
    "symlink",
    "symlink_to",
    "hardlink_to",
    "chmod",
    "fdopen",
    "write",
}
CHANGES |= {"write_text", "write_bytes", "copy", "copy2", "copyfile", "copytree", "copyfileobj", "move", "mkdtemp"}
CHANGES |= {
    "TemporaryDirectory",
    "TemporaryFile",
    "NamedTemporaryFile",
    "mkstemp",
    "save",
    "savez",
    "tofile",
    "imwrite",
}
CHANGES |= {"VideoWriter", "open"}
"""Names of functions and methods that change files."""

OTHERS = {"copy", "remove", "write", "copyfile", "link", "chmod"}
"""Names that arrays, lists, streams and graphs have, too: they count if they are functions of the system's modules."""

NO_FILES = {"self.artifact.save", "structure.rename", "optional_inputs.replace", "node.output(0).replace", "files.save"}
"""Calls that change a graph, and the package's own function that writes a model."""

BY_LIBRARIES = {
    "predict/video.py: cv2.VideoWriter": "OpenCV, into a folder of drafts",
    "onnx/export/exporters.py: program.save": "torch, into a folder of drafts",
}
EXEMPT = {"build.py": "the build of a package, in which mmort is not built yet"}


def changes_of_files():
    """Yield each call of the package that may change a file, outside of `_files`: module and function."""
    package = Path(mmort.onnx.__file__).parents[1]
    for path in sorted(package.rglob("*.py")):
        module = path.relative_to(package).as_posix()
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or module.startswith("_files/") or module in EXEMPT:
                continue
            call = ast.unparse(node.func)
            receiver, _, name = call.rpartition(".")
            if name in CHANGES and call not in NO_FILES and changes(receiver, name, node):
                yield f"{module}: {call}"


def changes(receiver, name, node):
    """Return whether a call of one of the names changes a file."""
    arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
    if name == "open":
        modes = [part.value for part in arguments if isinstance(part, ast.Constant) and isinstance(part.value, str)]
        writes = any(set(mode) <= set("rwaxbt+") and set(mode) & set("wax+") for mode in modes)
        return (writes or receiver == "os") and "devnull" not in ast.unparse(node)
    if name == "replace":  # of a path: with one argument, as texts and objects have it with others
        return receiver == "os" or (len(node.args) == 1 and not node.keywords)
    return name not in OTHERS or receiver in ("os", "shutil") or (not receiver and name != "write")


def test_all_writing_is_in_one_folder():
    """Whoever changes a file does so through `mmort._files`, where a killed or failing process is thought of."""
    assert set(changes_of_files()) == set(BY_LIBRARIES)


WRITERS = {
    "write_output": lambda folder: write_output(folder / "a", b"x"),
    "make_portable": lambda folder: mmort.onnx.make_portable(
        tiny_detector.write(folder / "model.onnx"), folder / "a.onnx"
    ),
    "write_triton_repository": lambda folder: write_triton_repository(
        tiny_detector.write(folder / "model.onnx"), folder
    ),
    "AnnotatedVideo": lambda folder: annotate_video(folder / "a.mp4"),
}


def annotate_video(path):
    video = AnnotatedVideo(path, 10)
    video.add(np.zeros((64, 64, 3), np.uint8))
    video.finish()


@pytest.mark.parametrize("name", WRITERS)
def test_contents_are_on_the_disk_before_they_have_their_name(tmp_path, monkeypatch, name):
    """A name on the disk without its content would be an empty file after a power loss."""
    calls, synchronized = [], set()
    fsync, replace, rename = os.fsync, os.replace, os.rename

    def noted_fsync(descriptor):
        fsync(descriptor)
        synchronized.add(os.fstat(descriptor).st_ino)

    def noted(move):
        def moved(source, target):
            files = [source] if os.path.isfile(source) else [file for file in Path(source).rglob("*") if file.is_file()]
            assert {os.stat(file).st_ino for file in files} <= synchronized, (source, target)
            move(source, target)
            calls.append(os.path.dirname(os.path.abspath(target)))
            synchronized.discard(os.stat(calls[-1]).st_ino)

        return moved

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "replace", noted(replace))
    monkeypatch.setattr(os, "rename", noted(rename))
    WRITERS[name](tmp_path)
    assert calls
    assert os.stat(calls[-1]).st_ino in synchronized  # the name, too


def test_links_of_users_stay(tmp_path):
    (tmp_path / "target").write_text("first")
    (tmp_path / "link").symlink_to("target")
    write_output(tmp_path / "link", "second")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "second"


def test_pipes_and_devices(tmp_path):
    with pytest.raises(OSError, match="No space left"):
        write_output("/dev/full", "x")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="No such device"):  # nobody reads it
        write_output(tmp_path / "pipe", "x")
    read = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    while not read and reader.is_alive():
        try:
            write_output(tmp_path / "pipe", "x" * 200_000)
        except OSError:
            continue
        break
    reader.join()
    assert read == [b"x" * 200_000]


def test_standard_output(tmp_path):
    code = "from mmort._files import outputs\nprint(1, flush=True)\noutputs.write_output('/dev/stdout', '2')\nprint(3)"
    command = [sys.executable, "-c", code]
    assert subprocess.run(command, capture_output=True, check=True).stdout == b"1\n23\n"
    with (tmp_path / "a").open("ab") as file:
        subprocess.run(command, stdout=file, check=True)
    assert (tmp_path / "a").read_bytes() == b"1\n23\n"


def test_lone_surrogates_become_escapes(tmp_path):
    write_output(tmp_path / "a", "\udcff")
    assert (tmp_path / "a").read_bytes() == rb"\udcff"


@pytest.mark.parametrize("name", ["..", "../a", "a/../../b", "/a", "", ".", "a\0b"])
def test_names_that_lead_out(tmp_path, name):
    with pytest.raises(ValueError, match="output file must be inside"):
        inside(tmp_path, name)


def test_links_inside_a_directory(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/a").symlink_to(tmp_path)
    for name in ("a", "a/b", "a/b/c"):
        with pytest.raises(ValueError, match="out/a is a link; remove it"):
            inside(tmp_path / "out", name)
    (tmp_path / "linked").symlink_to("out")  # the directory itself may be one
    assert inside(tmp_path / "linked", "b/c") == tmp_path / "linked/b/c"


def as_user(function):
    """Run a function in a child process whose user is not root, whom no permission stops; return its error's text."""
    receiving, sending = os.pipe()
    child = os.fork()
    if child == 0:
        text = ""
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            function()
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(sending, text.encode())
        os._exit(0)
    os.close(sending)
    with open(receiving) as file:
        text = file.read()
    os.waitpid(child, 0)
    return text


@pytest.fixture
def reached(tmp_path, monkeypatch):
    """Return a directory that any user can enter, and only its owner can write to; it is the current one, too."""
    directory = Path(tempfile.mkdtemp())
    (directory / "locked").mkdir()
    (directory / "locked" / "file").write_text("first")
    (directory / "locked").chmod(0o555)
    directory.chmod(0o755)
    monkeypatch.chdir(directory / "locked")
    yield directory / "locked"
    monkeypatch.undo()
    (directory / "locked").chmod(0o755)
    shutil.rmtree(directory)


@pytest.mark.parametrize(
    "use",
    [
        require_folder,
        lambda directory: require_folder(directory / "new" / "below"),
        lambda directory: require_folder("new"),
        lambda directory: AnnotatedImages(directory / "new", []),
        lambda directory: Record(directory, {}),
        lambda directory: require_output(directory / "file"),
    ],
)
def test_directories_of_others_are_refused_before_any_work(use, reached):
    assert as_user(lambda: use(reached)).startswith("PermissionError: output directory is not writable: ")


def test_files_that_are_read_only_are_replaced(reached):
    reached.chmod(0o777)
    (reached / "file").chmod(0o444)
    assert as_user(lambda: write_output(reached / "file", "second")) == ""
    assert (reached / "file").read_text() == "second"
    assert stat.S_IMODE((reached / "file").stat().st_mode) == 0o444


def test_nothing_is_changed_in_directories_of_others(reached):
    assert as_user(lambda: write_output(reached / "file", "second")).startswith("PermissionError: ")
    assert (os.listdir(reached), (reached / "file").read_text()) == (["file"], "first")
