"""Regions of interest: RoIAlign, straight and rotated."""
