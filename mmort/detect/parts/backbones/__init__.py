"""Networks from an image to feature maps, finest first; their parameters are named as MMDetection names them."""
