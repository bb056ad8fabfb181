"""Comparisons with MMDetection 2.28.2 and MMRotate 0.3.4 themselves, which `.ci/run originals_2` installs.

They cannot be imported beside MMDetection 3, which `tests.originals` compares with in the same way; both use its
weights, images, kernels and comparison.
"""
