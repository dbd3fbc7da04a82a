"""Servers that the run starts, on free ports of this machine, and stops."""

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from scalinginter.config.engines import LaunchConfig
from scalinginter.errors import EngineFailure, UserError

_GRACE_S = 5.0
_LOG_LINES = 15
_WARDEN = Path(__file__).with_name("warden.py")


class ServerProcess:
    """One server: its process group, its log, its port.

    Args:
        index: which of the run's servers it is.
        command: gives the command line for a port; called again for every start.
        env: added to the environment.
        folder: where `server<index>.log` and `server<index>.pid` go.
    """

    def __init__(
        self,
        index: int,
        command: Callable[[int], Sequence[str]],
        env: dict[str, str],
        folder: Path,
    ) -> None:
        self.log = folder / f"server{index}.log"
        self.url = ""
        self.starts = 0
        self.started_at = 0.0
        self._pid_file = folder / f"server{index}.pid"
        self._command, self._env = command, env
        self._warden: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        return self._warden is not None and self._warden.poll() is None

    @property
    def pid(self) -> int:
        """Of the server, which leads its process group. `FileNotFoundError`: it has ended."""
        return int(self._pid_file.read_text())

    def start(self) -> None:
        """Start it on a free port. Raises `UserError` if there is no such command."""
        self._let_go()
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.starts += 1
        self.started_at = time.monotonic()
        command = list(self._command(port))
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            log.write(f"\n$ {' '.join(command)}\n".encode())
            log.flush()
            self._warden = subprocess.Popen(
                [sys.executable, "-I", "-S", _WARDEN, self._pid_file, str(_GRACE_S), *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self._env},
                start_new_session=True,
            )

    async def stop(self) -> None:
        """End its process group and wait until that is done."""
        warden = self._let_go()
        if warden is None:
            return
        deadline = time.monotonic() + 3 * _GRACE_S
        while warden.poll() is None and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        if warden.poll() is None:
            warden.kill()
        warden.wait()

    def _let_go(self) -> subprocess.Popen[bytes] | None:
        """Close the pipe whose end tells the warden to end the server; return the warden."""
        warden, self._warden = self._warden, None
        if warden is not None and warden.stdin is not None:
            warden.stdin.close()
        return warden

    def last_words(self) -> str:
        """Return the end of the log, for error messages."""
        lines = self.log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
        return "\n".join([f"the end of {self.log}:", *(f"  {line}" for line in lines)])


def make_processes(
    config: LaunchConfig,
    folder: Path,
    model: Callable[[], tuple[Path, str]],
    dtype: str,
    seed: int,
    rank: int = 0,
) -> list[ServerProcess]:
    """Return the servers of one process of a recipe, not started yet.

    `model` gives, at every start, the folder of the present weights and their weight_version.
    Raises `UserError` if there are too few GPUs for process number `rank`.
    """
    first = rank * config.num_servers

    def command_for(index: int) -> Callable[[int], list[str]]:
        return lambda port: server_command(config, *model(), port, dtype, seed + index)

    return [
        ServerProcess(index, command_for(index), server_env(config, index), folder)
        for index in range(first, first + config.num_servers)
    ]


def server_command(
    config: LaunchConfig, model: Path, weights: str, port: int, dtype: str, seed: int
) -> list[str]:
    """Return the command line of one server."""
    command = config.command or [sys.executable, "-m", "sglang.launch_server"]
    flags: dict[str, str | int | float] = {
        "--model-path": str(model.resolve()),
        "--weight-version": weights,
        "--host": "127.0.0.1",
        "--port": port,
        "--tp-size": config.tensor_parallel,
        "--dp-size": config.data_parallel,
        "--dtype": dtype,
        "--random-seed": seed,
    }
    share = config.gpu_memory_share
    if share is not None:
        flags["--mem-fraction-static"] = share
    line = [*command, *(str(part) for pair in flags.items() for part in pair)]
    if config.deterministic:
        line.append("--enable-deterministic-inference")
    return [*line, *config.args]


def server_env(config: LaunchConfig, index: int) -> dict[str, str]:
    """Return what server `index` gets beside this process's environment: its GPUs, for one.

    Raises `UserError` if there are too few.
    """
    env = {"SGLANG_RETURN_ORIGINAL_LOGPROB": "0", "TOKENIZERS_PARALLELISM": "false"}
    gpus = config.gpus_of(index)
    if gpus is not None and len(gpus) < config.gpus_per_server:
        raise UserError(
            f"engine.launch.gpus names {len(config.gpus or [])}, too few for server {index}; every "
            f"process starts {config.num_servers} servers of {config.gpus_per_server} GPUs each"
        )
    if gpus is not None:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, gpus))
    return env | config.env


def free_port() -> int:
    """Return a port of 127.0.0.1 that nothing uses at present."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def refuse_missing_command(config: LaunchConfig) -> None:
    """Raise `UserError` if servers cannot be started here, before anything else is built."""
    import importlib.util
    import shutil

    if config.command:
        if shutil.which(config.command[0]) is None:
            raise UserError(
                f"engine.launch.command: {config.command[0]!r} is no program here; give the "
                'Python that has SGLang, e.g. [/opt/sglang/bin/python, "-m", sglang.launch_server]'
            )
    elif importlib.util.find_spec("sglang") is None:
        raise UserError(
            "engine.launch: SGLang is not installed beside this package; run "
            "pip install 'scalinginter[sglang]' on a machine with a GPU, or name another Python's "
            "server by engine.launch.command, or a running one by engine.url"
        )


def died(process: ServerProcess) -> EngineFailure:
    """What to say of a server that ended by itself."""
    return EngineFailure(f"an SGLang server ended by itself; {process.last_words()}")
