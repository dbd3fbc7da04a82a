"""Tasks in the repository host."""

from environments.web.site.data import World
from environments.web.site.dice import Dice
from environments.web.site.judge import Change, Wanted
from environments.web.site.records import Issue
from environments.web.site.tasks.base import Draft, Template, Walker, mixed, quoted
from environments.web.site.words import COMMENTS, ISSUE_TEXTS, LABELS, PARTS, PROBLEMS

START = "/code"
ASSIGNABLE = 6  # the first users


def file_value(world: World, dice: Dice) -> Draft:
    file = dice.pick([file for file in world.files if file.path.endswith(".toml")])
    project = world.projects[file.project_id - 1]
    key, _, value = dice.pick(file.text.splitlines()[-2:]).partition(" = ")

    def solve(walker: Walker) -> None:
        walker.click(project.name, "Files", file.path)
        walker.report(value)

    goal = f"What is '{key}' set to in the file {file.path} of the project {project.name}?"
    return Draft(goal, Wanted(answers=(value,)), solve, START)


def count(world: World, dice: Dice) -> Draft:
    project, label = dice.pick(world.projects), dice.pick(LABELS)
    issues = [i for i in world.issues if i.project_id == project.id and i.state == "open"]
    total = sum(label in world.labels_of(issue.id) for issue in issues)

    def solve(walker: Walker) -> None:
        walker.click(project.name, "Issues")
        walker.choose("Label", label)
        walker.click("Filter")
        walker.read_all()
        walker.stop(str(total))

    return Draft(
        f"How many open issues with the label {label} has the project {project.name}? Answer with "
        "a number.",
        Wanted(answers=(str(total),)),
        solve,
        START,
        counts=True,
    )


def merge_author(world: World, dice: Dice) -> Draft:
    merge = dice.pick(world.merges)
    project, name = world.projects[merge.project_id - 1], world.users[merge.author_id - 1].name

    def solve(walker: Walker) -> None:
        walker.click(project.name, "Merge requests")
        walker.report(name)

    return Draft(
        f"Who opened the merge request '{merge.title}' of the project {project.name}? Answer with "
        "the user name.",
        Wanted(answers=(name,)),
        solve,
        START,
    )


def issue_author(world: World, dice: Dice) -> Draft:
    issue = dice.pick(world.issues)
    project, name = world.projects[issue.project_id - 1], world.users[issue.author_id - 1].name

    def solve(walker: Walker) -> None:
        walker.click(project.name, "Issues")
        if issue.state == "closed":
            walker.choose("State", "closed")
            walker.click("Filter")
        walker.turn_to(issue.title)
        walker.click(issue.title)
        walker.report(name)

    return Draft(
        f"Who is the author of the {issue.state} issue '{issue.title}' of the project "
        f"{project.name}? Answer with the user name.",
        Wanted(answers=(name,)),
        solve,
        START,
    )


def assignee_hunt(world: World, dice: Dice) -> Draft:
    """Every open issue has to be opened: the list does not show who has it."""
    project, person = dice.pick(world.projects), dice.pick(world.users[:ASSIGNABLE])
    issues = [i for i in world.issues if i.project_id == project.id and i.state == "open"]
    total = sum(issue.assignee_id == person.id for issue in issues)
    assignees = {0: "nobody", **{user.id: user.name for user in world.users[:ASSIGNABLE]}}

    def solve(walker: Walker) -> None:
        walker.click(project.name, "Issues")
        for issue in issues:
            walker.turn_to(issue.title)
            walker.click(issue.title)
            walker.look(assignees[issue.assignee_id])
            if issue is not issues[-1]:
                walker.back()
        walker.stop(str(total))

    return Draft(
        f"How many open issues of the project {project.name} are assigned to {person.name}? Answer "
        "with a number.",
        Wanted(answers=(str(total),)),
        solve,
        START,
        counts=True,
    )


def new_issue(world: World, dice: Dice) -> Draft:
    project, label = dice.pick(world.projects), dice.pick(("none", *LABELS))
    title, text = f"{dice.pick(PROBLEMS)} in the new {dice.pick(PARTS)}", dice.pick(ISSUE_TEXTS)

    def solve(walker: Walker) -> None:
        walker.click(project.name, "Issues", "New issue")
        walker.fill("Title", title)
        walker.fill("Description", text)
        if label != "none":
            walker.choose("Label", label)
        walker.click("Create issue")
        walker.stop()

    values = {"project_id": project.id, "title": title, "text": text, "author_id": world.me.id}
    changes = [Change("insert", "issues", {**values, "state": "open", "assignee_id": 0})]
    if label != "none":
        changes.append(Change("insert", "issue_labels", {"label": label}))
    marked = f"with the label {label}" if label != "none" else "without a label"
    return Draft(
        f"Create an issue in the project {project.name} {marked}: title '{title}', description "
        f"'{text}'",
        Wanted(changes=tuple(changes)),
        solve,
        START,
        texts=mixed(dice, (title, text), list(ISSUE_TEXTS), wrong=2),
    )


def comment_close(world: World, dice: Dice) -> Draft:
    issue = dice.pick([issue for issue in world.issues if issue.state == "open"])
    project, text = world.projects[issue.project_id - 1], dice.pick(COMMENTS)

    def solve(walker: Walker) -> None:
        walker.click(project.name, "Issues")
        walker.turn_to(issue.title)
        walker.click(issue.title)
        walker.fill("Comment", text)
        walker.click("Send comment", "Close issue")
        walker.stop()

    values = {"issue_id": issue.id, "user_id": world.me.id, "text": text}
    return Draft(
        f"Comment '{text}' on the issue '{issue.title}' of the project {project.name}, and close "
        "it.",
        Wanted(
            changes=(
                Change("insert", "comments", values),
                Change("update", "issues", {"state": "closed"}, issue.id),
            )
        ),
        solve,
        START,
        texts=mixed(dice, (text,), list(COMMENTS)),
    )


def _triage(least: int, most: int) -> Template:
    """Return the template that labels and assigns so many issues of one project."""

    def triage(world: World, dice: Dice) -> Draft:
        project = dice.pick(world.projects)
        here = [i for i in world.issues if i.project_id == project.id and i.state == "open"]
        issues = dice.some(here, dice.between(least, most))
        person = dice.pick(world.users[1:ASSIGNABLE])
        jobs = [(issue, _new_label(world, dice, issue)) for issue in issues]

        def solve(walker: Walker) -> None:
            walker.click(project.name, "Issues")
            for i, (issue, label) in enumerate(jobs):
                if i:
                    walker.click("All issues")
                walker.turn_to(issue.title)
                walker.click(issue.title)
                if label != LABELS[0]:
                    walker.choose("Label", label)
                walker.click("Toggle label")
                if issue.assignee_id != person.id:
                    walker.choose("Assignee", person.name)
                    walker.click("Assign")
            walker.stop()

        changes = [
            Change("insert", "issue_labels", {"issue_id": issue.id, "label": label})
            for issue, label in jobs
        ]
        changes += [
            Change("update", "issues", {"assignee_id": person.id}, issue.id)
            for issue, _ in jobs
            if issue.assignee_id != person.id
        ]
        todo = "; ".join(f"add the label {label} to '{issue.title}'" for issue, label in jobs)
        return Draft(
            f"In the project {project.name}: {todo}. Assign all of these issues to {person.name}.",
            Wanted(changes=tuple(changes)),
            solve,
            START,
        )

    return triage


def _new_label(world: World, dice: Dice, issue: Issue) -> str:
    return dice.pick([label for label in LABELS if label not in world.labels_of(issue.id)])


def close_all(world: World, dice: Dice) -> Draft | None:
    project, label = dice.pick(world.projects), dice.pick(LABELS)
    issues = [
        issue
        for issue in world.issues
        if issue.project_id == project.id
        and issue.state == "open"
        and label in world.labels_of(issue.id)
    ]
    if not issues:
        return None

    def solve(walker: Walker) -> None:
        walker.click(project.name, "Issues")
        for i, issue in enumerate(issues):
            if i:
                walker.click("All issues")
            walker.choose("Label", label)
            walker.click("Filter", issue.title, "Close issue")
        walker.stop()

    closed = tuple(Change("update", "issues", {"state": "closed"}, issue.id) for issue in issues)
    goal = f"Close all open issues with the label {label} in the project {project.name}."
    return Draft(goal, Wanted(changes=closed), solve, START)


def merge(world: World, dice: Dice) -> Draft | None:
    project = dice.pick(world.projects)
    here = [m for m in world.merges if m.project_id == project.id and m.state == "open"]
    if not here:
        return None
    merges = dice.some(here, dice.between(1, 3))
    titles = [merge.title for merge in merges]

    def solve(walker: Walker) -> None:
        for i, title in enumerate(titles):
            if i:
                walker.click("Code")
            walker.click(project.name, "Merge requests", title, "Merge")
        walker.stop()

    changes = tuple(Change("update", "merges", {"state": "merged"}, m.id) for m in merges)
    what = "request" if len(merges) == 1 else "requests"
    goal = f"Merge the merge {what} {quoted(titles)} of the project {project.name}."
    return Draft(goal, Wanted(changes=changes), solve, START)


TEMPLATES: dict[str, Template] = {
    "code_file": file_value,
    "code_count": count,
    "code_merge_author": merge_author,
    "code_issue_author": issue_author,
    "code_assignee": assignee_hunt,
    "code_new": new_issue,
    "code_comment": comment_close,
    "code_triage": _triage(1, 3),
    "code_triage_many": _triage(4, 8),
    "code_close_all": close_all,
    "code_merge": merge,
}
