"""The steps of an acceleration: run the model, replace, measure, drop what is not faster, verify, write."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import onnx
import onnx.external_data_helper
import onnx_ir as ir

from mmort import get_num_threads
from mmort._files.drafts import temporary_folder, write_draft
from mmort.onnx.accelerate import scatter, single_nodes
from mmort.onnx.accelerate.class_chains import classes_in_turn
from mmort.onnx.accelerate.measuring import MIN_GAIN, is_faster, measure, run_once
from mmort.onnx.accelerate.multi_scale_attention import multi_scale_deformable_attention
from mmort.onnx.accelerate.nonzero import nonzero_of_rows
from mmort.onnx.accelerate.pasting import pasting
from mmort.onnx.accelerate.report import Acceleration, Left, Replaced
from mmort.onnx.accelerate.row_order import are_reordered
from mmort.onnx.accelerate.runs import Runs
from mmort.onnx.graph import files, inspection
from mmort.onnx.graph.patterns import NotReplaceableError, Replacement, name_of, replace
from mmort.onnx.verify import verify
from mmort.onnx.verify.random_inputs import check_stated_sizes, random_inputs
from mmort.onnx.verify.report import VerificationError
from mmort.onnx.verify.sessions import feeds, open_session, required_inputs

RULES: dict[str, Callable[[ir.Node, Runs], Replacement | None]] = {
    "deformable attention -> MultiScaleDeformableAttention": multi_scale_deformable_attention,
    "NonMaxSuppression -> NMSIndices": single_nodes.nms_indices,
    "RoiAlign -> MMCVRoiAlign": single_nodes.roi_align,
    "mask pasting -> MatMul": pasting,
    "GridSample -> grid_sampler": single_nodes.grid_sample,
    "DeformConv -> deform_conv2d": single_nodes.deformable_convolution,
    "NonZero -> NonZero of rows": nonzero_of_rows,
    "rows written in turn -> Gather": scatter.joined_rows,
    "ScatterElements of rows -> ScatterND": scatter.scattered_rows,
    "Loop that appends -> Loop that collects": single_nodes.appending_loop,
    "selection of each class in turn -> TopK": classes_in_turn,
    "Softmax of an inner axis -> Softmax": single_nodes.softmax_of_last_axis,
    "MatMul by a vector -> MatMul": single_nodes.product_with_column,
}
"""The kinds of replacements, in the order in which they are tried: a group of nodes before its parts."""

SIDE = 640
"""Height and width of generated images."""


class Edited(NamedTuple):
    """A model with replacements."""

    model: onnx.ModelProto
    old: dict[str, set[str]]
    """The names of the nodes that are gone, by kind."""
    new: dict[str, set[str]]
    """The names of the nodes that came, by kind."""
    replaced: dict[str, list[str]]
    """The names of the nodes that the rules were applied to, by kind."""
    left: dict[tuple[str, str], list[str]]
    """The names of nodes that were left, by operator and reason."""


def accelerate_file(
    path: files.PathLike, output: files.PathLike, inputs: Sequence[Sequence[Any]] | None, *, force: bool
) -> Acceleration:
    """Implement `mmort.onnx.accelerate`."""
    files.check_output(output, force=force)
    original = files.load_whole(path)
    generated = inputs is None
    sets = _generated(path) if inputs is None else inputs
    if not sets:
        raise ValueError("accelerate: inputs must have at least one set, got none")
    if not any(node.op_type in _CANDIDATES for node in inspection.every_node(original)):
        return Acceleration((), (), None, None, get_num_threads(), generated)
    runs = run_once(original, sets[0])
    edited = edit(original, runs, RULES)
    slower: list[Left] = []
    before, after = None, None
    replaced: tuple[Replaced, ...] = ()
    while edited.replaced:
        (old_seconds, old_runs), (new_seconds, new_runs) = measure([original, edited.model], sets[0])
        before, after = min(old_seconds), min(new_seconds)
        replaced = tuple(_compare(edited, old_runs, new_runs))
        lost = [row for row in replaced if row.after >= row.before]
        if not lost:
            gain = sum(row.before - row.after for row in replaced)
            if gain < MIN_GAIN * before or not is_faster(old_seconds, new_seconds):  # little, or lost elsewhere
                slower += [_not_faster(row, edited, before, after) for row in replaced]
                replaced = ()
            break
        slower += [_not_faster(row, edited, row.before, row.after) for row in lost]
        losers = {left.operator for left in slower}
        edited = edit(original, runs, [kind for kind in RULES if kind not in losers])
        replaced = ()
    left = tuple(Left(operator, tuple(names), reason) for (operator, reason), names in edited.left.items())
    if not replaced:
        return Acceleration((), (*left, *slower), before, None, get_num_threads(), generated)
    _verify(edited.model, path, sets)
    files.save(edited.model, output, path)
    return Acceleration(replaced, (*left, *slower), before, after, get_num_threads(), generated)


_CANDIDATES = (
    *("NonMaxSuppression", "RoiAlign", "GridSample", "grid_sampler", "DeformConv"),
    *("ScatterElements", "ScatterND", "NonZero", "Loop", "Softmax", "MatMul"),
)


def _generated(path: files.PathLike) -> Sequence[Sequence[Any]]:
    """Make a set of random inputs; where the file leaves sizes open, one image of SIDE x SIDE."""
    shapes = []
    for tensor in required_inputs(open_session(path)):
        image = [1, 3, SIDE, SIDE][-len(tensor.shape) :] if len(tensor.shape) in (3, 4) else [1] * len(tensor.shape)
        shapes.append(
            [size if isinstance(size, int) else usual for size, usual in zip(tensor.shape, image, strict=True)]
        )
    check_stated_sizes(shapes)
    return random_inputs(path, [shapes])


def edit(original: onnx.ModelProto, runs: Runs, kinds: Collection[str]) -> Edited:
    """Apply rules to a copy of the model."""
    model = ir.from_proto(original)
    edited = Edited(original, {}, {}, {}, {})
    for kind in kinds:
        for node in list(model.graph.all_nodes()):
            if node.graph is None or not _is_known(node) or name_of(node) not in runs:
                continue  # removed with a group, another domain's, or in a branch that did not run
            try:
                replacement = RULES[kind](node, runs)
            except NotReplaceableError as reason:
                edited.left.setdefault((node.op_type, str(reason)), []).append(name_of(node))
                continue
            if replacement is not None:
                _apply(node, replacement, kind, edited)
    _drop_unused_initializers(model)
    model.graph.sort()  # values that are known before the nodes that gave them move to the front
    for domain in {node.domain for node in model.graph.all_nodes()} & {"mmcv", "mmort"}:
        model.graph.opset_imports.setdefault(domain, 1)
    return edited._replace(model=ir.to_proto(model))


def _drop_unused_initializers(model: ir.Model) -> None:
    """Remove the initializers that only nodes read which are gone."""
    graph = model.graph
    kept = {*map(id, graph.inputs), *map(id, graph.outputs)}
    for name, value in list(graph.initializers.items()):
        if not value.uses() and id(value) not in kept:
            del graph.initializers[name]


def _is_known(node: ir.Node) -> bool:
    """Return whether a node is a standard one, or MMCV's or MMDeploy's GridSample."""
    return node.domain in ("", "ai.onnx") or (node.domain in ("mmcv", "mmdeploy") and node.op_type == "grid_sampler")


def _apply(node: ir.Node, replacement: Replacement, kind: str, edited: Edited) -> None:
    """Make a replacement, and remember the nodes for its measurement."""
    graph = node.graph
    assert graph is not None  # nodes of a model have one
    names = set(map(name_of, graph))
    number = sum(map(len, edited.replaced.values()))
    replace(node, replacement, f"{kind.rpartition(' ')[2]}_{number}")
    edited.replaced.setdefault(kind, []).append(name_of(node))
    edited.old.setdefault(kind, set()).update(names - set(map(name_of, graph)))
    edited.new.setdefault(kind, set()).update(map(name_of, replacement.nodes))


def _compare(edited: Edited, old_runs: Runs, new_runs: Runs) -> list[Replaced]:
    """Return the seconds of each kind's nodes before and after."""

    def seconds(runs: Runs, names: set[str]) -> float:
        return sum(runs[name].seconds for name in names if name in runs)

    return [
        Replaced(kind, len(names), seconds(old_runs, edited.old[kind]), seconds(new_runs, edited.new[kind]))
        for kind, names in edited.replaced.items()
    ]


def _not_faster(row: Replaced, edited: Edited, before: float, after: float) -> Left:
    """Return why a kind is not replaced: the seconds of its nodes, or of the whole file if these do not tell."""
    subject = "not faster" if row.after >= row.before else "not worth it, as the whole file is hardly faster"
    times = f"{1e3 * before:.3g} ms before, {1e3 * after:.3g} ms after"
    return Left(row.kind, tuple(edited.replaced[row.kind]), f"{subject} on these inputs: {times}")


def _verify(model: onnx.ModelProto, path: files.PathLike, sets: Sequence[Sequence[Any]]) -> None:
    """Compare a model with a file on sets of inputs; raise VerificationError if they differ, but for rows' order."""
    with temporary_folder() as folder:
        draft = folder / "accelerated.onnx"
        write_draft(draft, model.SerializeToString())
        report = verify(draft, path, sets)
        is_same = report.ok or _differs_in_order(draft, path, sets)
    if not is_same:
        problems = "; ".join(sorted({row.problem for row in report.rows if row.problem}))
        raise VerificationError(f"accelerate: the outputs differ, so nothing was written: {problems}", report)


def _differs_in_order(draft: Path, path: files.PathLike, sets: Sequence[Sequence[Any]]) -> bool:
    """Return whether the outputs of two files are equal on all inputs but for the order of their rows."""
    sessions = [open_session(file) for file in (draft, path)]
    return all(are_reordered(*(session.run(None, feeds(session, values)) for session in sessions)) for values in sets)
