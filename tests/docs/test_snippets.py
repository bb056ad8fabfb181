"""Every block of code in the documents: Python runs, commands are parsed, outputs are compared.

The blocks of a document run in order, in one namespace and an empty directory.  A ```text block after a Python block,
or after `mmort` commands that run, is its whole output, with `...` for what varies.  There is no library in use here:
those that are maintained (sybil, pytest-codeblocks, pytest-markdown-docs) do not compare a following block with the
output, or need comments in the documents.
"""

import contextlib
import doctest
import importlib.metadata
import io
import itertools
import pathlib
import re
import shlex
import shutil
import warnings

import cv2
import pytest

from mmort import cli
from mmort.demo import ANNOTATIONS, CHECKPOINT, CONFIG, IMAGES, MODEL
from tests import old_export
from tests.onnx.fixed_times import set_seconds
from tests.onnx.foreign import write_yolo
from tests.predict.tiny_open_vocabulary import save_detector, save_encoder

ROOT = pathlib.Path(__file__).parents[2]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)

PAGES = [*ROOT.glob("docs/*.md"), *ROOT.glob("docs/measured/*.md")]
DOCUMENTS = ["README.md", *sorted(path.relative_to(ROOT).as_posix() for path in PAGES)]
ELSEWHERE = {
    "docs/adding_an_operator.md",  # built, run and compared by tests/build
    "docs/original.md",  # needs OpenMMLab's packages and weights: a section each is run by tests/originals_mm*
}
IN_A_SHELL = {"docs/mmdetection_on_todays_torch.md"}  # variables and other programs, which `.ci/run mmdetection` runs
COMMANDS = [*sorted({*DOCUMENTS} - IN_A_SHELL), "CONTRIBUTING.md", "benchmarks/README.md"]
COMMANDS += sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("examples/*/README.md"))
LANGUAGES = {"", "c", "cpp", "cython", "python", "sh", "text", "toml"}


def write_video(path):
    """Write a video of two frames."""
    image = cv2.imread(str(IMAGES[0]))
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"mp4v"), 25, (image.shape[1], image.shape[0]))
    for _ in range(2):
        writer.write(image)
    writer.release()


FILES = {
    "docs/adopt.md": {"best.onnx": write_yolo},
    "docs/large_images.md": {"detector.onnx": MODEL} | {f"photos/{path.name}": path for path in IMAGES},
    "docs/old_models.md": {"old.onnx": old_export.MODEL, "config.py": CONFIG, "image.png": IMAGES[0]},
    "docs/predict.md": {"detector.onnx": MODEL} | {f"photos/{path.name}": path for path in IMAGES},
    "docs/tutorial.md": {path.name: path for path in (CONFIG, CHECKPOINT, ANNOTATIONS)}
    | {f"images/{path.name}": path for path in IMAGES},
    "docs/videos.md": {"detector.onnx": MODEL, "clip.mp4": write_video},
    "docs/words.md": {
        "detector.onnx": save_detector,
        "detector.texts.onnx": save_encoder,
        "street.jpg": IMAGES[0],
    },
}
"""Files that a document's reader has already, or functions that write them."""

RUN = {
    *("docs/adopt.md", "docs/large_images.md", "docs/old_models.md"),
    *("docs/predict.md", "docs/tutorial.md", "docs/videos.md"),
}
"""Documents of which the `mmort` commands run, instead of being parsed only."""


def blocks(document):
    """[(language, code, line of the first line)] of a document."""
    text = (ROOT / document).read_text(encoding="utf-8")
    return [(match[1], match[2], text.count("\n", 0, match.start(2))) for match in FENCE.finditer(text)]


def commands(code):
    """The commands in a block for a shell, each a list of words, without settings of variables."""
    lexer = shlex.shlex(code.replace("\\\n", " ").replace("\n", " ; "), posix=True, punctuation_chars="&;|")
    lexer.whitespace_split = True
    result = [[]]
    for word in lexer:
        if set(word) <= set("&;|"):
            result.append([])
        elif result[-1] or "=" not in word:
            result[-1].append(word)
    return [command for command in result if command]


def without_comments(code):
    return re.sub(r"(^|\s)#.*", "", code)


def assert_output(printed, wanted):
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    assert doctest.OutputChecker().check_output(wanted, printed, options), f"{printed}\nis not\n{wanted}"


def run_python(code, line, document, namespace):
    compiled = compile("\n" * line + code, str(ROOT / document), "exec")
    with contextlib.redirect_stdout(io.StringIO()) as stdout, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # as outside of pytest: torch warns of itself
        exec(compiled, namespace)
    return stdout.getvalue()


def run_command(command):
    with contextlib.redirect_stdout(io.StringIO()) as stdout:
        assert cli.main(command[1:]) == 0
    return stdout.getvalue()


@pytest.mark.parametrize("document", [document for document in DOCUMENTS if document not in ELSEWHERE | IN_A_SHELL])
def test_blocks_run_and_print_what_the_document_shows(document, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, source in FILES.get(document, {}).items():
        pathlib.Path(name).parent.mkdir(exist_ok=True)
        if callable(source):
            source(name)
        else:
            shutil.copyfile(source, name)
    set_seconds(monkeypatch, before=1.0, after=0.5)  # or docs/acceleration.md would need an idle machine
    namespace, printed = {"__name__": "__main__"}, None
    for language, code, line in [*blocks(document), ("", "", 0)]:
        if language == "text":
            assert printed is not None, f"{document}:{line}: no block before it prints this output"
            assert_output(printed, code)
            printed = None
            continue
        assert not printed, f"{document}:{line}: the block before printed {printed}"
        if language == "python":
            printed = run_python(code, line, document, namespace)
        elif language == "sh" and document in RUN:
            words = commands(without_comments(code))
            printed = "".join(run_command(command) for command in words if command[0] == "mmort")
        else:
            printed = None


def test_output_is_compared():
    assert_output("a 1.5\nb\n", "a ...\nb\n")
    for wanted in ("a 1.5\n", "a 1.5\nc\n", "a 1.5\nb\nc\n"):
        with pytest.raises(AssertionError, match="is not"):
            assert_output("a 1.5\nb\n", wanted)


# ---- commands --------------------------------------------------------------------------------------------------


EXTRAS = set(importlib.metadata.metadata("mmort").get_all("Provides-Extra"))
STEPS = set(re.findall(r"^(\w+)\(\) \{", (ROOT / ".ci" / "run").read_text(encoding="utf-8"), re.M))


def check_mmort(arguments, folder):
    cli._parser().parse_args(arguments)


def check_pip(arguments, folder):
    assert arguments[0] in ("install", "wheel")
    for extras in re.findall(r"\[(.+?)\]", " ".join(arguments)):
        assert set(extras.split(",")) <= EXTRAS, extras
    for option, value in itertools.pairwise(arguments):
        assert option != "-c" or (ROOT / value).is_file(), value


def check_pytest(arguments, folder):
    paths = [argument for argument in arguments if "/" in argument]
    assert all((ROOT / path).exists() for path in paths), paths


def check_python(arguments, folder):
    if arguments[0] == "-m":
        assert (
            arguments[1] in ("build", "venv") or (ROOT / arguments[1].replace(".", "/")).with_suffix(".py").is_file()
        ), arguments
    else:
        assert (ROOT / arguments[0]).is_file() or (folder / arguments[0]).is_file(), arguments


def check_ci(arguments, folder):
    assert set(arguments) <= STEPS, arguments


def ignore(arguments, folder):
    """Checked by tests/docs/test_cpp.py (compiler, its program), or a program that is not mmort's."""


CHECKS = {"mmort": check_mmort, "pip": check_pip, "pytest": check_pytest, "python": check_python}
CHECKS |= {
    ".": ignore,
    "auditwheel": ignore,
    "cd": ignore,
    "cp": ignore,
    "cvat-cli": ignore,
    "docker": ignore,
    "nuctl": ignore,
    "python3": check_python,
    "rattler-build": ignore,
    ".ci/run": check_ci,
    "g++": ignore,
    "./detect": ignore,
    "sphinx-build": ignore,
}


def check(command, folder):
    name = command[0] if command[0] in CHECKS else pathlib.PurePath(command[0]).name
    assert name in CHECKS, f"no check for {name}"
    try:
        CHECKS[name](command[1:], folder)
    except SystemExit:
        pytest.fail(f"the command line refuses {shlex.join(command)}")


@pytest.mark.parametrize("document", COMMANDS)
def test_commands_are_there_and_take_their_arguments(document):
    for language, code, _ in blocks(document):
        if language == "sh":
            for command in commands(without_comments(code)):
                check(command, (ROOT / document).parent)


@pytest.mark.parametrize(
    "line",
    [
        "mmort exprot config.py x.pth",
        "mmort verify model.onnx",
        "X=1 pip install '.[speed]'",
        "pip install -c constrain.txt -e .",
        ".venv/bin/pytest tests/test_speed.py",
        "python examples/none.py",
        ".ci/run fast",
        "make check",
    ],
)
def test_wrong_commands_are_found(line):
    ((*_, command),) = [commands(line)]
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check(command, ROOT)


def test_readme_has_the_two_commands():
    """A fresh clone: one command runs the main job, one passes the tests."""
    venv = "python3 -m venv .venv && WITH_ORT=1 .venv/bin/pip install "
    assert [code for language, code, _ in blocks("README.md") if language == "sh"] == [
        f"{venv}-c constraints.txt '.[demo]' && .venv/bin/mmort demo\n",
        f"{venv}-c constraints.txt -e '.[test]' && .venv/bin/pytest\n",
    ]


def test_every_block_has_a_known_language():
    for document in COMMANDS:
        assert {language for language, _, _ in blocks(document)} <= LANGUAGES
