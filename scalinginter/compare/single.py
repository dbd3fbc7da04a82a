"""One run in several processes: started warm and looked after as the runs of a comparison are."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scalinginter.compare.jobs import Events, Job, run_jobs
from scalinginter.compare.run import PRELOAD
from scalinginter.errors import LostProcessError
from scalinginter.track.run_folder import correct_status


def run_in_processes(
    function: str, arguments: Mapping[str, Any], run_dir: Path, processes: int
) -> int:
    """Call `function` ("module:name") in `processes` processes that find each other.

    Returns 0, 130 when a signal stopped them (the second one kills them), else the exit code of the
    one that failed first; of one that was killed this process tells by which signal.
    """
    codes: list[int] = []
    events = Events(
        started=lambda job: None,
        ended=lambda job, code: codes.append(code),
        tick=lambda running: None,
        stopping=lambda running: None,
    )
    job = Job(run_dir.name, arguments, None, processes)
    undisturbed = run_jobs([job], function, 1, PRELOAD, events)
    code = codes[0] if codes else 130
    if not undisturbed and code != 0:
        correct_status(run_dir, "stopped")
        return 130
    if code >= 0:
        return 1 if code == LostProcessError.exit_code else code
    correct_status(run_dir, "failed")
    print(
        f"error: one of the {processes} processes was killed by signal {-code}; the others ended. "
        "Signal 9 without a kill of your own means that memory ran out",
        file=sys.stderr,
    )
    return 1
