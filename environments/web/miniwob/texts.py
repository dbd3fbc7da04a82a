"""What pages show and what is done on them, kept in a file: words for a small tokenizer.

python -m environments.web.miniwob.texts     plays the first training tasks of every page: minutes
"""

import gzip
import json
from functools import lru_cache
from pathlib import Path

FILE = Path(__file__).with_name("texts.json.gz")
TASKS = 2  # of a page


@lru_cache(maxsize=1)
def kept() -> dict[str, dict[str, list[str]]]:
    """Return `page -> {"full": texts, "brief": texts}`."""
    return json.loads(gzip.decompress(FILE.read_bytes()))


def main() -> None:
    """Play, and write the file; the same pages give the same bytes."""
    from environments.web.miniwob.env import MiniWob
    from environments.web.miniwob.pages import used_pages

    found: dict[str, dict[str, list[str]]] = {}
    for page in used_pages():
        found[page] = {}
        for name, brief in (("full", False), ("brief", True)):
            env = MiniWob(pages=[page], brief=brief, num_train=TASKS)
            found[page][name] = list(dict.fromkeys(env.played_texts()))
            env.close()
        print(page, sum(map(len, found[page]["brief"])), flush=True)
    FILE.write_bytes(gzip.compress(json.dumps(found, sort_keys=True).encode(), mtime=0))


if __name__ == "__main__":
    main()
