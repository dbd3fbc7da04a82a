"""The card of an environment, the README.md of its folder, says what a user has to know."""

import re
from pathlib import Path

import pytest

from scalinginter.env.registry import BUILTIN

ROOT = Path(__file__).parents[2]
ADAPTERS = ("agentgym", "agentrl", "remote", "webarena")  # what they cost is up to the server
FOLDERS = {
    env_id: ROOT.joinpath(*module.partition(":")[0].split(".")[:-1])
    for env_id, module in BUILTIN.items()
    if module.startswith("environments.")
}
MEASURED = sorted(set(FOLDERS) - set(ADAPTERS))


def card(env_id: str) -> str:
    return (FOLDERS[env_id] / "README.md").read_text()


@pytest.mark.parametrize("env_id", sorted(FOLDERS))
def test_a_card_names_the_licence(env_id: str):
    assert re.search(r"^\| (source, )?licence \| \S|^## Source and licence", card(env_id), re.M)


@pytest.mark.parametrize("env_id", sorted(FOLDERS))
def test_a_card_names_the_actions(env_id: str):
    assert re.search(r"^\| `?actions?\b|^Actions: ", card(env_id), re.M)


@pytest.mark.parametrize("env_id", sorted({*MEASURED} - {"web_site_chromium"}))  # as web_site
def test_a_card_shows_an_episode(env_id: str):
    assert re.search(r"^```\n[^`]*^> ", card(env_id), re.M)


@pytest.mark.parametrize("env_id", sorted({*MEASURED} - {"browsergym"}))  # it has no expert
def test_a_card_has_measured_lengths_and_the_command_that_prints_them(env_id: str):
    text = card(env_id)
    assert re.search(rf"scalinginter describe-env {env_id}\b", text)
    assert re.search(r"^\| split \| tasks \|", text, re.M)
    assert re.search(r"^\| test \| \d+ \|", text, re.M)


@pytest.mark.parametrize("row", ["reset", "step", "memory", "random actions"])
@pytest.mark.parametrize("env_id", MEASURED)
def test_a_card_has_measured_costs_and_a_random_policy(env_id: str, row: str):
    assert re.search(rf"^\| {row} \| \S", card(env_id), re.M)
