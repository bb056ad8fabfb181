"""The command line itself: usage errors, closed pipes, and that extras are imported only when a command needs them."""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest

import mmort
import mmort.cli
import mmort.evaluate
from mmort.cli.datasets import METRICS
from mmort.demo import IMAGES, MODEL
from mmort.onnx.verify.numbers import NumbersRow
from mmort.onnx.verify.report import Report, VerificationError
from mmort.predict import OnnxRuntime
from tests.cli.running import misused, refused, run
from tests.onnx import foreign
from tests.predict import tiny_detector


def test_module_runs_and_extras_load_late():
    code = (
        "import runpy, sys; sys.argv = ['mmort', 'info', '--help']\n"
        "try: runpy.run_module('mmort', run_name='__main__')\n"
        "finally: print({'PIL', 'onnxruntime', 'torch', 'onnx', 'mmort.onnx'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "--json" in result.stdout
    assert result.stdout.endswith("set()\n")


def test_the_version_needs_neither_arrays_nor_engines():
    """Of a command, only the arguments are made; those of all together take longer than Python itself."""
    code = (
        "import sys, mmort.cli\n"
        "try: mmort.cli.main(['--version'])\n"
        "finally: print({'mmort.contract', 'mmort.detections', 'mmort.evaluate', 'mmort.predict'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == f"mmort {mmort.__version__}\nset()\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["config.py", "--simplify", "checkpoint.pth", "-o", "x.txt"],
        ["config.py", "checkpoint.pth", "--simplify", "-o", "x.txt"],
        ["--simplify", "config.py", "-o", "x.txt", "checkpoint.pth"],
    ],
)
def test_a_checkpoint_may_come_after_an_option(arguments):
    assert refused("export", *arguments) == "mmort: error: output file must end with .onnx, got x.txt\n"


@pytest.mark.parametrize("command", mmort.cli.COMMANDS)
def test_commands_have_help(command, capsys):
    with pytest.raises(SystemExit) as caught:
        mmort.cli.main([command, "--help"])
    assert caught.value.code == 0
    words = " ".join(capsys.readouterr().out.split())
    assert words.startswith(f"usage: mmort {command} ")
    assert mmort.cli.COMMANDS[command].HELP in words


@pytest.mark.parametrize(
    ("package", "arguments", "message"),
    [
        ("torch", ["export", "config.py", "checkpoint.pth"], "mmort export needs torch: pip install 'mmort[detect]'"),
        ("onnx", ["upgrade", "model.onnx", "--in-place"], "needs onnx: pip install 'mmort[onnx]'"),
        ("onnx_ir", ["accelerate", "a.onnx", "--output", "b.onnx"], "needs onnx_ir: pip install 'mmort[onnx]'"),
        ("onnxruntime", ["verify", str(MODEL), "--against", str(MODEL)], "needs ONNX Runtime: pip install onnxruntime"),
    ],
)
def test_errors_name_the_extra_to_install(package, arguments, message):
    code = f"import sys; sys.modules[{package!r}] = None; import mmort.cli; sys.exit(mmort.cli.main({arguments}))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == (2 if arguments[0] == "verify" else 1)
    assert result.stderr.startswith("mmort: error: ")
    assert result.stderr.endswith(f"{message}\n")
    assert result.stderr.count("\n") == 1


def test_a_reader_may_stop_reading():
    command = [sys.executable, "-m", "mmort", "info"]
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=buffered) as process:
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 1


def test_sigterm_ends_a_command_as_ctrl_c_does(tmp_path):
    """What is not finished is removed."""
    code = (
        "import os, signal, sys, time, mmort.cli\n"
        "from mmort.onnx.graph.files import replacing\n"
        "def run(arguments):\n"
        "    with replacing('a.onnx') as draft:\n"
        "        draft.write_bytes(b'x')\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "        time.sleep(60)\n"
        "mmort.cli.info.run = run\n"
        "sys.exit(mmort.cli.main(['info']))"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=50)
    assert (result.returncode, result.stderr, os.listdir(tmp_path)) == (143, "mmort: terminated\n", [])


def test_interrupts_while_drafts_are_removed(tmp_path, monkeypatch):
    """Which would stay then."""
    removals = []

    def rmtree(path, **settings):
        removals.append(path)
        if len(removals) == 1:
            raise KeyboardInterrupt
        remove(path, **settings)

    remove = shutil.rmtree
    monkeypatch.setattr(shutil, "rmtree", rmtree)
    model = tiny_detector.write(tmp_path / "model.onnx")
    assert run("portable", model, "-o", tmp_path / "out.onnx")[0] == 130
    assert len(removals) == 2
    assert sorted(os.listdir(tmp_path)) == ["model.onnx", "out.onnx"]


def test_a_message_of_a_file_is_no_longer_than_a_line(tmp_path):
    """Metadata of megabytes stood in it."""
    foreign.write(
        tmp_path / "model.onnx",
        {"output0": np.zeros((7, 4))},
        metadata=foreign.ultralytics() | {"task": "\x1b" * 200_000 + "end"},
    )
    message = refused("adopt", tmp_path / "model.onnx", "-o", tmp_path / "out.onnx")
    assert message.startswith("mmort: error: adopt: files of ultralytics for the task '\\x1b")
    assert " ... " in message
    assert len(message) < 20_000


def test_an_interrupt_while_arguments_are_read(monkeypatch):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(argparse.ArgumentParser, "parse_known_args", interrupted)
    assert run("info") == (130, "", "mmort: interrupted\n")


def test_sigterm_is_left_to_the_program_that_calls(monkeypatch):
    def run(arguments):
        os.kill(os.getpid(), signal.SIGTERM)

    came = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: came.append(number))
    monkeypatch.setattr(mmort.cli.info, "run", run)
    try:
        assert mmort.cli.main(["info"]) == 0
    finally:
        signal.signal(signal.SIGTERM, before)
    assert came == [signal.SIGTERM]


def test_closed_streams(monkeypatch):
    """Python has None for them."""
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    assert mmort.cli.main(["info"]) == 0
    assert mmort.cli.main(["info", "none.onnx"]) == 1
    sys.stdout.close()
    sys.stderr.close()


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["info", "model.onnx", "extra"],
        ["demo", "picture.png"],
        ["info", "--js"],
        ["predict", "x.onnx", "x.png", "--score-thr", "5"],
        ["predict", "x.onnx", "x.png", "--score-thr", "nan"],
        ["test", "x.onnx", "--show-score-thr", "-0.1"],
        ["verify", "x.onnx", "--against", "y.onnx", "--min-mask-overlap", "x"],
    ],
)
def test_wrong_usage(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        mmort.cli.main(arguments)
    assert caught.value.code == 2
    first, *more = capsys.readouterr().err.splitlines()
    command = "" if arguments[0] == "nonsense" else f" {arguments[0]}"
    assert first.startswith(f"mmort{command}: error: ")
    assert more == [f"mmort{command} --help lists the arguments"] * bool(command)


def test_an_unknown_option_is_answered_in_two_lines(capsys):
    with pytest.raises(SystemExit) as caught:
        mmort.cli.main(["predict", "x.onnx", "x.png", "--score_thr", "0.5"])
    assert caught.value.code == 2
    assert capsys.readouterr().err == (
        "mmort predict: error: unrecognized arguments: --score_thr (did you mean --score-thr?) 0.5\n"
        "mmort predict --help lists the arguments\n"
    )


@pytest.mark.parametrize(
    ("arguments", "unknown"),
    [
        (["test", "x.onnx", "--score-threshold=1"], "--score-threshold=1"),
        (
            ["predict", "x.onnx", "x.png", "--score-threshold=1"],
            "--score-threshold=1 (did you mean --score-thr=1?)",
        ),
        (["export", "a.py", "b.pth", "--portable", "inlined"], "inlined (did you mean --portable=inlined?)"),
        (["predict", "x.onnx", "x.png", "--foo", "3"], "--foo 3"),
        (["predict", "x.onnx", "x.png", "--batch", "3"], "--batch (did you mean --batch-size?) 3"),
        (["predict", "x.onnx", "x.png", "--conf=0.5"], "--conf=0.5 (did you mean --score-thr=0.5?)"),
        (["predict", "x.onnx", "x.png", "--pred-score-thr=1"], "--pred-score-thr=1 (did you mean --score-thr=1?)"),
        (["predict", "x.onnx", "x.png", "--save-dir=D"], "--save-dir=D (did you mean --show-dir=D?)"),
        (["predict", "x.onnx", "x.png", "--save"], "--save (did you mean --show-dir?)"),
        (["predict", "x.onnx", "x.png", "--iou=0.5"], "--iou=0.5 (the file has it since its export)"),
        (["export", "a.py", "--imgsz", "640"], "--imgsz (did you mean --shape?) 640"),
        (["predict", "x.onnx", "x.png", "--project=D"], "--project=D (did you mean --show-dir=D?)"),
        (["test", "x.onnx", "--show-score=1"], "--show-score=1 (did you mean --show-score-thr=1?)"),
        (["test", "x.onnx", "--annotations=x"], "--annotations=x (did you mean --ann=x?)"),
        (["predict", "x.onnx", "x.png", "--device", "cpu"], "--device (did you mean --provider?) cpu"),
        (["export", "a.py", "b.pth", "--opset", "11"], "--opset (did you mean --opset-version?) 11"),
        (["info", "--device"], "--device (it runs on the CPU)"),
        (["export", "a.py", "b.pth", "--work-dir", "D"], "--work-dir (did you mean --output?) D"),
        (["test", "a.py", "x.onnx", "--metrics", "bbox"], "--metrics (did you mean --eval?) bbox"),
        (["predict", "x.onnx", "x.png", "--score-thresh=1"], "--score-thresh=1 (did you mean --score-thr=1?)"),
        (["predict", "x.onnx", "x.png", "--source"], "--source (its value is given without an option)"),
        (["info", "--config"], "--config (its value is given without an option)"),
        (["info", "--quite"], "--quite (did you mean --quiet?)"),
        (["--quiet", "info"], "--quiet (options come after the command)"),
        (["--foo"], "--foo"),
    ],
)
def test_an_option_like_an_unknown_one_is_suggested(arguments, unknown, capsys):
    with pytest.raises(SystemExit):
        mmort.cli.main(arguments)
    assert f": error: unrecognized arguments: {unknown}\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        ("predict --batch-size 0", "must be a whole number of at least 1, got 0"),
        ("predict --threads x", "must be a whole number of at least 1, got x"),
        ("predict --parallel 1.5", "must be a whole number of at least 1, got 1.5"),
        ("predict --window -1", "must be a whole number of at least 1, got -1"),
        ("predict --overlap -1", "must be a whole number of at least 0, got -1"),
        ("test --batch-size 0", "must be a whole number of at least 1, got 0"),
        ("test --threads 0", "must be a whole number of at least 1, got 0"),
        ("parity --batch-size 0", "must be a whole number of at least 1, got 0"),
        ("accelerate --threads 0", "must be a whole number of at least 1, got 0"),
        ("export --shape 0", "must be a whole number of at least 1, got 0"),
        ("test --eval box", "invalid choice: 'box' (choose from"),
        ("parity --eval segm box", "invalid choice: 'box' (choose from"),
    ],
)
def test_values_that_an_option_never_takes(option, problem, capsys):
    command, name, *values = option.split()
    with pytest.raises(SystemExit) as caught:
        mmort.cli.main([command, "x", "y", name, *values])
    assert caught.value.code == 2
    assert f"mmort {command}: error: argument {name}: {problem}" in capsys.readouterr().err


def test_metrics_are_those_of_the_data_sets():
    formats = [value for value in vars(mmort.evaluate).values() if isinstance(value, type)]
    named = [
        set(format.metric_names)
        for format in formats
        if issubclass(format, mmort.evaluate.Dataset) and isinstance(getattr(format, "metric_names", None), tuple)
    ]
    assert set().union(*named) == set(METRICS)


@pytest.mark.parametrize("name", ["exprot", "zzz"])
def test_help_of_an_unknown_command(name, capsys):
    with pytest.raises(SystemExit) as caught:
        mmort.cli.main(["help", name])
    assert caught.value.code == 2
    advice = "did you mean export?" if name == "exprot" else "mmort --help lists them"
    assert f"mmort: error: no command is called {name} ({advice})" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "advice"),
    [
        ("exprot", "did you mean export?"),
        ("triton_repository", "did you mean triton-repository?"),
        ("zzz", "--help"),
        ("INFO", "mean info?"),
        ("version", "mean --version?"),
        ("detect", "mean predict?"),
        ("val", "mean test?"),
    ],
)
def test_a_command_like_an_unknown_one_is_suggested(command, advice, capsys):
    with pytest.raises(SystemExit) as caught:
        mmort.cli.main([command, "x.onnx"])
    assert caught.value.code == 2
    message = capsys.readouterr().err
    assert f"mmort: error: no command is called {command} (" in message
    assert advice in message


@pytest.mark.parametrize("choice", [None, "0"])
def test_onnx_runtime_reports_nothing(tmp_path, choice):
    """What it would report waits in a folder of the home, with an identifier."""
    of_runner = ("CI", "GITHUB_ACTIONS", "ORT_DISABLE_TELEMETRY", "XDG_CACHE_HOME")  # it is silent in CI by itself
    environment = {name: value for name, value in os.environ.items() if name not in of_runner}
    environment |= {"HOME": str(tmp_path)} | ({} if choice is None else {"ORT_DISABLE_TELEMETRY": choice})
    code = "import os, sys, mmort.cli; mmort.cli.main(sys.argv[1:]); print(os.environ['ORT_DISABLE_TELEMETRY'])"
    command = [sys.executable, "-c", code, "predict", str(MODEL), str(IMAGES[0])]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == (choice or "1")
    if choice is None:
        assert not (tmp_path / ".cache").exists()


def test_without_a_command(capsys):
    assert mmort.cli.main([]) == 0
    assert capsys.readouterr().out.startswith("usage: mmort [-h]")


def options_of(command):
    """Return the words of each option of a command, by its destination."""
    subparsers = next(action for action in mmort.cli._parser()._actions if action.dest == "command")
    return {action.dest: action.option_strings for action in subparsers.choices[command]._actions}


@pytest.mark.parametrize(
    ("command", "former"),
    [
        ("accelerate", []),
        ("demo", []),
        ("export", ["--output-file"]),
        ("parity", ["--output-file"]),
        ("browse", []),
        ("portable", []),
        ("predict", ["--out-dir"]),
        ("quantize", []),
        ("test", ["--out"]),
        ("triton-repository", []),
        ("upgrade", []),
    ],
)
def test_what_is_written_has_one_name(command, former):
    assert options_of(command)["output"] == ["-o", "--output", *former]


def test_every_command_that_writes_is_tested():
    assert [command for command in mmort.cli.COMMANDS if "output" not in options_of(command)] == [
        "info",
        "verify",
        "benchmark",
        "completion",
    ]


MODEL_WRITERS = [
    ["export", "not_even_read.py", "x.pth", "-o", "OUT"],
    ["accelerate", "not_even_read.py", "-o", "OUT"],
    ["adopt", "not_even_read.py", "-o", "OUT"],
    ["portable", "not_even_read.py", "-o", "OUT"],
    ["quantize", "not_even_read.py", "--calibrate", "not_even_read.py", "-o", "OUT"],
    ["upgrade", "not_even_read.py", "-o", "OUT"],
]


@pytest.mark.parametrize(
    "arguments",
    [
        ["parity", "not_even_read.py", "x.pth", "-o", "OUT"],
        ["test", "not_even_read.py", "x.onnx", "-o", "OUT"],
        *MODEL_WRITERS,
    ],
)
def test_existing_files_are_replaced_only_by_force(arguments, tmp_path):
    file = tmp_path / ("x.onnx" if arguments in MODEL_WRITERS else "x.pkl")
    file.write_text("precious")
    arguments = [str(file) if argument == "OUT" else argument for argument in arguments]
    assert refused(*arguments) == f"mmort: error: output file exists: {file}; --force replaces it\n"
    assert "not_even_read.py" in refused(*arguments, "--force")
    assert file.read_text() == "precious"


@pytest.mark.parametrize("arguments", MODEL_WRITERS)
def test_models_have_names_of_models(arguments, tmp_path):
    """``-o epoch_12.pth`` names the checkpoint by mistake; ``--force`` would lose it."""
    file = tmp_path / "epoch_12.pth"
    file.write_text("precious")
    arguments = [str(file) if argument == "OUT" else argument for argument in arguments]
    for force in ([], ["--force"]):
        assert refused(*arguments, *force) == f"mmort: error: output file must end with .onnx, got {file}\n"
    assert file.read_text() == "precious"


def test_models_are_replaced_by_force(tmp_path):
    """Of the same name too."""
    model = tiny_detector.write(tmp_path / "model.onnx")
    for command, output in (("upgrade", tmp_path / "other.onnx"), ("portable", model)):
        if output != model:
            output.write_text("precious")
        code, out, err = run(command, model, "-o", output, "--force")
        assert (code, err) == (0, "")
        assert out.endswith(f"wrote {output}\n")
        assert OnnxRuntime(output).classes == ("a", "b")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.onnx", "other.onnx"]


def test_a_directory_is_replaced_by_no_force(tmp_path):
    model = tiny_detector.write(tmp_path / "model.onnx")
    (tmp_path / "folder").mkdir()
    error = refused("upgrade", model, "-o", tmp_path / "folder", "--force")
    assert error == f"mmort: error: output file is a directory: {tmp_path}/folder\n"


@pytest.mark.parametrize("command", sorted(set(mmort.cli.COMMANDS)))
def test_every_command_can_be_verbose_or_quiet(command, capsys):
    assert (options_of(command)["verbose"], options_of(command)["quiet"]) == (["-v", "--verbose"], ["-q", "--quiet"])


def test_quiet(tmp_path, capsys):
    """Neither the exit code nor what a program reads is lost."""
    model = tiny_detector.write(tmp_path / "model.onnx", shape=(1, 3, 16, 32))
    assert run("upgrade", model, "-o", tmp_path / "new.onnx", "-q") == (0, "", "")
    assert run("verify", model, "--against", model, "-q") == (0, "", "")
    assert json.loads(run("info", "-q", "--json")[1])["mmort"] == mmort.__version__
    assert "output file exists" in refused("upgrade", model, "-o", tmp_path / "new.onnx", "-q")


def test_the_picture_of_an_export_replaces_no_file(tmp_path):
    (tmp_path / "x.png").touch()
    error = refused("export", "not_even_read.py", "x.pth", "-o", tmp_path / "x.onnx", "--show")
    assert error == f"mmort: error: output file exists: {tmp_path}/x.png; --force replaces it\n"


@pytest.mark.parametrize(("arguments", "usage"), [([], "usage: mmort [-h]"), (["verify"], "usage: mmort verify ")])
def test_help_is_a_command_too(arguments, usage, capsys):
    with pytest.raises(SystemExit) as caught:
        mmort.cli.main(["help", *arguments])
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith(usage)


def test_completion_is_a_script_of_the_shell(capsys):
    assert mmort.cli.main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    question = "\nCOMP_WORDS=(mmort exp) COMP_CWORD=1; _shtab_mmort mmort exp mmort; echo ${COMPREPLY[@]}"
    result = subprocess.run(["bash", "-c", script + question], capture_output=True, text=True, check=True)
    assert result.stdout == "export\n"


@pytest.mark.parametrize("shell", mmort.cli.completion.SHELLS)
def test_completion_of_every_shell(shell):
    code, out, err = run("completion", shell)
    assert (code, err) == (0, "")
    assert "triton-repository" in out


def test_completion_names_its_package(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert mmort.cli.main(["completion", "zsh"]) == 1
    assert capsys.readouterr().err == "mmort: error: mmort completion needs shtab: pip install 'mmort[completion]'\n"


WRITING = [
    ["export", "not_even_read.py", "x.pth", "--output", "OUT/x.onnx"],
    ["upgrade", "not_even_read.onnx", "--output", "OUT/x.onnx"],
    ["portable", "not_even_read.onnx", "--output", "OUT/x.onnx"],
    ["accelerate", "not_even_read.onnx", "--output", "OUT/x.onnx"],
]


@pytest.mark.parametrize("arguments", [["demo", "--output", "OUT/demo"], *WRITING])
def test_missing_output_directories_are_named_before_the_work(arguments, tmp_path, capsys):
    folder = str(tmp_path / "nowhere")
    assert mmort.cli.main([argument.replace("OUT", folder) for argument in arguments]) == 1
    assert capsys.readouterr().err == f"mmort: error: output directory does not exist: {folder}\n"


@pytest.mark.parametrize("arguments", WRITING)
def test_outputs_without_a_name(arguments):
    """As from a variable of the shell that is not set; an empty path must not mean the model itself."""
    assert refused(*(argument.replace("OUT/x.onnx", "") for argument in arguments)) == (
        "mmort: error: output file must have a name, got ''\n"
    )


@pytest.mark.parametrize("arguments", WRITING)
def test_directories_that_cannot_be_written_to(arguments, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: (str(path), mode) != (str(tmp_path), os.W_OK | os.X_OK))
    error = refused(*(argument.replace("OUT", str(tmp_path)) for argument in arguments))
    assert error == f"mmort: error: output directory is not writable: {tmp_path}\n"


class UnforeseenError(Exception):
    """What no command raises on purpose."""


def test_an_unforeseen_error_is_one_line(monkeypatch, capsys):
    def fail(arguments):
        raise UnforeseenError("first\nsecond \x1b[2J\udcff")

    monkeypatch.setattr(mmort.cli.COMMANDS["info"], "run", fail)
    assert mmort.cli.main(["info"]) == 1
    advice = "(mmort did not foresee this; please report it to mmort's repository, with the traceback"
    assert capsys.readouterr().err == (
        rf"mmort: error: UnforeseenError: first second \x1b[2J\udcff {advice}, as the same command with -v prints it)"
        "\n"
    )
    assert mmort.cli.main(["info", "-v"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-1] == rf"mmort: error: UnforeseenError: first second \x1b[2J\udcff {advice})"
    assert not any("\x1b" in line for line in lines)


@pytest.mark.parametrize("list_", ["two:\n  first \x1b[2J\n    second", "two:\n  first\nsecond"])
def test_a_list_in_an_error_stays_a_list(list_, monkeypatch, capsys):
    def fail(arguments):
        raise ValueError(list_)

    monkeypatch.setattr(mmort.cli.COMMANDS["info"], "run", fail)
    assert mmort.cli.main(["info"]) == 1
    shown = "two:\n  first \\x1b[2J\n    second" if "\n    " in list_ else "two:   first second"
    assert capsys.readouterr().err == f"mmort: error: {shown}\n"


def test_names_that_are_taken_for_options_do_not_control_the_terminal(capsys):
    """As `mmort info *.onnx` has them."""
    for arguments in (["info", "a.onnx", "--\x1b[2J.onnx"], ["predict", "a.onnx", "b.png", "--score-thr", "\x1b[2J"]):
        with pytest.raises(SystemExit) as wrong:
            mmort.cli.main(arguments)
        error = capsys.readouterr().err
        assert (wrong.value.code, "\x1b" in error, r"\x1b[2J" in error) == (2, False, True)


def test_text_of_files_does_not_control_the_terminal(tmp_path):
    model = tiny_detector.write(
        tmp_path / "x.onnx", metadata={**tiny_detector.METADATA, "title": "\x1b]0;x\x07\x9b2J\u202e"}
    )
    code, out, _ = run("info", model)
    assert code == 0
    assert r"\x1b]0;x\x07\x9b2J\u202e" in out
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(out)
    assert r"no image matches \x1b[31m .png;" in refused("predict", model, "\x1b[31m\n.png")


def test_a_comparison_that_differs_shows_its_table(monkeypatch, capsys):
    report = Report((NumbersRow("1x3", "y", "3", 1.0, None, "exact", "3 of 3 numbers"),))

    def fail(arguments):
        raise VerificationError(f"x.onnx was not written\n{report}\x1b[2J", report)

    monkeypatch.setattr(mmort.cli.COMMANDS["info"], "run", fail)
    assert mmort.cli.main(["info"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "mmort: error: x.onnx was not written"
    assert lines[-1].endswith(r"DIFFERS: 3 of 3 numbers\x1b[2J")


def test_names_that_are_loaded_when_used_are_listed():
    names = {*dir(mmort)}
    assert {"Detections", "Predictor", "nms", "__version__"} <= names
    assert not names & {"Any", "TYPE_CHECKING", "mmort", "_operators"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["info", "none.onnx"], "none.onnx: no such file or directory"),
        (["info", "."], ".: is a directory"),
        (["export", "none.py", "none.pth"], "none.py: no such file or directory"),
        (["predict", "config.py", "a.png"], "model must be an ONNX file, got the config config.py: mmort export makes"),
        (["predict", ".", "a.onnx"], "model must be an ONNX file, before images and data sets, got the folder ."),
        (
            ["predict", "a.PNG", "a.onnx"],
            "model must be an ONNX file, before images and data sets, got the image a.PNG",
        ),
        (
            ["export", "a.pth", "config.py"],
            "a.pth: a config must be a .py, .json, .yaml or .yml file, and comes before",
        ),
    ],
)
def test_files_that_are_not_there_or_of_another_kind(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("config.py", "a.PNG", "a.pth"):
        (tmp_path / name).touch()
    assert f"mmort: error: {message}" in refused(*arguments)


def test_a_checkpoint_alone_is_not_exported():
    assert misused("export", "a.pth") == "mmort: error: export: CONFIG is required before the checkpoint a.pth\n"
    assert "before the checkpoint a.pt; of a checkpoint of ultralytics, its own export" in misused("export", "a.pt")


def test_list_of_families_and_parts():
    assert run("export", "--list", "*XPAFPN") == (0, "part  types\nneck  YOLOXPAFPN\n", "")
    assert run("export", "--list", "XPAFPN") == (0, "part  types\nneck  YOLOXPAFPN\n", "")
    _, printed, _ = run("export", "--list", "atss*head")
    assert "ATSS    ATSSHead          ATSS.\n" in printed
    assert "no family, head or part matches 'nothing*'" in refused("export", "--list", "nothing*")
    assert misused("export") == "mmort: error: export: CONFIG is required, unless --list is given\n"
