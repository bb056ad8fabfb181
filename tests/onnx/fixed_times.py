"""Accelerations whose measured times do not depend on the machine, nor on what else it does."""

from mmort.onnx.accelerate import accelerate_file
from mmort.onnx.accelerate.measuring import measure
from mmort.onnx.graph.patterns import PREFIX


def set_seconds(monkeypatch, before, after, elsewhere=0):
    """Let each node of a model take `before` seconds, and each that mmort puts there instead `after`.

    The second model takes some seconds more `elsewhere`.
    """

    def timed(name, run):
        return run._replace(seconds=after if name.startswith(PREFIX) else before)

    def measured(models, values):
        results = [{name: timed(name, run) for name, run in runs.items()} for _, runs in measure(models, values)]
        return [
            ([sum(run.seconds for run in runs.values()) + number * elsewhere], runs)
            for number, runs in enumerate(results)
        ]

    monkeypatch.setattr(accelerate_file, "measure", measured)
