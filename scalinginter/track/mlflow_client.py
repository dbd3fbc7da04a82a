"""The connection to MLflow: where, how patient, and under which names.

Measured against MLflow 3.17: with its defaults one call to a server that refuses connections takes
four minutes. Here a call is tried once and waits `_CALL_TIMEOUT_S` at most; trying again is the
writer's business, which never stands in the way of training.
"""

import contextlib
import fcntl
import logging
import os
import posixpath
import re
import shlex
from collections.abc import Generator
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit, urlunsplit

from scalinginter.errors import UserError, nearest

if TYPE_CHECKING:
    from mlflow import MlflowClient

_CALL_TIMEOUT_S = 10
_DEFAULT_FILE = "mlflow.db"
_SQLITE = "sqlite:///"
_SCHEMES = ("http", "https", "sqlite", "postgresql", "mysql", "mssql", "databricks")
_REFUSED = re.compile(r"[^/\w.\- :]")
_MAX_NAME = 250


def resolve_uri(uri: str | None) -> str:
    """Return where numbers go: `uri`, else MLFLOW_TRACKING_URI, else `mlflow.db` in this folder.

    The path of an SQLite file becomes absolute: a resume from another folder finds the same file.
    Raises UserError for an address that MLflow has no store for; nothing is asked of the network.
    """
    uri = uri or os.environ.get("MLFLOW_TRACKING_URI") or f"{_SQLITE}{_DEFAULT_FILE}"
    _check_address(uri)
    path = sqlite_path(uri)
    return uri if path is None else f"{_SQLITE}{path}"


def _check_address(uri: str) -> None:
    scheme, colon, rest = uri.partition(":")
    scheme = scheme.partition("+")[0]  # postgresql+psycopg2 names the driver too
    if not colon or scheme == "file":
        problem = "is a folder, and MLflow keeps no new runs in folders"
    elif scheme not in _SCHEMES and scheme not in _plugin_schemes():
        problem = f"has an unknown scheme {scheme!r}{nearest(scheme, _SCHEMES)}"
    elif scheme in ("http", "https") and not urlsplit(uri).netloc:
        problem = "names no host"
    elif scheme == "sqlite" and not rest.startswith("///"):
        problem = "is no SQLite address: it takes three slashes, four before a path from the root"
    else:
        return
    raise UserError(
        f"the MLflow address {without_password(uri)!r} {problem}. It comes from track.uri, --uri "
        "or MLFLOW_TRACKING_URI and looks like http://127.0.0.1:5000 or sqlite:///mlflow.db; "
        f"schemes: {', '.join(_SCHEMES)}"
    )


def _plugin_schemes() -> set[str]:
    return {point.name for point in metadata.entry_points(group="mlflow.tracking_store")}


def sqlite_path(uri: str) -> Path | None:
    """Return the absolute path of an SQLite address; None for any other address."""
    return Path(uri.removeprefix(_SQLITE)).absolute() if uri.startswith(_SQLITE) else None


def without_password(uri: str) -> str:
    """Return an address that may be written to a file or shown."""
    parts = urlsplit(uri)
    if "@" not in parts.netloc:
        return uri
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def safe_name(name: str) -> str:
    """Return a metric or parameter name that MLflow takes: no `@`, `=`, `[`, `%` and the like."""
    clean = posixpath.normpath(_REFUSED.sub("_", name).lstrip("/") or "_")
    return clean.replace("..", "_")[:_MAX_NAME]


def connect(uri: str, experiment: str) -> tuple["MlflowClient", str]:
    """Return a client and the id of the experiment, which is created when it is not there.

    Raises UserError when the experiment was deleted, MlflowException when nothing answers.
    """
    _prepare_environment()
    import mlflow
    from mlflow.exceptions import MlflowException

    logging.getLogger("alembic").setLevel(logging.WARNING)
    with _schema_lock(uri):
        mlflow.set_tracking_uri(uri)  # traces go where this points
        client = mlflow.MlflowClient(uri)
        found = client.get_experiment_by_name(experiment)
        if found is None:
            try:
                return client, client.create_experiment(experiment, _artifacts(uri, experiment))
            except MlflowException:  # another writer was faster
                found = client.get_experiment_by_name(experiment)
                if found is None:
                    raise
    if found.lifecycle_stage != "active":
        raise UserError(
            f"the MLflow experiment {experiment!r} was deleted. Give another name with "
            f"track.experiment, or restore it: mlflow experiments restore -x {found.experiment_id}"
        )
    return client, found.experiment_id


def comparison_url(uri: str, experiment_id: str, comparison: str | None = None) -> str:
    """Return a sentence that says how to see the runs side by side in MLflow.

    For a server it holds the link itself, for an SQLite file the command that serves it first.
    """
    query = "compareRunsMode=CHART&workflowType=machine_learning"
    if comparison:
        query += "&searchFilter=" + quote(f"tags.comparison = '{comparison}'")
    page = f"/#/experiments/{experiment_id}/runs?{query}"
    path = sqlite_path(uri)
    if path is None:
        return f"Charts: {without_password(uri).rstrip('/')}{page}"
    command = "mlflow ui"
    if path != Path(_DEFAULT_FILE).absolute():
        command += " --backend-store-uri " + shlex.quote(f"{_SQLITE}{path}")
    return f"Charts: run `{command}`, then open http://127.0.0.1:5000{page}"


def _prepare_environment() -> None:
    """Set what MLflow reads when it is imported."""
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", str(_CALL_TIMEOUT_S))
    # All spans of a few traces in one transaction: span by span, a trace takes five times as long.
    os.environ["MLFLOW_ENABLE_ASYNC_TRACE_LOGGING"] = "true"
    os.environ["MLFLOW_USE_BATCH_SPAN_PROCESSOR"] = "true"
    os.environ["MLFLOW_ASYNC_TRACE_LOGGING_MAX_SPAN_BATCH_SIZE"] = "512"
    os.environ["MLFLOW_ASYNC_TRACE_LOGGING_MAX_WORKERS"] = "1"
    os.environ["MLFLOW_ASYNC_TRACE_LOGGING_RETRY_TIMEOUT"] = str(_CALL_TIMEOUT_S)
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    os.environ["MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR"] = "false"
    os.environ["MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"] = "true"
    os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")
    os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")


def _artifacts(uri: str, experiment: str) -> str | None:
    """Return where files go: beside an SQLite file; None lets a server decide."""
    path = sqlite_path(uri)
    if path is None:
        return None
    return str(path.parent / "mlruns" / re.sub(r"[^\w.\-]", "_", experiment))


@contextlib.contextmanager
def _schema_lock(uri: str) -> Generator[None]:
    """Let one process at a time open an SQLite file: the first one creates the tables."""
    path = sqlite_path(uri)
    if path is None:
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f".{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
