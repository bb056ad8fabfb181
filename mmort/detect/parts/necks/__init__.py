"""Networks from the feature maps of a backbone to those that heads read."""
