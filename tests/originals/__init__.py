"""Comparisons with MMDetection and MMRotate themselves, which `.ci/run originals` installs.

`cases` has small detectors, as configs that both sides read.  `original` and `candidate` build MMDetection's and
mmort's detector with the same random weights (`weights`) and run them on image files (`images`); `comparison` says
whether the `results` are equal.  MMDetection computes with `plain_kernels`, which share nothing with mmort.
`mmrotate_1` imports MMRotate 1 beside the MMDetection of today.
`mutations` changes the cases' entries one by one (`mutants`, `outcomes`).
"""
