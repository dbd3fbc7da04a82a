"""Is a WebArena task solved? Its evaluators: answer, address, contents of pages, and a model.

The rules are those of the benchmark (arXiv 2307.13854, section 3.2): every check has to hold.
"""

import html
import json
import os
import re
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

from environments.web.webarena.helpers import call
from environments.web.webarena.tasks import Config

JUDGE_TIMEOUT_S = 60
QUESTION = """\
Question: {intent}
Right answer: {reference}
Given answer: {answer}
Does the given answer mean the same as the right answer? Reply with yes or no only."""
REASON = """\
Task: {intent}
It cannot be done, because: {reference}
The reason that was reported: {answer}
Do the two reasons agree? Reply with yes or no only."""


@dataclass(frozen=True, slots=True)
class ModelJudge:
    """A model behind an OpenAI-compatible API; its key is in WA_JUDGE_KEY."""

    url: str  # https://api.example.org/v1
    model: str

    def says_yes(self, template: str, intent: str, reference: str, answer: str) -> bool:
        """Ask once, at temperature 0. Raises `OSError` if the judge cannot be reached."""
        text = template.format(intent=intent, reference=reference, answer=answer[:2000])
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": text}],
            "temperature": 0,
            "max_tokens": 8,
        }
        key = os.environ.get("WA_JUDGE_KEY", "none")
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
        address = f"{self.url.rstrip('/')}/chat/completions"
        request = urllib.request.Request(address, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=JUDGE_TIMEOUT_S) as got:
            said = json.load(got)["choices"][0]["message"]["content"]
        return said.strip().lower().startswith("yes")


def clean(text: str) -> str:
    """Return a text without outer quotes and blanks, in lower case."""
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        text = text[1:-1]
    return text.lower()


def includes(text: str, wanted: str, *, as_word: bool = False) -> bool:
    """Does the text hold what is wanted? `as_word`: a single character has to stand alone."""
    text, wanted = clean(text), clean(wanted)
    if as_word and len(wanted) == 1:
        return wanted in re.findall(r"\w+|[^\w\s]", text)
    return wanted in text


def answer_right(config: Config, answer: str, judge: ModelJudge | None) -> bool:
    """Check the answer of `stop` against `reference_answers`."""
    for kind, wanted in (config["eval"].get("reference_answers") or {}).items():
        if kind == "exact_match":
            right = clean(answer) == clean(wanted)
        elif kind == "must_include":
            right = all(includes(answer, w, as_word=len(wanted) == 1) for w in wanted)
        elif wanted == "N/A":
            note = config["eval"].get("string_note", "")
            right = clean(answer) == "n/a" or (
                judge is not None and judge.says_yes(REASON, config["intent"], note, answer)
            )
        else:
            assert judge is not None  # tasks that need one are left out without
            right = all(judge.says_yes(QUESTION, config["intent"], w, answer) for w in wanted)
        if not right:
            return False
    return True


def address_right(reference: str, got: str) -> bool:
    """Does an address hold one of the wanted ones (`a |OR| b`), with their queries?"""
    wanted = [urlsplit(url.rstrip("/")) for url in reference.split(" |OR| ")]
    here = urlsplit(got.rstrip("/"))
    if not any(w.netloc + w.path in here.netloc + here.path for w in wanted):
        return False
    queries: dict[str, set[str]] = {}
    for url in wanted:
        for key, values in parse_qs(url.query).items():
            queries.setdefault(key, set()).update(values)
    given = parse_qs(here.query)
    return all(values & set(given.get(key, ())) for key, values in queries.items())


def contents_right(target: Mapping[str, Any], page: Any, shop: str) -> bool:
    """Check one `program_html`: part of the page in front, or of another page, opened aside."""
    url: str = target["url"]
    if url.startswith("func:"):
        url = call(url, shop, page, page.url)
    if url == "last":
        return _holds(target, _part(target, page, shop))
    aside = page.context.new_page()
    try:
        aside.goto(url)
        return _holds(target, _part(target, aside, shop))
    finally:
        aside.close()


def _part(target: Mapping[str, Any], page: Any, shop: str) -> str:
    """Return the part of a page that a locator names, empty where the page has no such part."""
    from playwright.sync_api import Error

    locator: str = target["locator"].strip()
    if locator.startswith("func:"):
        return html.unescape(call(locator, shop, page, page.url))
    if not locator:
        return html.unescape(page.content())
    try:
        for action in target.get("prep_actions", ()):
            page.evaluate(f"() => {action}")
        return html.unescape(str(page.evaluate(f"() => {locator}")))
    except Error:
        return ""


def _holds(target: Mapping[str, Any], text: str) -> bool:
    wanted = target["required_contents"]
    if "exact_match" in wanted:
        return clean(text) == clean(wanted["exact_match"])
    return all(
        any(includes(text, choice) for choice in content.split(" |OR| "))
        for content in wanted["must_include"]
    )


def solved(config: Config, answer: str, page: Any, shop: str, judge: ModelJudge | None) -> bool:
    """Is the task solved by this answer, this page in front and the sites as they are now?

    Raises `OSError` and playwright's errors where a site or the judge cannot be reached.
    """
    checks, url = config["eval"], page.url
    for kind in checks["eval_types"]:
        if kind == "string_match" and not answer_right(config, answer, judge):
            return False
        if kind == "url_match" and not address_right(checks["reference_url"], url):
            return False
        if kind == "program_html":
            targets = checks["program_html"]
            if not all(contents_right(target, page, shop) for target in targets):
                return False
    return True
