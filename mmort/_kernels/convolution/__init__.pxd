"""Deformable convolution."""
