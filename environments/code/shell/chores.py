"""The chores: the files that they need, the words that ask for them, how they are judged.

Each chore has a folder of its own below the box, `job01`, `job02` and so on. A chore that asks
something has an `answer`; the others have a `wanted` state: what each file has to hold in the end.
"""

import os
import random
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

MAX_READ = 100_000  # bytes of a file that the judge looks at

_WORDS = ("amber", "basil", "cedar", "delta", "ember", "fjord", "grove", "hazel", "ivory", "jasper",
          "kelp", "lilac", "maple", "nylon", "ochre", "pearl", "quartz", "raven", "slate", "topaz",
          "umber", "violet", "willow", "xenon", "yarrow", "zephyr")  # fmt: skip
_SERVICES = ("auth", "billing", "cache", "mail", "search", "store")


@dataclass(frozen=True, slots=True)
class Chore:
    """One chore."""

    files: Mapping[str, str]  # path below its folder -> content
    text: str  # what is asked; {here} is its folder
    plan: tuple[str, ...]  # commands, run from the box; {here} as above
    answer: str | None = None
    wanted: Mapping[str, str | None] = field(default_factory=dict)  # path -> content; None: absent
    mode: tuple[str, int] | None = None  # path and permission bits


def _names(chance: random.Random, count: int) -> list[str]:
    return chance.sample(_WORDS, count)


def _which_file(chance: random.Random) -> Chore:
    folders, word = _names(chance, 4), f"key-{chance.randrange(10**6):06d}"
    files = {
        f"{folder}/{name}.txt": _lines(chance, 6)
        for folder in folders
        for name in _names(chance, 3)
    }
    target = chance.choice(sorted(files))
    files[target] += f"the word is {word}\n"
    return Chore(
        files,
        f"Which file below {{here}} contains the word {word}? Answer with its path below {{here}}, "
        "such as amber/basil.txt.",
        (f"grep -rl {word} {{here}}",),
        answer=target,
    )


def _count_errors(chance: random.Random) -> Chore:
    service = chance.choice(_SERVICES)
    lines, count = [], 0
    for number in range(chance.randint(20, 60)):
        level = chance.choice(("INFO", "INFO", "WARN", "ERROR"))
        name = chance.choice(_SERVICES)
        count += level == "ERROR" and name == service
        lines.append(f"10:{number:02d} {level} {name} request {chance.randrange(1000)}\n")
    return Chore(
        {"logs/app.log": "".join(lines)},
        f"How many ERROR lines of the service {service} are in {{here}}/logs/app.log?",
        (f"grep -c 'ERROR {service} ' {{here}}/logs/app.log",),
        answer=str(count),
    )


def _largest(chance: random.Random) -> Chore:
    sizes = chance.sample(range(20, 400), 6)
    names = [f"data/{name}.bin" for name in _names(chance, 6)]
    files = {name: "x" * size for name, size in zip(names, sizes, strict=True)}
    largest = max(files, key=lambda name: len(files[name]))
    return Chore(
        files,
        "Which is the largest file in {here}/data? Answer with its name, such as amber.bin.",
        ("ls -S {here}/data | head -1",),
        answer=largest.removeprefix("data/"),
    )


def _move(chance: random.Random) -> Chore:
    names = _names(chance, 6)
    files = {f"inbox/{name}.{chance.choice(('csv', 'txt'))}": _lines(chance, 2) for name in names}
    files[f"inbox/{names[0]}.csv"] = files.pop(f"inbox/{names[0]}.txt", _lines(chance, 2))
    files[f"inbox/{names[1]}.txt"] = files.pop(f"inbox/{names[1]}.csv", _lines(chance, 2))
    wanted: dict[str, str | None] = {}
    for path, content in files.items():
        if path.endswith(".csv"):
            wanted |= {path: None, path.replace("inbox/", "tables/"): content}
        else:
            wanted[path] = content
    return Chore(
        files,
        "Move every .csv file of {here}/inbox into a new folder {here}/tables. Leave the rest.",
        ("mkdir -p {here}/tables", "mv {here}/inbox/*.csv {here}/tables/"),
        wanted=wanted,
    )


def _rename(chance: random.Random) -> Chore:
    old, new = chance.choice((("txt", "md"), ("log", "old"), ("conf", "bak")))
    files = {f"docs/{name}.{old}": _lines(chance, 2) for name in _names(chance, 4)}
    wanted: dict[str, str | None] = {}
    for path, content in files.items():
        wanted |= {path: None, path.removesuffix(old) + new: content}
    return Chore(
        files,
        f"Rename every file of {{here}}/docs from .{old} to .{new}.",
        (f'for f in {{here}}/docs/*.{old}; do mv "$f" "${{{{f%.{old}}}}}.{new}"; done',),
        wanted=wanted,
    )


def _configure(chance: random.Random) -> Chore:
    keys = _names(chance, 6)
    values = {key: chance.randint(1, 99) for key in keys}
    key, value = chance.choice(keys), chance.randint(100, 999)
    write = lambda table: "".join(f"{k} = {v}\n" for k, v in table.items())  # noqa: E731
    return Chore(
        {"app.conf": write(values)},
        f"Set {key} to {value} in {{here}}/app.conf, in the form of the other lines.",
        ("cat {here}/app.conf", f"sed -i 's/^{key} = .*/{key} = {value}/' {{here}}/app.conf"),
        wanted={"app.conf": write(values | {key: value})},
    )


def _permissions(chance: random.Random) -> Chore:
    name = chance.choice(_WORDS)
    mode = chance.choice((0o600, 0o640, 0o700, 0o750, 0o755, 0o444))
    content = _lines(chance, 2)
    return Chore(
        {f"bin/{name}.sh": content},
        f"Give {{here}}/bin/{name}.sh the permissions {mode:o} (octal).",
        (f"chmod {mode:o} {{here}}/bin/{name}.sh",),
        wanted={f"bin/{name}.sh": content},
        mode=(f"bin/{name}.sh", mode),
    )


def _clean(chance: random.Random) -> Chore:
    folders = _names(chance, 3)
    files = {
        f"{folder}/{name}.{chance.choice(('tmp', 'txt'))}": _lines(chance, 2)
        for folder in folders
        for name in _names(chance, 3)
    }
    files[f"{folders[0]}/always.tmp"] = _lines(chance, 1)
    wanted = {path: None if path.endswith(".tmp") else content for path, content in files.items()}
    return Chore(
        files,
        "Remove every .tmp file below {here}, in all its folders. Leave the rest.",
        ("find {here} -name '*.tmp' -delete",),
        wanted=wanted,
    )


def _unique(chance: random.Random) -> Chore:
    lines = [chance.choice(_WORDS[:12]) for _ in range(chance.randint(12, 30))]
    source = "".join(f"{line}\n" for line in lines)
    result = "".join(f"{line}\n" for line in sorted(set(lines)))
    return Chore(
        {"names.txt": source},
        "Write the lines of {here}/names.txt to {here}/unique.txt, sorted, each once. Leave "
        "names.txt as it is.",
        ("sort -u {here}/names.txt > {here}/unique.txt",),
        wanted={"names.txt": source, "unique.txt": result},
    )


def _lines(chance: random.Random, count: int) -> str:
    return "".join(f"{' '.join(_names(chance, 3))}\n" for _ in range(count))


CHORES: dict[str, Callable[[random.Random], Chore]] = {
    "which_file": _which_file,
    "count_errors": _count_errors,
    "largest": _largest,
    "move": _move,
    "rename": _rename,
    "configure": _configure,
    "permissions": _permissions,
    "clean": _clean,
    "unique": _unique,
}


def make_chore(kind: str, seed: int) -> Chore:
    """Return the chore of a kind and a seed."""
    return CHORES[kind](random.Random(f"{kind}/{seed}"))


def is_done(chore: Chore, folder: str) -> bool:
    """Is the folder as the chore wants it? Nothing runs there meanwhile.

    The folder belongs to the agent: links are not followed, and only plain files are read.
    """
    if (
        os.path.realpath(folder)
        != os.path.realpath(os.path.dirname(folder)) + "/" + Path(folder).name
    ):
        return False
    for path, content in chore.wanted.items():
        if _read(folder, path) != content:
            return False
    if chore.mode is None:
        return True
    path, mode = chore.mode
    return stat.S_IMODE(os.lstat(Path(folder, path)).st_mode) == mode


def _read(folder: str, path: str) -> str | None:
    """Return the content of a plain file; None if there is none, a note if it is something else."""
    full = os.path.join(folder, path)
    if os.path.realpath(os.path.dirname(full)) != os.path.join(
        os.path.realpath(folder), os.path.dirname(path)
    ).rstrip("/"):
        return None if not os.path.lexists(full) else "[behind a link]"
    try:
        descriptor = os.open(full, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError:
        return "[cannot be read]"
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return "[not a plain file]"
        return os.read(descriptor, MAX_READ).decode(errors="replace")
    finally:
        os.close(descriptor)
