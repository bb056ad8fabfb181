"""Axis-aligned boxes: their overlaps."""
