"""Random hostile inputs and long runs, by hand: ``python -m tests.fuzz.NAME --seconds 60``; all of them: long.sh."""
