"""The site as a callable and behind HTTP: accounts, hostile text, the judge."""

import http.client
import urllib.request

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from environments.web.actions import parse_action, perform
from environments.web.axtree import parse
from environments.web.browser import TextBrowser
from environments.web.site.data import make_world
from environments.web.site.database import differences
from environments.web.site.judge import Change, Wanted, answers_right, changes_right
from environments.web.site.server import serve
from environments.web.site.site import ORIGIN, WebSite

INJECTIONS = [
    "'; DROP TABLE users; --",
    '" OR 1=1 --',
    "<script>alert(1)</script>",
    '"><a href="/shop">fake</a>',
    "</textarea></form><h1>owned</h1>",
    "{user.password} %s ${x}",
    "\x00\u202e\ufffe",
    "&lt;b&gt;",
    "half \ud83d",
]


def _get(site: WebSite, path: str, cookie: str = "") -> str:
    return site.handle("GET", path, None, cookie).html


def _lines(html: str) -> list[str]:
    return [node.line for node in parse(html).nodes]


@pytest.mark.parametrize("text", INJECTIONS)
def test_text_of_the_model_is_data_in_the_database_and_text_on_the_page(text: str):
    site = WebSite(1)
    cookie = site.login()
    plain = _lines(_get(site, "/forum/thread/5", cookie))
    site.handle("POST", "/forum/reply/5", {"text": text}, cookie)
    kept = text.replace("\0", "").replace("\ud83d", "?").strip()
    (change,) = differences(site.db, 1)
    last = site.handle("POST", "/forum/reply/5", {"text": " "}, cookie).headers["Location"]
    roles = [line.split()[1] for line in _lines(_get(site, last, cookie))]
    assert (change.table, change.new["text"]) == ("replies", kept)
    assert roles.count("heading") == sum(" heading " in line for line in plain)
    assert "<script>" not in _get(site, last, cookie)


@pytest.mark.parametrize("text", INJECTIONS)
@pytest.mark.parametrize("path", ["/shop/search", "/forum/search", "/wiki/search"])
def test_a_search_for_hostile_text_finds_nothing_and_breaks_nothing(path: str, text: str):
    site = WebSite(1)
    site_browser = TextBrowser(site, f"{ORIGIN}{path.rpartition('/')[0]}")
    box = next(n for n in site_browser.view().nodes if n.role == "searchbox")
    perform(site_browser, parse_action(f"type [{box.id}] [{text}] [1]"))
    assert any("found" in node.name for node in site_browser.view().nodes)
    assert differences(site.db, 1) == []


def test_percent_and_underscore_are_searched_for_as_they_are():
    site = WebSite(1)
    assert "No products found." in _get(site, "/shop/search?q=%25")
    assert "No products found." in _get(site, "/shop/search?q=_")


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=60), st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=4))
def test_no_request_makes_the_site_raise(path: str, form: dict[str, str]):
    site = WebSite(1)
    cookie = site.login()
    for start in ("/", "/shop/", "/code/", "/shop/category/1?page="):
        site.handle("GET", start + path, None, cookie)
        site.handle("POST", start + path, form, cookie)
    assert site.handle("GET", "/shop").status == 200


def _paths(site: WebSite, cookie: str) -> list[str]:
    """Every page that can be reached by links."""
    found, left = {"/": None}, ["/"]
    while left:
        for node in parse(_get(site, left.pop(), cookie)).nodes:
            if node.href and node.href not in found and node.href != "/logout":
                found[node.href] = None
                left.append(node.href)
    return list(found)


@pytest.mark.slow
def test_every_link_leads_to_a_page_and_reading_changes_nothing():
    site = WebSite(2)
    cookie = site.login()
    paths = _paths(site, cookie)
    broken = [p for p in paths if site.handle("GET", p, None, cookie).status != 200]
    assert (broken, len(paths) > 500, differences(site.db, 2)) == ([], True, [])


def test_changes_need_a_login():
    site = WebSite(1)
    response = site.handle("POST", "/forum/reply/5", {"text": "hello"})
    assert response.headers["Location"].startswith("/login")
    assert differences(site.db, 1) == []


def test_a_login_leads_back_and_never_to_another_site():
    site = WebSite(1)
    me = make_world(1).me
    good = {"name": me.name, "password": me.password}
    answers = [
        site.handle("POST", "/login", {**good, "next": back}).headers["Location"]
        for back in ("/shop/cart", "//example.org", "http://example.org", "/\\example.org")
    ]
    assert answers == ["/shop/cart", "/", "/", "/"]


@pytest.mark.parametrize("password", ["", "wrong", "' OR '1'='1"])
def test_a_wrong_password_opens_nothing(password: str):
    site = WebSite(1)
    form = {"name": make_world(1).me.name, "password": password}
    response = site.handle("POST", "/login", form)
    assert "Set-Cookie" not in response.headers
    assert "Wrong user name" in _get(site, response.headers["Location"])


def test_after_logging_out_the_cookie_is_worth_nothing():
    site = WebSite(1)
    cookie = site.login()
    site.handle("GET", "/logout", None, cookie)
    assert site.handle("GET", "/shop/cart", None, cookie).status == 303


def test_nobody_sees_or_changes_what_belongs_to_another():
    site = WebSite(1)
    world, cookie = make_world(1), site.login()
    foreign = next(order for order in world.orders if order.user_id != world.me.id)
    thread = next(thread for thread in world.threads if thread.user_id != world.me.id)
    assert site.handle("GET", f"/shop/order/{foreign.id}", None, cookie).status == 404
    assert site.handle("POST", f"/shop/cancel/{foreign.id}", {}, cookie).status == 404
    assert site.handle("POST", f"/forum/edit/{thread.id}", {"text": "x"}, cookie).status == 404
    assert differences(site.db, 1) == []


def test_two_sites_of_one_world_share_nothing():
    one, other = WebSite(1), WebSite(1)
    one.handle("POST", "/forum/reply/5", {"text": "hello"}, one.login())
    assert (len(differences(one.db, 1)), differences(other.db, 1)) == (1, [])


# --- over HTTP


def test_http_serves_the_same_pages_as_the_callable():
    site = WebSite(1)
    with serve(site) as origin, urllib.request.urlopen(f"{origin}/shop/product/3") as answer:
        assert answer.read().decode() == _get(site, "/shop/product/3")


def _post(host: str, path: str, body: str, cookie: str = "") -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(host, timeout=60)
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Cookie": cookie}
    connection.request("POST", path, body, headers)
    response = connection.getresponse()
    response.read()
    connection.close()
    return response


def test_http_logs_in_by_cookie_and_changes_the_database():
    site, me = WebSite(1), make_world(1).me
    with serve(site) as origin:
        host = origin.removeprefix("http://")
        login = _post(host, "/login", f"name={me.name}&password={me.password}&next=/forum")
        cookie = login.headers["Set-Cookie"].partition(";")[0]
        _post(host, "/forum/reply/5", "text=over+the+wire", cookie)
    assert (login.status, differences(site.db, 1)[0].new["text"]) == (303, "over the wire")


def test_http_refuses_a_body_that_is_too_large():
    with serve(WebSite(1)) as origin:
        host = origin.removeprefix("http://")
        connection = http.client.HTTPConnection(host, timeout=60)
        connection.putrequest("POST", "/login")
        connection.putheader("Content-Length", str(1 << 30))
        connection.endheaders()
        assert connection.getresponse().status == 413
        connection.close()


# --- the judge


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("$12.50", True),
        ("12.50", True),
        (" the $12.50. ", True),
        ("$12.5", False),
        ("$12.50 or $13.00", False),
        ("", False),
    ],
)
def test_an_answer_is_compared_after_normalising(answer: str, right: bool):
    assert answers_right(answer, Wanted(answers=("$12.50",))) is right


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("Ada and Basil", True),
        ("basil, ada", True),
        ("ada", False),
        ("adam, basil", False),
        ("ada basil " + "and somebody else " * 9, False),
    ],
)
def test_all_pieces_have_to_be_in_a_short_answer(answer: str, right: bool):
    assert answers_right(answer, Wanted(pieces=("ada", "basil"))) is right


def _differences(*paths_and_forms: tuple[str, dict[str, str]]) -> list:
    site = WebSite(1)
    cookie = site.login()
    for path, form in paths_and_forms:
        site.handle("POST", path, form, cookie)
    return differences(site.db, 1)


REPLY = Change("insert", "replies", {"thread_id": 5, "user_id": 1, "text": "Hello there"})


@pytest.mark.parametrize(
    ("posts", "right"),
    [
        ([("/forum/reply/5", {"text": "hello  there"})], True),
        ([("/forum/reply/5", {"text": "hello"})], False),
        ([("/forum/reply/6", {"text": "hello there"})], False),
        ([], False),
        ([("/forum/reply/5", {"text": "hello there"})] * 2, False),
        ([("/forum/reply/5", {"text": "hello there"}), ("/shop/wish/3", {})], False),
    ],
)
def test_the_right_row_and_nothing_else_has_to_change(posts: list, right: bool):
    assert changes_right(_differences(*posts), [REPLY]) is right


def test_an_update_keeps_the_other_columns():
    wanted = [Change("update", "users", {"city": "Kelso"}, 1)]
    me = make_world(1).me
    form = {"email": me.email, "street": me.street, "city": "Kelso"}
    assert changes_right(_differences(("/shop/account", form)), wanted)
    assert not changes_right(_differences(("/shop/account", {**form, "email": "x@y"})), wanted)


def test_a_row_that_goes_is_a_change():
    label = make_world(1).issue_labels[0]
    issue = make_world(1).issues[label.issue_id - 1]
    project = make_world(1).projects[issue.project_id - 1]
    path = f"/code/{project.name}/issue/{issue.number}/label"
    found = _differences((path, {"label": label.label}))
    assert changes_right(found, [Change("delete", "issue_labels", id=label.id)])
