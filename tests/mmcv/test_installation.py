"""mmort.mmcv as MMCV's ``_ext``: every name is there, a compiled MMCV is left alone, scripts run with it."""

import pathlib
import subprocess
import sys

import pytest

import mmort.mmcv
from mmort.mmcv import ext_module

NAMES = """
active_rotated_filter_backward active_rotated_filter_forward assign_score_withk_backward assign_score_withk_forward
ball_query_forward bbox_overlaps bezier_align_backward bezier_align_forward bias_act border_align_backward
border_align_forward box_iou_quadri box_iou_rotated carafe_backward carafe_forward carafe_naive_backward
carafe_naive_forward chamfer_distance_backward chamfer_distance_forward contour_expand convex_giou convex_iou
correlation_backward correlation_forward deform_conv_backward_input deform_conv_backward_parameters
deform_conv_forward deform_roi_pool_backward deform_roi_pool_forward diff_iou_rotated_sort_vertices_forward
dynamic_point_to_voxel_backward dynamic_point_to_voxel_forward dynamic_voxelize_forward filtered_lrelu
filtered_lrelu_act_ furthest_point_sampling_forward furthest_point_sampling_with_dist_forward fused_bias_leakyrelu
fused_indice_conv_forward gather_points_backward gather_points_forward get_compiler_version get_compiling_cuda_version
get_indice_pairs_2d_backward get_indice_pairs_2d_forward get_indice_pairs_3d_backward get_indice_pairs_3d_forward
get_indice_pairs_4d_forward group_points_backward group_points_forward hard_voxelize_forward indice_conv_backward
indice_conv_forward indice_maxpool_backward indice_maxpool_forward iou3d_boxes_overlap_bev_forward iou3d_nms3d_forward
iou3d_nms3d_normal_forward knn_forward masked_col2im_forward masked_im2col_forward min_area_polygons
modulated_deform_conv_backward modulated_deform_conv_forward ms_deform_attn_backward ms_deform_attn_forward nms
nms_match nms_quadri nms_rotated pixel_group points_in_boxes_all_forward points_in_boxes_cpu_forward
points_in_boxes_part_forward points_in_polygons_forward prroi_pool_backward prroi_pool_coor_backward
prroi_pool_forward psamask_backward psamask_forward riroi_align_rotated_backward riroi_align_rotated_forward
roi_align_backward roi_align_forward roi_align_rotated_backward roi_align_rotated_forward roi_pool_backward
roi_pool_forward roiaware_pool3d_backward roiaware_pool3d_forward roipoint_pool3d_forward
rotated_feature_align_backward rotated_feature_align_forward sigmoid_focal_loss_backward sigmoid_focal_loss_forward
softmax_focal_loss_backward softmax_focal_loss_forward softnms stack_ball_query_forward stack_group_points_backward
stack_group_points_forward sync_bn_backward_data sync_bn_backward_param sync_bn_forward_mean sync_bn_forward_output
sync_bn_forward_var three_interpolate_backward three_interpolate_forward three_nn_forward tin_shift_backward
tin_shift_forward upfirdn2d
""".split()  # noqa: SIM905
"""What ``mmcv.ops`` of MMCV 2.1 asserts when it is imported; that of 1.7 asserts a part of it."""


def test_every_name_exists_once():
    assert sorted([*ext_module.IMPLEMENTED, *ext_module.NOT_IMPLEMENTED]) == sorted(NAMES)
    assert sorted(ext_module.functions()) == sorted(NAMES)
    assert all(map(callable, ext_module.functions().values()))


@pytest.mark.parametrize("name", ext_module.NOT_IMPLEMENTED)
def test_what_is_missing_says_so(name):
    with pytest.raises(NotImplementedError, match=rf"^mmcv\._ext\.{name}: not implemented by mmort; "):
        ext_module.functions()[name](1, 2, anything=3)


def run(directory, *arguments, files=()):
    """Run Python in a directory whose modules shadow those that are installed."""
    for name, text in dict(files).items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    source = pathlib.Path(mmort.__file__).parents[1]
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=directory,
        env={"PYTHONPATH": f"{directory}:{source}", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
    )


ORIGIN = "import mmort.mmcv, mmcv._ext; print(mmort.mmcv.install(), mmcv._ext.nms)"


def test_pure_mmcv_gets_operators(tmp_path):
    done = run(tmp_path, "-W", "error", "-c", ORIGIN, files={"mmcv/__init__.py": ""})
    assert done.stdout.startswith("True <function nms"), done.stderr


def test_compiled_mmcv_keeps_its_operators(tmp_path):
    done = run(tmp_path, "-W", "error", "-c", ORIGIN, files={"mmcv/__init__.py": "", "mmcv/_ext.py": "nms = 'its own'"})
    assert done.stdout == "False its own\n", done.stderr


def test_operators_that_do_not_load_are_replaced(tmp_path):
    broken = {"mmcv/__init__.py": "", "mmcv/_ext.py": "raise ImportError('undefined symbol: _ZN2at')"}
    done = run(tmp_path, "-c", ORIGIN, files=broken)
    assert done.stdout.startswith("True <function nms")
    assert "MMCV's operators do not load, mmort's replace them: undefined symbol: _ZN2at" in done.stderr


def test_missing_mmcv_is_named(monkeypatch):
    monkeypatch.setattr("mmort.mmcv.installation.find_spec", lambda name: None)
    monkeypatch.setattr(sys, "meta_path", sys.meta_path[1:])
    with pytest.warns(UserWarning, match="pip install mmcv-lite"):
        assert mmort.mmcv.install()


def test_script_gets_its_arguments_and_directory(tmp_path):
    script = "import sys, mmcv._ext, beside\nprint(__name__, sys.argv, beside.x, mmcv._ext.__spec__.origin)"
    files = {"mmcv/__init__.py": "", "tools/run.py": script, "tools/beside.py": "x = 1"}
    done = run(tmp_path, "-m", "mmort.mmcv", "tools/run.py", "config.py", "--option", files=files)
    assert done.stdout == "__main__ ['tools/run.py', 'config.py', '--option'] 1 mmort.mmcv\n", done.stderr


def test_usage(tmp_path):
    usage = "usage: python -m mmort.mmcv SCRIPT ARGUMENT...\n"
    missing = "python -m mmort.mmcv: error: no such script: nowhere.py\n"
    for arguments, code, out, err in (([], 2, "", usage), (["--help"], 0, usage, ""), (["nowhere.py"], 1, "", missing)):
        done = run(tmp_path, "-m", "mmort.mmcv", *arguments, files={"mmcv/__init__.py": ""})
        assert (done.returncode, done.stdout, done.stderr) == (code, out, err)
