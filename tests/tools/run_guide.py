"""Run a guide as its reader does: commands in one shell, Python blocks as the files that they name, outputs compared.

    python tests/tools/run_guide.py GUIDE FOLDER [WHEEL]

The first commands install mmort, in this copy of the sources; with WHEEL they install that instead of building one.
All others run in FOLDER, which is empty.  A Python block that begins with ``# NAME.py`` is saved there.  A block of
text is the output of the commands before it, with ``...`` for what varies.
"""

import doctest
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)


def main(guide, folder, wheel=None):
    folder = pathlib.Path(folder).resolve()
    lines, wanted = ["set -euo pipefail", f"cd {shlex.quote(str(ROOT))}"], {}
    count = 0
    for language, code in FENCE.findall(pathlib.Path(guide).read_text(encoding="utf-8")):
        file = re.match(r"# (\w+\.py)\n", code)
        if language == "python" and file:
            (folder / file[1]).write_text(code)
        elif language == "text":
            wanted[count] = code
        elif language == "sh":
            count += 1
            if count == 1 and wheel:
                code = code.replace("'.[", f"'{wheel}[")
            lines += [f"echo; cat <<'END'\n{code}END", f"{{\n{code}}} >{folder}/output_{count} 2>&1 || {{"]
            lines += [f"cat {folder}/output_{count}; exit 1; }}", f"tail -n 5 {folder}/output_{count}"]
            lines += [f"cd {shlex.quote(str(folder))}"] if count == 1 else []
    subprocess.run(["bash", "-c", "\n".join(lines)], check=True)
    for block, text in wanted.items():
        printed = (folder / f"output_{block}").read_text()
        if not doctest.OutputChecker().check_output(text, printed, doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE):
            sys.exit(f"{guide}: commands {block} print\n{printed}\nand not\n{text}")
    print(f"{count} blocks of commands ran, {len(wanted)} outputs are as shown")


if __name__ == "__main__":
    main(*sys.argv[1:])
