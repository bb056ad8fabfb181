"""Random hostile inputs, run by hand: ``python -m tests.fuzz.configs --seconds 60``."""
