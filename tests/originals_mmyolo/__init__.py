"""Comparisons with MMYOLO 0.6.0 itself, a judge of which only the results are looked at; `.ci/run originals_mmyolo`.

It is compared as `tests.originals` compares MMDetection: with the same weights, images, kernels and comparison.
"""
