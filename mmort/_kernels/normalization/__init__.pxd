"""Group normalization."""
