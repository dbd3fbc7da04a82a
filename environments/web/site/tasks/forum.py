"""Tasks in the forum."""

from environments.web.site.data import World
from environments.web.site.dice import Dice
from environments.web.site.judge import Change, Wanted
from environments.web.site.tasks.base import Draft, Template, Walker, mixed, quoted, the_only
from environments.web.site.words import BOARDS, OPENINGS, POSTS, REPLIES

START = "/forum"
REPLIES_PER_PAGE = 4


def _titles(world: World) -> list[str]:
    return [thread.title for thread in world.threads]


def author(world: World, dice: Dice) -> Draft:
    thread = dice.pick(world.threads)
    name = world.users[thread.user_id - 1].name

    def solve(walker: Walker) -> None:
        walker.search(thread.title)
        walker.report(name)

    return Draft(
        f"Who started the thread '{thread.title}' in the forum? Answer with the user name.",
        Wanted(answers=(name,)),
        solve,
        START,
        texts=mixed(dice, (thread.title,), _titles(world)),
    )


def score(world: World, dice: Dice) -> Draft:
    thread = dice.pick(world.threads)
    total = sum(vote.value for vote in world.votes if vote.thread_id == thread.id)

    def solve(walker: Walker) -> None:
        walker.open(thread.title)
        walker.report(str(total))

    return Draft(
        f"What is the score of the thread '{thread.title}' in the forum? Answer with a number.",
        Wanted(answers=(str(total),)),
        solve,
        START,
        texts=mixed(dice, (thread.title,), _titles(world)),
    )


def starters(world: World, dice: Dice) -> Draft:
    board = dice.pick(world.boards)
    threads = [thread for thread in world.threads if thread.board_id == board.id]
    user_id = dice.pick(threads).user_id
    count = sum(thread.user_id == user_id for thread in threads)
    name = world.users[user_id - 1].name

    def solve(walker: Walker) -> None:
        walker.click(board.name)
        walker.read_all()
        walker.stop(str(count))

    return Draft(
        f"How many threads of the forum's board {board.name} did {name} start? Answer with a "
        "number.",
        Wanted(answers=(str(count),)),
        solve,
        START,
        counts=True,
    )


def reply_author(world: World, dice: Dice) -> Draft | None:
    reply = dice.pick(world.replies)
    thread = world.threads[reply.thread_id - 1]
    replies = [r for r in world.replies if r.thread_id == thread.id]
    if sum(r.text == reply.text for r in replies) > 1:
        return None
    name = world.users[reply.user_id - 1].name

    def solve(walker: Walker) -> None:
        walker.open(thread.title)
        for _ in range(replies.index(reply) // REPLIES_PER_PAGE):
            walker.click("Next page")
        walker.report(name)

    return Draft(
        f"Who replied '{reply.text}' in the forum's thread '{thread.title}'? Answer with the user "
        "name.",
        Wanted(answers=(name,)),
        solve,
        START,
        texts=mixed(dice, (thread.title,), _titles(world)),
    )


def best(world: World, dice: Dice) -> Draft | None:
    board = dice.pick(world.boards)
    threads = [t for t in reversed(world.threads) if t.board_id == board.id]
    scores = {t.title: sum(v.value for v in world.votes if v.thread_id == t.id) for t in threads}
    top = the_only([title for title, total in scores.items() if total == max(scores.values())])
    if top is None:
        return None

    def solve(walker: Walker) -> None:
        walker.click(board.name)
        for thread in threads:
            walker.turn_to(thread.title)
            walker.click(thread.title)
            walker.look(f"Score: {scores[thread.title]}")
            if thread is not threads[-1]:
                walker.back()
        walker.stop(top)

    return Draft(
        f"Which thread of the forum's board {board.name} has the highest score? Answer with its "
        "title.",
        Wanted(answers=(top,)),
        solve,
        START,
        answers=tuple(sorted(scores)),
    )


def reply(world: World, dice: Dice) -> Draft:
    thread, text = dice.pick(world.threads), dice.pick(REPLIES)

    def solve(walker: Walker) -> None:
        walker.open(thread.title)
        walker.fill("Your reply", text)
        walker.click("Send reply")
        walker.stop()

    values = {"thread_id": thread.id, "user_id": world.me.id, "text": text}
    return Draft(
        f"Reply '{text}' to the thread '{thread.title}' in the forum.",
        Wanted(changes=(Change("insert", "replies", values),)),
        solve,
        START,
        texts=mixed(dice, (thread.title, text), [*_titles(world)[:7], *REPLIES]),
    )


def _vote(least: int, most: int) -> Template:
    """Return the template that votes on so many threads."""

    def vote(world: World, dice: Dice) -> Draft:
        up, number = dice.below(2), dice.between(least, most)
        mine = {v.thread_id for v in world.votes if v.user_id == world.me.id}
        threads = dice.some([t for t in world.threads if t.id not in mine], number)
        titles = [thread.title for thread in threads]

        def solve(walker: Walker) -> None:
            for i, title in enumerate(titles):
                if i:
                    walker.click("Forum")
                walker.open(title)
                walker.click("Upvote" if up else "Downvote")
            walker.stop()

        rows = ({"thread_id": t.id, "user_id": world.me.id, "value": 2 * up - 1} for t in threads)
        what = "thread" if number == 1 else "threads"
        return Draft(
            f"{'Upvote' if up else 'Downvote'} the {what} {quoted(titles)} in the forum.",
            Wanted(changes=tuple(Change("insert", "votes", row) for row in rows)),
            solve,
            START,
            texts=mixed(dice, tuple(titles), _titles(world)),
        )

    return vote


def post(world: World, dice: Dice) -> Draft:
    board, text = dice.pick(world.boards), dice.pick(POSTS)
    title = f"{dice.pick(OPENINGS)} {dice.pick(BOARDS[board.name])} again"

    def solve(walker: Walker) -> None:
        walker.click(board.name, "New thread")
        walker.fill("Title", title)
        walker.fill("Text", text)
        walker.click("Post thread")
        walker.stop()

    values = {"board_id": board.id, "user_id": world.me.id, "title": title, "text": text}
    return Draft(
        f"Start a thread on the forum's board {board.name} with the title '{title}' and the text "
        f"'{text}'",
        Wanted(changes=(Change("insert", "threads", values),)),
        solve,
        START,
        texts=mixed(dice, (title, text), list(POSTS), wrong=2),
    )


def edit(world: World, dice: Dice) -> Draft | None:
    thread = dice.pick([t for t in world.threads if t.user_id == world.me.id])
    text = dice.pick([text for text in POSTS if text != thread.text])

    def solve(walker: Walker) -> None:
        walker.open(thread.title)
        walker.click("Edit")
        walker.fill("Text", text)
        walker.click("Save")
        walker.stop()

    return Draft(
        f"Change the text of your thread '{thread.title}' in the forum to '{text}'",
        Wanted(changes=(Change("update", "threads", {"text": text}, thread.id),)),
        solve,
        START,
        texts=mixed(dice, (thread.title, text), [*_titles(world)[:4], *POSTS]),
    )


TEMPLATES: dict[str, Template] = {
    "forum_author": author,
    "forum_score": score,
    "forum_starters": starters,
    "forum_reply_author": reply_author,
    "forum_best": best,
    "forum_reply": reply,
    "forum_vote": _vote(1, 1),
    "forum_votes": _vote(2, 9),
    "forum_post": post,
    "forum_edit": edit,
}
