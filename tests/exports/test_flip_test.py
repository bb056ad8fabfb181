"""A flip test is exported by torch.export, too."""

from tests.detect.test_query_detectors import check_export_of_a_flip_test


def test_export(tmp_path):
    check_export_of_a_flip_test(tmp_path / "detector.onnx")
