"""Parts that several families of rotated detectors share, after MMRotate."""
