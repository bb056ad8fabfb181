"""Makes ``python -m mmort`` the command line."""

import sys

from mmort.cli import main

sys.exit(main())
