from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalinginter.errors import UserError
from scalinginter.track.mlflow_client import (
    comparison_url,
    resolve_uri,
    safe_name,
    without_password,
)


@settings(deadline=None)  # MLflow is imported within
@given(st.text(min_size=1, max_size=300))
def test_mlflow_takes_every_mapped_name(name: str) -> None:
    from mlflow.utils.validation import _validate_metric_name

    _validate_metric_name(safe_name(name))


def test_a_good_name_stays_as_it_is() -> None:
    assert safe_name("reward/by_length/17") == "reward/by_length/17"


def test_an_argument_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://environment:1")
    assert resolve_uri("http://argument:2") == "http://argument:2"
    assert resolve_uri(None) == "http://environment:1"


def test_the_default_is_a_file_in_the_current_folder_by_its_whole_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    assert resolve_uri(None) == f"sqlite:///{tmp_path}/mlflow.db"


@pytest.mark.parametrize(
    ("uri", "problem"),
    [
        ("htp://host:5000", r"unknown scheme 'htp' \(did you mean 'http'\?\)"),
        ("localhost:5000", "unknown scheme 'localhost'"),
        ("http:/host", "names no host"),
        ("sqlite://mlflow.db", "takes three slashes"),
        ("mlruns", "is a folder"),
        ("file:///tmp/mlruns", "is a folder"),
    ],
)
def test_an_address_that_mlflow_has_no_store_for_is_refused(uri: str, problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        resolve_uri(uri)


def test_the_refusal_of_an_address_shows_no_password() -> None:
    with pytest.raises(UserError) as caught:
        resolve_uri("ftp://me:secret@host")
    assert "secret" not in str(caught.value)


def test_a_driver_in_the_address_is_accepted() -> None:
    assert resolve_uri("postgresql+psycopg2://host/db") == "postgresql+psycopg2://host/db"


def test_a_server_gets_a_link_without_its_password() -> None:
    assert comparison_url("http://me:secret@host:80/", "7") == (
        "Charts: http://host:80/#/experiments/7/runs"
        "?compareRunsMode=CHART&workflowType=machine_learning"
    )


def test_the_file_in_the_current_folder_needs_no_address(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "run `mlflow ui`, then" in comparison_url(f"sqlite:///{tmp_path}/mlflow.db", "1")


def test_another_file_is_named_in_the_command(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/my runs.db"
    assert f"mlflow ui --backend-store-uri '{uri}'" in comparison_url(uri, "1")


def test_an_address_without_a_password_is_left_alone() -> None:
    assert without_password("sqlite:////a/b@c.db") == "sqlite:////a/b@c.db"
