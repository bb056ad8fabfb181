"""`Question`: what a file does not say, and runs do not show; a user's word decides."""

from __future__ import annotations


class Question(ValueError):
    """A file does not say all that is needed, and nothing was written; the text has what would say it."""
