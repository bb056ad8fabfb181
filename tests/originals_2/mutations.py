"""Change one entry of a config at a time, and compare mmort with MMDetection 2 or MMRotate 0.

As `tests.originals.mutations`, with the same arguments: python -m tests.originals_2.mutations --seed 1 --count 500
"""

import sys

from tests.originals.mutations import main
from tests.originals_2.version import VERSION

if __name__ == "__main__":
    sys.exit(main(VERSION, "tests.originals_2"))
