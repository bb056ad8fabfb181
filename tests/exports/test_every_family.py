"""Each family of detectors is exported, small and with proof, from the image that ships.

`.ci/run exports` runs this; the suite does not, as it takes minutes.
"""

import onnx
import pytest

from mmort.configs.layout import DetectorConfig
from mmort.detect import list_families
from mmort.detect.claims import family_of
from mmort.detect.export.head_outputs import PREFIX
from mmort.onnx.verify.proof import ProofRow
from tests.detect.small_exports import SmallExport, small_cases, with_limits

CASES = small_cases()
NAMES = {family_of(DetectorConfig({"model": model})).__name__: name for name, (model, _) in reversed(CASES.items())}
"""For each family its first case."""


def with_few_detections(entry):
    """Return a model's entry with at most 20 regions and detections, which the proof has masks and heads run for."""
    return with_limits(entry, {"max_per_img": lambda limit: min(limit, 20)})


def test_every_family_has_a_case():
    families = {family.name for family in list_families()}
    assert set(NAMES) == families, f"tests/detect: small configs missing for {sorted(families - set(NAMES))}"


@pytest.mark.parametrize("family", sorted(NAMES))
def test_export(family, tmp_path):
    """The file is proven from cut to cut, with the outputs of its heads, which all families have, and with noise.

    Some of these outputs are not in the file, as no detection depends on them.
    """
    path = tmp_path / "detector.onnx"
    model, fill = CASES[NAMES[family]]
    small = SmallExport(with_few_detections(model), fill, path)
    report = small.write()
    assert report.ok
    assert path.exists()
    assert all(isinstance(row, ProofRow) for row in report.rows)
    compared = [row.compared for row in report.rows]
    assert compared.count("torch's program with the model") == len(small.inputs)
    assert sum("noise in image and heads" in row.view for row in report.rows) == 2
    computed = {name for node in onnx.load(path).graph.node for name in node.output}
    assert any(PREFIX + name in computed for name in small.detector.raw_names)
