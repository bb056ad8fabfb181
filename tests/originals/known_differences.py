"""Cases in which mmort differs from MMDetection, and why: an empty dict is the goal."""

KNOWN: dict[str, str] = {}
