"""The words that worlds are made of. Names are invented; any likeness is chance."""


def _split(words: str) -> list[str]:
    return words.split()


USERS = _split(
    """
    ada basil cora dario elke finn greta hugo ines jonas karla leon mira nils olga pavel quinn
    rosa sven tilda ugo vera wanda xenia yuri zoe alma bruno celia diego edda fabio gwen hanna ivo
    jana kurt lotte mateo
    """
)

FIRST_NAMES = _split(
    """
    Anton Berta Carl Dora Emil Frida Georg Hilda Ivan Julia Konrad Lina Martin Nora Oskar Paula
    Rudolf Selma Theo Ursula Viktor Wilma
    """
)

LAST_NAMES = _split(
    """
    Aldin Berg Corven Dahl Ellery Falk Grant Holm Irving Jarvis Keller Lund Moreau Novak Ostrom
    Pell Quist Rowe Stein Thorn Ulrich Varga Winter Yates
    """
)

TOWNS = _split(
    """
    Arvale Brindel Corham Dunmere Elsford Farrow Glenby Harwick Islay Jorvik Kelso Lindal Marrow
    Norwell Oakham Penrith Quenby Rothmere Selwick Tarbet Ulverton Varley Westbury Yarrow Ashford
    Belcross Crowle Denholm Eastry Fenwick
    """
)

RIVERS = _split("Alder Brenn Cald Dorne Eske Fleet Garn Hollin Irth Kenn")
REGIONS = _split("Northmark Eastfold Southmoor Westreach Midlands")
MONTHS = _split(
    """
    January February March April May June July August September October November December
    """
)
JOBS = _split("architect botanist carpenter engineer geologist painter printer surgeon weaver")
STREETS = ["Mill Lane", "Station Road", "High Street", "Church Walk", "Harbour Way", "Elm Avenue"]

BRANDS = _split("Halden Orvik Lumera Castra Bexley Novum Tarn Solis Pemba Rukh Vexil Damar")
COLOURS = _split("black blue copper green grey red silver white yellow")
MATERIALS = _split("steel oak wool glass linen brass cork bamboo")
CATEGORIES = {
    "Kitchen": ("kettle", "pan", "grater"),
    "Lighting": ("lamp", "lantern", "torch"),
    "Bags": ("backpack", "suitcase", "satchel"),
    "Audio": ("radio", "speaker", "headset"),
    "Office": ("notebook", "stapler", "desk"),
    "Garden": ("spade", "hose", "bench"),
    "Clocks": ("clock", "timer", "barometer"),
    "Sports": ("racket", "helmet", "dumbbell"),
}
REVIEW_TITLES = {
    1: ("Broke at once", "Sent it back"),
    2: ("Not for me", "Too heavy"),
    3: ("It is all right", "Does what it should"),
    4: ("Good value", "Well made"),
    5: ("Would buy again", "The best I had"),
}
REVIEW_TEXTS = (
    "I use it every day.",
    "The colour is not the one of the picture.",
    "It came two days late.",
    "My neighbour has the same one.",
    "The manual is hard to read.",
    "It was a present for my sister.",
)

BOARDS = {
    "Travel": ("night trains", "mountain huts", "ferry tickets", "travel insurance"),
    "Gardening": ("tomato plants", "lawn moss", "compost bins", "pruning roses"),
    "Cooking": ("sourdough bread", "cast iron pans", "pickled beans", "lentil soup"),
    "Cycling": ("brake pads", "winter tyres", "bike lights", "saddle height"),
    "Music": ("cello strings", "practice rooms", "vinyl records", "choir rehearsals"),
    "Repairs": ("leaking taps", "squeaky doors", "broken zips", "old radios"),
}
OPENINGS = (
    "Advice on",
    "Trouble with",
    "What I learnt about",
    "Looking for",
    "A warning about",
    "Cheap",
    "Beginner question about",
    "The best",
)
POSTS = (
    "I have tried everything and nothing works.",
    "Has anybody got experience with this?",
    "Here is what I found out over the weekend.",
    "I would be glad of any hint.",
    "This took me three evenings.",
)
REPLIES = (
    "Thank you, that helped.",
    "I had the same last year.",
    "Ask in a shop near you.",
    "That is not what I would do.",
    "Try it again with more patience.",
    "Good question, I would like to know too.",
    "You will find more in the older threads.",
)

PROJECTS = _split("anchor beacon cobalt drift ember flint glacier harbor indigo juniper")
PURPOSES = (
    "A small scheduler for batch jobs",
    "Tools to read weather stations",
    "A library for tidy tables",
    "A bot that answers on mailing lists",
    "A viewer for old maps",
    "A parser for timetables",
    "A backup program for photographs",
    "A server for recipe cards",
)
PROBLEMS = ("Crash", "Slow start", "Wrong result", "Missing test", "Typo", "Memory leak", "Timeout")
PARTS = ("parser", "importer", "manual", "command line", "cache", "login page", "exporter", "index")
CHANGES = ("Rewrite", "Speed up", "Simplify", "Document", "Test", "Remove")
ISSUE_TEXTS = (
    "It happens on every run.",
    "I could not find it in the manual.",
    "The last release did not have this.",
    "See the attached log.",
)
COMMENTS = ("I can confirm this.", "Which version?", "I will look into it.", "Works for me.")
LABELS = ("bug", "docs", "feature", "question", "urgent")
LICENCES = ("MIT", "BSD", "Apache", "GPL", "ISC")
LANGUAGES = ("Python", "Rust", "Go", "Kotlin", "Ruby")
STATUSES = ("processing", "sent", "delivered")
SHIPPING = ("standard", "express", "pickup")
REACTIONS = ("up", "down")
