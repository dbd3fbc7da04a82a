"""`envs` tells what there is from the source alone."""

import subprocess
import sys

import pytest

from scalinginter.cli.main import main
from scalinginter.env import listing
from scalinginter.env.listing import list_environments
from scalinginter.env.registry import environment_ids


def test_every_environment_is_listed_once_with_a_description():
    found = {item.env_id: item.description for item in list_environments()}
    assert sorted(found) == environment_ids()
    assert all(found.values())


def test_the_family_is_the_folder():
    families = {item.env_id: item.family for item in list_environments()}
    assert (families["textcraft"], families["toy_corridor"]) == ("game", "toy")


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """Return a function that registers an environment of another package."""

    def register(text, location="their_game:Game"):
        (tmp_path / "their_game.py").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setattr(listing, "environment_locations", lambda: {"theirs": location})

    return register


def test_a_missing_package_is_named_with_the_extra_that_brings_it(plugin, monkeypatch, capsys):
    plugin('import no_such_game\nclass Game:\n    """Play it."""\n')
    monkeypatch.setattr(
        listing.metadata, "requires", lambda name: ['no-such-game>=1; extra == "game"']
    )
    assert main(["envs"]) == 0
    assert capsys.readouterr().out == (
        "plugin\n"
        "  theirs  Play it. [not installed: no_such_game: pip install\n"
        "          'scalinginter[game]']\n"
    )


def test_an_environment_is_described_without_being_imported(plugin, capsys):
    plugin('raise SystemExit("imported")\nclass Game:\n    """Play it.\n\n    More."""\n')
    assert main(["envs"]) == 0
    assert capsys.readouterr().out == "plugin\n  theirs  Play it.\n"


def test_a_plugin_whose_package_is_gone_is_told(plugin, capsys):
    plugin("", location="no_such_package.game:Game")
    assert main(["envs"]) == 0
    assert "cannot be found" in capsys.readouterr().out


def test_no_environment_package_is_imported_for_the_list():
    code = (
        "import sys\n"
        "from scalinginter.cli.main import main\n"
        "main(['envs'])\n"
        "heavy = {'torch', 'textworld', 'minigrid', 'mlflow', 'tantivy', 'playwright', 'numpy'}\n"
        "print('HEAVY', sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "HEAVY []" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
