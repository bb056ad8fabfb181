"""Imports inside mmort point one way: from what is built on others to what it is built on, and never in a circle."""

import ast
import pathlib

import pytest

import mmort

ROOT = pathlib.Path(mmort.__file__).parent

ARROWS = {
    "_files": set(),
    "_interpreter": set(),
    "limits": set(),
    "schemas": {"_kernels"},
    "build": set(),
    "tables": set(),
    "tolerances": set(),
    "_kernels": set(),
    "ops": {"_kernels", "schemas"},
    "ort": {"limits", "ops"},
    "configs": {"_files", "limits"},
    "images": {"_files", "limits"},
    "detections": {"images", "tolerances"},
    "contract": {"configs", "detections", "schemas"},
    "predict": {"contract", "ort", "tables"},
    "evaluate": {"onnx"},
    "demo": {"detect", "evaluate"},
    "torch": {"ops"},
    "mmcv": {"detections", "limits", "torch"},
    "onnx": {"torch", "predict", "tables"},
    "detect": {"onnx"},
    "info": {"ort"},
    "original": {"detect", "mmcv"},
    "cli": {"evaluate", "demo", "detect", "info", "original", "tables"},
}
"""What each part is built on; it may import that, and whatever that is built on."""

PARTS_OF = {"__main__": "cli"}
"""Modules that belong to a part of another name."""

OPTIONAL = {
    "torch",
    "onnx",
    "onnxruntime",
    "onnxscript",
    "openvino",
    "cv2",
    "PIL",
    "yaml",
    "faster_coco_eval",
    "jinja2",
    "tqdm",
}


def imports_of(path, module):
    """Return {(name, whether it is imported with the module)} of a file; annotations' imports are left out."""
    modules = set()

    def visit(node, eager):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        if isinstance(node, ast.Import):
            modules.update((alias.name, eager) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{module}: imports are absolute"
            modules.update((f"{node.module}.{alias.name}", eager) for alias in node.names)
        inner = eager and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            visit(child, inner)

    visit(ast.parse(path.read_text(encoding="utf-8")), True)
    return modules


def name_of(path):
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {name_of(path): path for path in ROOT.rglob("*.py")}
IMPORTS = {module: imports_of(path, module) for module, path in FILES.items()}


def edges():
    """Yield (module, imported module of mmort, whether it is imported with the module)."""
    for module, imports in IMPORTS.items():
        for name, eager in sorted(imports):
            target = name
            while target and target not in FILES:
                target = target.rpartition(".")[0]
            if target and target != module:
                yield module, target, eager


def part_of(module):
    part = module.split(".")[1] if "." in module else "mmort"
    return PARTS_OF.get(part, part)


def reachable(graph, start):
    """Return all that a directed graph leads to from a node."""
    seen, left = set(), [start]
    while left:
        for follower in graph.get(left.pop(), ()):
            if follower not in seen:
                seen.add(follower)
                left.append(follower)
    return seen


def circles(graph):
    """Return the nodes of a directed graph from which a path leads back to them."""
    return sorted(node for node in graph if node in reachable(graph, node))


def test_every_part_is_known():
    assert {part_of(module) for module in FILES} - {"mmort"} <= ARROWS.keys()


def test_the_parts_form_no_circle():
    assert circles(ARROWS) == []
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c"]


def test_arrows():
    against = [
        f"{module} imports {target}"
        for module, target, _ in edges()
        if part_of(module) != "mmort"
        and part_of(target) not in ("mmort", part_of(module))
        and part_of(target) not in reachable(ARROWS, part_of(module))
    ]
    assert against == []


def test_no_circle_of_modules():
    graph = {}
    for module, target, _ in edges():
        graph.setdefault(module, set()).add(target)
    assert circles(graph) == []


@pytest.mark.parametrize(
    ("start", "never"),
    [
        ("mmort", OPTIONAL),
        ("mmort.onnx", {"torch", "onnx", "onnxscript"}),
        ("mmort.cli", OPTIONAL),
        ("mmort.contract", OPTIONAL),
        ("mmort.predict", {"torch", "onnx", "onnxscript", "openvino"}),
        ("mmort.evaluate", OPTIONAL),
    ],
)
def test_what_importing_does_not_load(start, never):
    graph = {}
    for module, target, eager in edges():
        if eager:
            graph.setdefault(module, set()).add(target)
    for module in {start, *reachable(graph, start)}:
        loaded = {name.partition(".")[0] for name, eager in IMPORTS[module] if eager}
        assert not loaded & never, f"{start} loads {module}, which imports {sorted(loaded & never)}"


def test_predict_and_evaluate_never_import_torch():
    for module, imports in IMPORTS.items():
        if part_of(module) in ("predict", "evaluate"):
            assert not {name.partition(".")[0] for name, _ in imports} & {"torch", "onnxscript"}, module
