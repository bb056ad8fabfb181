"""mmort/limits.py: bounds on what comes from strangers stand there, and docs/limits.md has them."""

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

from mmort import limits

PACKAGE = Path(limits.__file__).parent
PAGE = PACKAGE.parent / "docs" / "limits.md"

NO_BOUNDS = {
    "of messages and tables": {
        "cli/terminal.py: MAX_MESSAGE",
        "configs/errors.py: MAX_EXCERPT",
        "detect/checkpoint.py: MAX_LISTED",
        "evaluate/analysis/report.py: MAX_CONFUSIONS",
        "evaluate/analysis/report.py: MAX_IMAGES",
        "evaluate/analysis/report.py: MAX_MATRIX_CLASSES",
        "evaluate/analysis/report.py: MAX_NAMED_CURVES",
        "evaluate/coco_format.py: MAX_LISTED",
        "evaluate/parity/image_pairs.py: MAX_ROWS",
        "onnx/adopt/summary.py: _MAX_NAMES",
        "onnx/describe.py: MAX_VALUE",
        "onnx/quantize/report.py: _MAX_NAMES",
        "onnx/verify/proof.py: MAX_PROBLEMS",
    },
    "of drawings": {
        "detections/drawing.py: MAX_PANEL_WIDTH",
        "detections/drawing.py: MAX_POSITION",
        "detections/labels.py: MAX_COVERED_SHARE",
        "detections/labels.py: MAX_LABELLED_SHARE",
        "detections/labels.py: MAX_WIDTH_SHARE",
    },
    "of metrics, as their definitions have it": {
        "evaluate/lvis.py: MAX_DETECTIONS",
        "evaluate/panoptic_quality.py: MAX_IGNORED",
    },
    "of detectors, as MMDetection has it": {
        "detect/families/dense/cornernet.py: _MAX_PAIRS",
        "detect/families/dense/glip.py: MAX_TOKENS",
        "detect/families/dense/yolof.py: MAX_EXPONENTIAL",
        "detect/parts/fusion.py: MAX_LOGIT",
        "detect/parts/guided_anchors.py: _MAX_GROWTH",
        "detect/parts/rotated/coders.py: _MAX_GROWTH",
        "onnx/adopt/decode.py: MAX_ROTATED",
    },
    "of blocks and runs that mmort chooses": {
        "detect/export/examples.py: MAX_TEST_SIDE",
        "detect/parts/selection.py: MAX_PRESELECTED",
        "detect/receptive_fields.py: MAX_BYTES",
        "images/resampling.py: _MAX_PRECISION",
        "images/resampling.py: _MAX_WEIGHT",
        "onnx/accelerate/measuring.py: MAX_RUNS",
        "onnx/accelerate/row_order.py: MAX_MOVED",
        "onnx/portable/apply.py: MAX_INLINED",
        "onnx/portable/definitions/attention.py: MAX_GATHERED",
        "onnx/portable/definitions/attention.py: MAX_PIECES",
        "onnx/portable/definitions/roi_matrices.py: MAX_SAMPLES",
        "onnx/portable/definitions/sampling.py: MAX_CARAFE_KERNEL",
        "onnx/quantize/quantize_file.py: MAX_MEASURED",
        "onnx/triton.py: MAX_BATCH_SIZE",
        "onnx/triton.py: MAX_QUEUE_DELAY",
        "predict/benchmarking.py: MAX_WARM_UP",
        "predict/engines/ray.py: MAX_RETRIES",
        "predict/reading.py: MAX_WAIT",
    },
    "of the proof and of what counts as equal": {
        "detections/boxes.py: MAX_TURN",
        "onnx/adopt/evidence.py: MAX_CERTAIN",
        "onnx/adopt/evidence.py: MAX_OUTSIDE",
        "onnx/adopt/evidence.py: MAX_SPREAD",
        "onnx/adopt/trial.py: _MAX_TURNED",
        "onnx/verify/double_precision.py: MAX_COLUMNS",
        "onnx/verify/proof.py: MAX_SIZE",
        "onnx/verify/provenance.py: MAX_NUMBERS",
        "onnx/verify/rounding.py: LIMIT",
    },
}
"""The other constants that limit something, by what they are instead of bounds on input."""


def is_large(node):
    """Return whether an expression is a number of at least 1,000, such as 2**24."""
    names = {type(part) for part in ast.walk(node)}
    if not names <= {ast.Constant, ast.BinOp, ast.UnaryOp, ast.Pow, ast.Mult, ast.Sub, ast.Add, ast.USub, ast.LShift}:
        return False
    value = eval(ast.unparse(node), {"__builtins__": {}})
    return isinstance(value, (int, float)) and abs(value) >= 1000


def found():
    """Return the constants that limit something, and the literal numbers above which something is refused."""
    constants, literals = set(), set()
    for path in sorted(PACKAGE.rglob("*.py")):
        module, tree = path.relative_to(PACKAGE).as_posix(), ast.parse(path.read_text())
        for node in tree.body:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            names = [part.id for target in targets if target for part in ast.walk(target) if isinstance(part, ast.Name)]
            constants |= {f"{module}: {name}" for name in names if name.lstrip("_").startswith(("MAX_", "LIMIT"))}
        for node in ast.walk(tree):
            if isinstance(node, ast.If) and any(isinstance(part, ast.Raise) for part in node.body):
                compared = [
                    part
                    for test in ast.walk(node.test)
                    if isinstance(test, ast.Compare)
                    for part in (test.left, *test.comparators)
                ]
                literals |= {f"{module}: {ast.unparse(part)}" for part in compared if is_large(part)}
    return constants, literals


def test_bounds_on_input_stand_in_one_file():
    constants, literals = found()
    known = {f"limits.py: {limit.name}" for limit in limits.LIMITS} | {"limits.py: LIMITS"}
    assert constants - known == set().union(*NO_BOUNDS.values()) | {"images/__init__.py: MAX_PIXELS_VARIABLE"}
    assert literals == {"mmcv/points.py: 2 ** 63"}  # int64


def test_each_bound_has_its_name_a_value_and_a_reason():
    for limit in limits.LIMITS:
        assert getattr(limits, limit.name) == limit.value > 0
        assert limit.bounds
        assert limit.reason
    assert len({limit.name for limit in limits.LIMITS}) == len(limits.LIMITS)


def test_the_page_has_them():
    specification = importlib.util.spec_from_file_location("limit_table", PAGE.with_name("limit_table.py"))
    limit_table = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(limit_table)
    page = PAGE.read_text()
    assert page == limit_table.filled(page), "python docs/limit_table.py writes the table"
    assert page.count("\n| ") > len(limits.LIMITS)


def test_bounds_need_no_package():
    code = "import sys, mmort.limits\nassert not {'torch', 'onnx', 'onnxruntime', 'cv2'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
