"""``python -m mmort.mmcv SCRIPT ARGUMENT...`` runs a script of MMDetection or its relatives with mmort's operators."""

from __future__ import annotations

import os
import runpy
import sys


def main() -> None:
    """Run the script that the command line names, with the arguments after it."""
    usage = "usage: python -m mmort.mmcv SCRIPT ARGUMENT..."
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(usage, file=sys.stderr if len(sys.argv) < 2 else sys.stdout)
        sys.exit(2 if len(sys.argv) < 2 else 0)
    if not os.path.isfile(sys.argv[1]):
        sys.exit(f"python -m mmort.mmcv: error: no such script: {sys.argv[1]}")
    import mmort.mmcv  # noqa: F401

    del sys.argv[0]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
