"""Running extrema along an axis."""
