"""Detectors' files of other exporters, made of packages of the index, and what each package's own code detects."""
