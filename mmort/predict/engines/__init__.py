"""Engines that run a detector's file: ONNX Runtime, OpenVINO, or processes of Ray."""
