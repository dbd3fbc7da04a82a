"""The functions that WebArena's task files name in `func:...`; they are looked up, never evaluated.

They ask the sites: Magento's REST API for orders and reviews, the page for a GitLab role.
"""

import json
import re
import urllib.request
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, urlsplit

FUNCTION = re.compile(r"func:(\w+)\((.*)\)")
TIMEOUT_S = 20
ADMIN = {"username": "admin", "password": "admin1234"}  # of WebArena's published shop image

_ROLE = """(name) => {
  const accounts = [...document.querySelectorAll(
    "td[data-label='Account'] span.gl-avatar-labeled-sublabel")];
  const row = accounts.findIndex((e) => e.outerText === "@" + name);
  return document.querySelectorAll("td.col-max-role span")[row]?.outerText ?? "";
}"""


def _ask(url: str, token: str = "", body: Any = None) -> Any:
    headers = {"Content-Type": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(
        urllib.request.Request(url, data, headers), timeout=TIMEOUT_S
    ) as got:
        return json.load(got)


def _magento(shop: str, path: str) -> Any:
    token = _ask(f"{shop}/rest/default/V1/integration/admin/token", body=ADMIN)
    return _ask(f"{shop}/rest/V1/{path}", token)


def _latest_order_url(shop: str, page: Any) -> str:
    order = "searchCriteria[sortOrders][0]"
    query = f"{order}[field]=created_at&{order}[direction]=DESC&searchCriteria[pageSize]=1"
    number = int(_magento(shop, f"orders?{query}")["items"][0]["increment_id"])
    return f"{shop}/sales/order/view/order_id/{number}/"


def _review(shop: str, sku: str) -> dict[str, Any]:
    reviews = _magento(shop, f"products/{quote(sku)}/reviews")
    return reviews[-1] if reviews else {"nickname": "", "ratings": [{"percent": ""}]}


def _review_author(shop: str, page: Any, sku: str) -> str:
    return str(_review(shop, sku)["nickname"])


def _review_rating(shop: str, page: Any, sku: str) -> str:
    return str(_review(shop, sku)["ratings"][0]["percent"])


def _post_url(shop: str, page: Any, url: str) -> str:
    """Return the address of the post that an address of the forum lies under."""
    parts = urlsplit(url)
    steps = parts.path.split("/")
    if len(steps) < 4 or steps[1] != "f":
        return url
    return f"{parts.scheme}://{parts.netloc}/f/{steps[2]}/{steps[3]}/"


def _member_role(shop: str, page: Any, name: str) -> str:
    return page.evaluate(_ROLE, name)


HELPERS: dict[str, Callable[..., str]] = {
    "shopping_get_latest_order_url": _latest_order_url,
    "shopping_get_sku_latest_review_author": _review_author,
    "shopping_get_sku_latest_review_rating": _review_rating,
    "reddit_get_post_url": _post_url,
    "gitlab_get_project_memeber_role": _member_role,  # spelt as the task files spell it
}


def call(text: str, shop: str, page: Any, last_url: str) -> str:
    """Call the function of `func:name('argument')`; `__last_url__` and `__page__` stand for the
    page in front."""
    match = FUNCTION.fullmatch(text)
    assert match is not None, text  # checked when the tasks were read
    arguments = [part.strip().strip("'\"") for part in match[2].split(",") if part.strip()]
    given = [last_url if a == "__last_url__" else a for a in arguments if a != "__page__"]
    return HELPERS[match[1]](shop, page, *given)
