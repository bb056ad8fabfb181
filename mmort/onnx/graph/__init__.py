"""ONNX graphs: the only code that loads and saves them, and what reads, matches, builds and edits nodes."""
