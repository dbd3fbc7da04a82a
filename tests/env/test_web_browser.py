"""The text browser, the accessibility tree and the action grammar, on a site of three pages."""

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from environments.web.actions import GRAMMAR, TOOLS, parse_action, perform, render
from environments.web.axtree import parse
from environments.web.browser import TextBrowser
from environments.web.interface import Response

HOME = """<!doctype html><html><head><title>Home</title><script>x</script></head><body>
<!-- a comment --><nav><a href="/form">Form</a></nav><h1>Hello <b>you</b></h1>
<p>one <em>two</em></p><p hidden>secret</p>
<table><tr><th>Price</th><td>$12.50</td></tr><tr><td>By</td><td><a href="/far">Far</a></td></tr>
</table><img alt="a cat"></body></html>"""
FORM = """<html><head><title>Form</title></head><body><form action="/sent" method="post">
<input type="hidden" name="token" value="t1"><label for="n">Name</label><input id="n" name="name"
required><label for="t">Text</label><textarea id="t" name="text">old</textarea>
<select name="size" aria-label="Size"><option value="s">small</option><option value="l" selected>
large</option></select><input type="checkbox" name="gift" value="1" aria-label="Gift">
<input type="radio" name="way" value="a" aria-label="Air" checked>
<input type="radio" name="way" value="b" aria-label="Boat">
<button name="go" value="yes">Send</button><button name="go" value="no">Drop</button></form>
<form action="/form" method="get"><input type="search" name="q" aria-label="Search">
<button>Find</button></form></body></html>"""


class ThreePages:
    """A site that notes what it is sent."""

    origins = ("http://three.test",)

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, dict[str, str], str]] = []

    def handle(
        self, method: str, path: str, form: Mapping[str, str] | None = None, cookie: str = ""
    ) -> Response:
        self.seen.append((method, path, dict(form or {}), cookie))
        if path == "/sent":
            return Response(303, {"Location": "/long", "Set-Cookie": "session=c2; Path=/"})
        if path == "/loop":
            return Response(303, {"Location": "/loop"})
        if path == "/long":
            lines = "".join(f"<p>line {i}</p>" for i in range(25))
            return Response(200, {}, f"<title>Long</title><body>{lines}</body>")
        return Response(200, {}, FORM if path.startswith("/form") else HOME)


def _open(start: str = "/", viewport: int = 20) -> tuple[TextBrowser, ThreePages]:
    site = ThreePages()
    return TextBrowser(site, f"http://three.test{start}", viewport, "c1"), site


def _do(browser: TextBrowser, *actions: str) -> list[str]:
    return [perform(browser, parse_action(action)) for action in actions]


# --- the tree


def test_the_tree_has_a_line_per_element_and_none_for_what_is_hidden():
    assert [node.line for node in parse(HOME).nodes] == [
        "[1] RootWebArea 'Home'",
        "[2] link 'Form'",
        "[3] heading 'Hello you'",
        "[4] StaticText 'one two'",
        "[5] row 'Price $12.50'",
        "[6] StaticText 'By'",
        "[7] link 'Far'",
        "[8] img 'a cat'",
    ]


def test_controls_show_their_state():
    assert [node.line for node in parse(FORM).nodes[1:7]] == [
        "[2] textbox 'Name' required: True",
        "[3] textbox 'Text' required: False value: 'old'",
        "[4] combobox 'Size' value: 'large' options: 'small', 'large'",
        "[5] checkbox 'Gift' checked: False",
        "[6] radio 'Air' checked: True",
        "[7] radio 'Boat' checked: False",
    ]


def test_a_path_counts_the_elements_on_the_way_and_no_texts_or_comments():
    paths = {node.name: node.path for node in parse(HOME).nodes}
    assert paths["Form"] == (1, 0, 0)
    assert paths["a cat"] == (1, 5)


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=300))
def test_no_html_breaks_the_tree_and_ids_count_its_lines(html: str):
    nodes = parse(f"<p>{html}").nodes
    assert [node.id for node in nodes] == list(range(1, len(nodes) + 1))


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=80))
def test_a_line_stays_one_line(text: str):
    assert all("\n" not in node.line for node in parse(f"<a href='/'>{text}</a>").nodes)


# --- forms


def test_a_form_sends_what_was_typed_chosen_and_ticked_and_the_button_that_was_clicked():
    browser, site = _open("/form")
    actions = ("type [2] [Ada] [0]", "select [4] [SMALL]", "click [5]", "click [7]", "click [9]")
    assert _do(browser, *actions) == [""] * 5
    sent = {"token": "t1", "name": "Ada", "text": "old", "size": "s", "gift": "1", "way": "b"}
    assert site.seen[1] == ("POST", "/sent", {**sent, "go": "no"}, "c1")


def test_enter_in_a_textbox_presses_the_first_button():
    browser, site = _open("/form")
    _do(browser, "type [2] [Ada] [1]")
    assert (site.seen[1][1], site.seen[1][2]["go"]) == ("/sent", "yes")


def test_enter_in_a_text_of_many_lines_is_a_new_line():
    browser, site = _open("/form")
    _do(browser, "type [2] [Ada] [0]", "type [3] [a] [1]", "press [b]", "click [8]")
    assert site.seen[1][2]["text"] == "a\nb"


def test_a_form_is_not_sent_before_its_required_fields_are_filled_in():
    browser, site = _open("/form")
    assert _do(browser, "click [8]") == ["Element [2] is required: fill it in first."]
    assert len(site.seen) == 1


def test_a_search_goes_into_the_address():
    browser, _ = _open("/form")
    _do(browser, "type [10] [a b&c] [1]")
    assert browser.view().url == "http://three.test/form?q=a+b%26c"


def test_a_redirection_is_followed_and_its_cookie_kept():
    browser, site = _open("/form")
    _do(browser, "type [2] [Ada] [0]", "click [8]")
    assert (browser.view().url, site.seen[-1]) == (
        "http://three.test/long",
        ("GET", "/long", {}, "c2"),
    )


def test_redirections_in_a_circle_end():
    browser, site = _open()
    _do(browser, "goto [/loop]")
    assert len(site.seen) < 10


def test_going_to_another_page_forgets_what_was_typed():
    browser, _ = _open("/form")
    _do(browser, "type [2] [Ada] [0]")
    assert "value: 'Ada'" in render(browser.view())
    _do(browser, "goto [/]", "go_back")
    assert "value: 'Ada'" not in render(browser.view())


def test_ids_stay_while_a_page_changes_its_state():
    browser, _ = _open("/form")
    before = [(node.id, node.name) for node in browser.view().nodes]
    _do(browser, "type [2] [Ada] [0]", "click [5]", "select [4] [small]")
    assert [(node.id, node.name) for node in browser.view().nodes] == before


# --- view, history, tabs


def test_scrolling_moves_by_the_viewport_and_ends_at_the_ends():
    browser, _ = _open("/long", viewport=10)
    assert _do(browser, "scroll [up]") == ["This is the top of the page."]
    seen = [browser.view().nodes[0].id]
    for _ in range(2):
        _do(browser, "scroll [down]")
        seen.append(browser.view().nodes[0].id)
    assert (seen, _do(browser, "scroll [down]")) == ([1, 11, 21], ["This is the end of the page."])


def test_what_is_out_of_view_cannot_be_used():
    browser, _ = _open("/long", viewport=10)
    assert _do(browser, "click [12]", "hover [99]") == [
        "Element [12] is not in view: scroll [down].",
        "There is no element [99]: this page has [1] to [26].",
    ]


def test_back_and_forward_move_in_the_history_and_a_new_page_cuts_it():
    browser, _ = _open()
    _do(browser, "click [2]", "goto [/long]", "go_back", "go_back", "go_forward")
    assert browser.view().url.endswith("/form")
    _do(browser, "goto [/other]")
    assert _do(browser, "go_forward") == ["There is no page to go forward to."]


def test_tabs_have_pages_of_their_own():
    browser, _ = _open()
    _do(browser, "new_tab", "goto [http://three.test/form]", "tab_focus [0]")
    view = browser.view()
    assert (view.tabs, view.tab, view.url) == (("Home", "Form"), 0, "http://three.test/")
    assert render(view).startswith("Tab 0: Home | Tab 1: Form (current: Tab 0)\nURL: ")


def test_a_tab_can_be_closed_and_the_last_one_not():
    browser, _ = _open()
    assert _do(browser, "new_tab", "close_tab", "close_tab")[-1] == "The last tab stays open."
    assert _do(browser, "tab_focus [1]") == ["There is no tab 1: tabs are 0 to 0."]


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org/",
        "https://three.test/",
        "http://three.test@example.org/",
        "http://three.test.example.org",
        "//example.org/x",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "http://[broken",
        "http://three.test:81/",
    ],
)
def test_other_addresses_are_refused_and_nothing_is_requested(url: str):
    browser, site = _open()
    note = browser.goto(url)
    assert note
    assert (len(site.seen), browser.view().url) == (1, "http://three.test/")


def test_the_keyboard_reaches_what_the_pointer_does():
    browser, site = _open("/form")
    _do(browser, "press [Tab]", "press [A]", "press [b]", "press [Backspace]", "press [Enter]")
    assert site.seen[1][2]["name"] == "A"


# --- the grammar


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("click [12]", ("click", 12, "", True)),
        ("CLICK[12]", ("click", 12, "", True)),
        ("`click [12]`", ("click", 12, "", True)),
        ("type [7] [blue kettle] [1]", ("type", 7, "blue kettle", True)),
        ("type [7] [blue kettle]", ("type", 7, "blue kettle", True)),
        ("type [7] [a [b] c] [0]", ("type", 7, "a [b] c", False)),
        ("type [7] [1]", ("type", 7, "1", True)),
        ("type [7] [] [0]", ("type", 7, "", False)),
        ("select [3] [next day]", ("select", 3, "next day", True)),
        ("scroll [direction=down]", ("scroll", 0, "down", True)),
        ("scroll up", ("scroll", 0, "up", True)),
        ("goto [http://site.test/x?a=1]", ("goto", 0, "http://site.test/x?a=1", True)),
        ("tab_focus [1]", ("tab_focus", 1, "", True)),
        ("stop [a]b]", ("stop", 0, "a]b", True)),
        ("stop", ("stop", 0, "", True)),
        ("stop []", ("stop", 0, "", True)),
    ],
)
def test_pitfall_28_webarenas_ways_to_write_an_action_are_understood(text: str, fields: tuple):
    action = parse_action(text)
    assert (action.kind, action.id, action.text, action.enter) == fields


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("clik [3]", "did you mean 'click'"),
        ("click", "Write click as: click [id]"),
        ("click [x]", "Write click as: click [id]"),
        ("type [3]", "Write type as: type [id] [text] [1]"),
        ("stop now", "Write stop as: stop [answer]"),
        ("", "Actions: click, type"),
        ("[click] 3", "Actions: click, type"),
    ],
)
def test_a_malformed_action_gets_the_form_it_should_have(text: str, hint: str):
    assert hint in parse_action(text)


@settings(max_examples=50, deadline=None)
@given(st.text(st.characters(), max_size=200))
def test_no_text_makes_the_parser_or_the_browser_raise(text: str):
    browser, _ = _open("/form")
    for line in (text, f"type [2] [{text}] [0]", f"goto [{text}]", f"press [{text}]"):
        action = parse_action(line)
        if not isinstance(action, str) and action.kind != "stop":
            perform(browser, action)
    assert render(browser.view())


def test_pitfall_28_every_tool_fills_to_an_action_that_is_understood():
    sample = {"id": 3, "text": "a b", "enter": 0, "option": "small", "key": "Enter"}
    sample |= {"direction": "down", "url": "/x", "number": 0, "answer": "42"}
    filled = [tool.template.format(**sample) for tool in TOOLS]
    assert [parse_action(text).kind for text in filled] == [tool.name for tool in TOOLS]


def test_pitfall_28_the_instructions_name_every_tool():
    assert [tool.name for tool in TOOLS if tool.name not in GRAMMAR] == []
