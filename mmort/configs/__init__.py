"""MMDetection's configs, 2.x and 3.x: what their entries are and where they stand.  Nothing here needs torch."""
