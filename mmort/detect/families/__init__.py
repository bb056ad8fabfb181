"""The families of detectors, one file each, in reading order: network, decoding, and what only this family needs.

A new family is a subclass of `SingleStageDetector`, `DenseDetector`, `TwoStageDetector` or `Detector` in a file of one
of these folders, registered with `PARTS.register` under the type names of its head, an import in the folder's
``__init__.py``, and a test.  Its parts have ``Entries``; their layers have MMDetection's names.  It may set

- ``head_entries``, ``earlier_heads``: the entries of the model in which such a head stands, and those of heads before;
- ``renamed_keys``: keys of the ``state_dict`` that other versions of MMDetection name otherwise;
- ``class_layers`` of a head: the layers whose rows are classes, for the message if their number differs;
- ``prepare_for_export``: what changes before it is exported.

A family that extends another imports from that family's file.  Blocks that unrelated families share are in ``parts``;
a new backbone, neck, prior generator or box coder is a registered class with ``Entries`` there.
"""

from mmort.detect.families import around, dense, masks, query, rotated, two_stage, yolo
