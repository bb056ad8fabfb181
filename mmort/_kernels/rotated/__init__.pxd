"""Rotated boxes: their overlaps and suppression."""
