"""Start an SGLang server on a machine without a GPU: for tests, never part of the product.

SGLang's text path needs none of its compiled kernels on a CPU, but imports them. What stands in for
them here says so when it is called. Its worker processes are forked: spawned ones would import it
all again, which takes more than half of the start; there is no GPU whose state a fork would break.

    python .ci/sglang_cpu.py --model-path FOLDER --port 30000 ...
"""

import importlib.machinery
import multiprocessing
import os
import runpy
import sys
import types
from typing import Any, NoReturn

import torch

DEFAULTS = {
    "SGLANG_USE_CPU_ENGINE": "1",
    "HF_HUB_OFFLINE": "1",
    "OMP_WAIT_POLICY": "passive",
    "OMP_NUM_THREADS": "1",
}
FLAGS = (
    "--device=cpu",
    "--attention-backend=torch_native",
    "--sampling-backend=pytorch",
    "--dtype=float32",
    "--max-total-tokens=16384",
    "--skip-server-warmup",
    "--sleep-on-idle",
)


class _Kernels(types.ModuleType):
    """Has every attribute, and each is a function that cannot be used."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def missing(*_: Any, **__: Any) -> NoReturn:
            raise NotImplementedError(f"sgl_kernel.{name} is compiled for GPUs; this is a CPU")

        return missing


def stand_in() -> torch.library.Library:
    """Put the stand-ins in place; the library must be kept for as long as they are needed."""
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)
    library = torch.library.Library("torchvision", "DEF")
    library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    kernels = _Kernels("sgl_kernel")
    kernels.__spec__ = importlib.machinery.ModuleSpec("sgl_kernel", loader=None)
    sys.modules["sgl_kernel"] = kernels
    return library


if __name__ == "__main__":
    library = stand_in()
    multiprocessing.set_start_method("fork")
    multiprocessing.set_start_method = lambda *_, **__: None  # the server asks for "spawn"
    given = {argument.split("=")[0] for argument in sys.argv[1:]}
    sys.argv += [flag for flag in FLAGS if flag.split("=")[0] not in given]
    runpy.run_module("sglang.launch_server", run_name="__main__")
