"""Run a section of docs/original.md as its reader does, commands and Python: for tests/originals_mm*."""

import re
import shutil

from tests.docs.test_snippets import FENCE, ROOT, assert_output, commands, run_command, run_python, without_comments

GUIDE = "docs/original.md"


def run_section(title, files, photos, folder, monkeypatch):
    """Run a section's commands of mmort and its Python in a folder with the reader's `files`, and ``photos``."""
    for name, source in files.items():
        shutil.copyfile(source, folder / name)
    (folder / "photos").mkdir()
    for index, source in enumerate(photos):
        shutil.copyfile(source, folder / "photos" / f"{index:03}.png")
    page = (ROOT / GUIDE).read_text(encoding="utf-8")
    (section,) = re.findall(rf"^## {title}\n(.*?)(?=^## )", page, re.M | re.S)
    printed, namespace = "", {}
    monkeypatch.chdir(folder)
    for language, code in FENCE.findall(section):
        if language == "text":
            assert_output(printed, code)
        elif language == "python":
            printed = run_python(code, 0, GUIDE, namespace)
        else:
            words = commands(without_comments(code))
            printed = "".join(run_command(command) for command in words if command[0] == "mmort")
