"""Suppression of boxes, and what comes before it."""
