"""ONNX Runtime's IO binding: a session's inputs in memory of its device, its outputs on the CPU."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_DEVICES = {"CUDAExecutionProvider": "cuda", "TensorrtExecutionProvider": "cuda"}
"""ONNX Runtime's names of devices by provider; the others take inputs from the CPU's memory."""


class BoundSession:
    """A session that is called with arrays, and runs by IO binding; several threads may call it.

    On a GPU, batches of the same shape are copied into the same memory, and the address of an input stays.

    Parameters
    ----------
    session : onnxruntime.InferenceSession
    outputs : sequence of str
        Names of the outputs to return.
    """

    def __init__(self, session: Any, outputs: Sequence[str]) -> None:
        self._session, self._outputs = session, tuple(outputs)
        provider = session.get_providers()[0]
        self._device = _DEVICES.get(provider)
        self._device_id = int(session.get_provider_options().get(provider, {}).get("device_id", 0))
        self._buffers: dict[str, Any] = {}
        self._lock = threading.Lock()  # of the buffers

    def __call__(self, feeds: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """Run the session on inputs by name."""
        binding = self._session.io_binding()
        for name in self._outputs:
            binding.bind_output(name, "cpu")
        with self._lock:
            for name, array in feeds.items():
                binding.bind_ortvalue_input(name, self._value(name, np.ascontiguousarray(array)))
            self._session.run_with_iobinding(binding)
        outputs: list[NDArray[Any]] = binding.copy_outputs_to_cpu()
        return outputs

    def _value(self, name: str, array: NDArray[Any]) -> Any:
        """Return an input in the device's memory; on the CPU, the array's own."""
        from onnxruntime import OrtValue

        if self._device is None:
            return OrtValue.ortvalue_from_numpy(array)
        value = self._buffers.get(name)
        if value is not None and value.shape() == list(array.shape):
            value.update_inplace(array)
        else:
            value = self._buffers[name] = OrtValue.ortvalue_from_numpy(array, self._device, self._device_id)
        return value
