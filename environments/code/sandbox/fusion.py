"""A SandboxFusion server (github.com/bytedance/SandboxFusion) behind the interface of ours.

    POST /run_code {"code", "language", "run_timeout", "files": {name: base64}}
    -> {"status": "Success" | "Failed" | "SandboxError", "message", "run_result":
        {"status": "Finished" | "Error" | "TimeLimitExceeded", "return_code", "stdout", "stderr"}}

The server forgets everything between two calls: a session runs its earlier code again each time,
without its output. So a session costs more with every call, and code whose effect is not the same
twice (the clock, chance) gives other values than in the local sandbox.
"""

import base64
import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

from environments.code.sandbox.base import Limits, Result, Sandbox, Session
from environments.code.sandbox.process import driver_source
from scalinginter.errors import EnvironmentFailure, UserError

SLACK_S = 20.0  # for the server's queue, beyond the program's own limit
MAX_ANSWER_BYTES = 8 * 2**20

_REPLAY = """
earlier, last = json.loads({given!r})
names, kept = {{"__name__": "__main__"}}, [os.dup(1), os.dup(2)]
for number in (1, 2):
    os.dup2(os.open(os.devnull, os.O_WRONLY), number)
for code in earlier:
    run(code, names)
sys.stdout.flush()
for number, copy in zip((1, 2), kept):
    os.dup2(copy, number)
run(last, names)
"""


class FusionSandbox(Sandbox):
    """Runs code on a server. Memory, disk and network are the server's to limit.

    Args:
        url: its address, such as `http://localhost:8080`.
        limits: the wall time is asked of the server; output is cut here.

    Raises `UserError` for an address that is not HTTP. A server that cannot be reached, fails or
    does not answer in time raises `EnvironmentFailure` at the call.
    """

    level = "fusion"

    def __init__(self, url: str, limits: Limits | None = None) -> None:
        if not url.startswith(("http://", "https://")):
            raise UserError(f"sandbox_url must start with http:// or https://, got {url!r}")
        self.url = url.rstrip("/")
        self.limits = limits or Limits()

    def describe(self) -> str:
        return f"sandbox level fusion: {self.url} decides what holds; wall time and output are cut"

    def run_python(self, code: str, files: Mapping[str, str] | None = None) -> Result:
        encoded = {n: base64.b64encode(c.encode()).decode() for n, c in (files or {}).items()}
        answer = self._post(
            {
                "code": code,
                "language": "python",
                "run_timeout": self.limits.wall_s,
                "files": encoded,
            }
        )
        return self._result(answer)

    def _post(self, request: dict[str, Any]) -> dict[str, Any]:
        call = urllib.request.Request(
            f"{self.url}/run_code",
            json.dumps(request).encode(),
            {"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(call, timeout=self.limits.wall_s + SLACK_S) as response:
                answer = json.loads(response.read(MAX_ANSWER_BYTES))
        except TimeoutError as error:
            raise EnvironmentFailure(
                f"SandboxFusion at {self.url} did not answer", timeout=True
            ) from error
        except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as error:
            raise EnvironmentFailure(f"SandboxFusion at {self.url} failed: {error}") from error
        if not isinstance(answer, dict) or answer.get("status") not in ("Success", "Failed"):
            raise EnvironmentFailure(
                f"SandboxFusion at {self.url} failed: {json.dumps(answer)[:300]}"
            )
        return answer

    def _result(self, answer: dict[str, Any]) -> Result:
        run = answer.get("run_result") or {}
        text = f"{run.get('stdout') or ''}{run.get('stderr') or ''}"
        cut = text.encode()[: self.limits.output_bytes].decode(errors="ignore")
        if run.get("status") == "TimeLimitExceeded":
            return Result("time", cut, None)
        if cut != text:
            return Result("output", cut, None)
        code = run.get("return_code")
        return Result("ok" if code == 0 else "error", cut, code)

    def session(self) -> Session:
        return FusionSession(self)


class FusionSession(Session):
    """Keeps the code of the calls that ended well, and runs it again before the next one."""

    def __init__(self, sandbox: FusionSandbox) -> None:
        self._sandbox = sandbox
        self._earlier: list[str] = []

    def run(self, code: str) -> Result:
        functions = driver_source().rpartition('\nif __name__ == "__main__":')[0]
        replay = _REPLAY.format(given=json.dumps([self._earlier, code]))
        result = self._sandbox.run_python(functions + replay)
        if result.ok:
            self._earlier.append(code)
        else:
            self._earlier = []
        return result

    def close(self) -> None:
        self._earlier = []
