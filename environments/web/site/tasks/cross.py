"""Tasks that read in one area and act in another."""

from environments.web.site.data import World
from environments.web.site.dice import Dice
from environments.web.site.html import plural
from environments.web.site.judge import Change, Wanted
from environments.web.site.tasks.base import Draft, Template, Walker, mixed, the_only
from environments.web.site.words import REVIEW_TITLES


def wiki_to_forum(world: World, dice: Dice) -> Draft:
    brand, thread = dice.pick(world.articles_of("company")), dice.pick(world.threads)
    name = dice.pick(("Founder", "Seat", "Founded"))
    value = world.fact(brand.id, name).value
    values = sorted({world.fact(one.id, name).value for one in world.articles_of("company")})

    def solve(walker: Walker) -> None:
        walker.click("Wiki")
        walker.open(brand.title)
        walker.look(value)
        walker.click("Forum")
        walker.open(thread.title)
        walker.fill("Your reply", value)
        walker.click("Send reply")
        walker.stop()

    row = {"thread_id": thread.id, "user_id": world.me.id, "text": value}
    return Draft(
        f"Look up '{name}' of the company {brand.title} in the wiki, and reply with it, and "
        f"nothing else, to the thread '{thread.title}' in the forum.",
        Wanted(changes=(Change("insert", "replies", row),)),
        solve,
        texts=mixed(dice, (brand.title, thread.title, value), values, wrong=5),
    )


def file_to_forum(world: World, dice: Dice) -> Draft:
    file = dice.pick([file for file in world.files if file.path == "config.toml"])
    project, thread = world.projects[file.project_id - 1], dice.pick(world.threads)
    value = file.text.splitlines()[1].partition(" = ")[2]
    pool = [f.text.splitlines()[1].partition(" = ")[2] for f in world.files if f.path == file.path]

    def solve(walker: Walker) -> None:
        walker.click("Code", project.name, "Files", file.path)
        walker.look(value)
        walker.click("Forum")
        walker.open(thread.title)
        walker.fill("Your reply", value)
        walker.click("Send reply")
        walker.stop()

    row = {"thread_id": thread.id, "user_id": world.me.id, "text": value}
    return Draft(
        f"Look up the version of the project {project.name} in its file {file.path}, and reply "
        f"with it, and nothing else, to the thread '{thread.title}' in the forum.",
        Wanted(changes=(Change("insert", "replies", row),)),
        solve,
        texts=mixed(dice, (thread.title, value), pool),
    )


def thread_to_issue(world: World, dice: Dice) -> Draft:
    thread, project = dice.pick(world.threads), dice.pick(world.projects)
    name = world.users[thread.user_id - 1].name

    def solve(walker: Walker) -> None:
        walker.click("Forum")
        walker.search(thread.title)
        walker.look(name)
        walker.click("Code", project.name, "Issues", "New issue")
        walker.fill("Title", thread.title)
        walker.fill("Description", name)
        walker.click("Create issue")
        walker.stop()

    row = {"project_id": project.id, "title": thread.title, "text": name}
    row |= {"author_id": world.me.id, "state": "open"}
    return Draft(
        f"Create an issue without a label in the project {project.name}. Its title is "
        f"'{thread.title}'; its description is the name of the user who started the forum's thread "
        "of that title.",
        Wanted(changes=(Change("insert", "issues", row),)),
        solve,
        texts=mixed(dice, (thread.title, name), [user.name for user in world.users], wrong=5),
    )


def ship_to_seat(world: World, dice: Dice) -> Draft:
    product = dice.pick([product for product in world.products if product.in_stock])
    brand = next(a for a in world.articles if a.title == product.brand)
    town, me = world.fact(brand.id, "Seat").value, world.me
    seats = [world.fact(one.id, "Seat").value for one in world.articles_of("company")]

    def solve(walker: Walker) -> None:
        walker.click("Wiki")
        walker.open(brand.title)
        walker.look(town)
        walker.click("Shop")
        walker.open(product.name)
        walker.click("Add to cart", "Proceed to checkout")
        walker.fill("City", town)
        walker.click("Place order")
        walker.stop()

    order = {"user_id": me.id, "street": me.street, "city": town, "shipping": "standard", "gift": 0}
    line = {"product_id": product.id, "quantity": 1}
    return Draft(
        f"Buy 1 {product.name} in the shop with standard shipping. As the city of the address give "
        f"the town in which, according to the wiki, the company {brand.title} has its seat.",
        Wanted(changes=(Change("insert", "orders", order), Change("insert", "order_lines", line))),
        solve,
        texts=mixed(dice, (brand.title, product.name, town), seats, wrong=5),
    )


def review_order(world: World, dice: Dice) -> Draft:
    order = dice.pick([order for order in world.orders if order.user_id == world.me.id])
    bought = [line.product_id for line in world.order_lines if line.order_id == order.id]
    products = [world.products[number - 1] for number in bought]
    rating = dice.between(1, 5)
    title = dice.pick(REVIEW_TITLES[rating])

    def solve(walker: Walker) -> None:
        walker.click("Shop", "Orders")
        walker.turn_to(f"Order {order.id}")
        walker.click(f"Order {order.id}")
        for product in products:
            walker.click("Shop")
            walker.open(product.name)
            walker.click("Write a review")
            if rating != 3:
                walker.choose("Rating", plural(rating, "star"))
            walker.fill("Title", title)
            walker.click("Send review")
        walker.stop()

    base = {"user_id": world.me.id, "rating": rating, "title": title, "text": ""}
    rows = tuple(Change("insert", "reviews", {**base, "product_id": p.id}) for p in products)
    right = (title, *(product.name for product in products))
    return Draft(
        f"Review every product of your order {order.id} in the shop with "
        f"{plural(rating, 'star')}, the title "
        f"'{title}' and no text.",
        Wanted(changes=rows),
        solve,
        texts=mixed(dice, right, [product.name for product in world.products], wrong=4),
    )


def oldest_to_wishes(world: World, dice: Dice) -> Draft | None:
    """Look up several companies, then put one product of the oldest on the wish list."""
    brands = dice.some(world.articles_of("company"), dice.between(2, 7))
    years = {brand.title: int(world.fact(brand.id, "Founded").value) for brand in brands}
    oldest = the_only([title for title, year in years.items() if year == min(years.values())])
    prices = {p.name: p.cents for p in world.products if p.brand == oldest}
    cheapest = the_only([name for name, cents in prices.items() if cents == min(prices.values())])
    if oldest is None or cheapest is None:
        return None
    product = next(product for product in world.products if product.name == cheapest)

    def solve(walker: Walker) -> None:
        for brand in brands:
            walker.click("Wiki")
            walker.open(brand.title)
            walker.look(str(years[brand.title]))
        walker.click("Shop")
        walker.search(oldest)
        walker.read_all()
        walker.turn_back_to(cheapest)
        walker.click(cheapest, "Add to wish list")
        walker.stop()

    row = {"user_id": world.me.id, "product_id": product.id}
    return Draft(
        "Find out in the wiki which of these companies was founded first: "
        f"{', '.join(years)}. Put its cheapest product in the shop on your wish list.",
        Wanted(changes=(Change("insert", "wishes", row),)),
        solve,
        texts=tuple(sorted(years)),
    )


TEMPLATES: dict[str, Template] = {
    "cross_wiki_forum": wiki_to_forum,
    "cross_file_forum": file_to_forum,
    "cross_thread_issue": thread_to_issue,
    "cross_ship": ship_to_seat,
    "cross_reviews": review_order,
    "cross_oldest": oldest_to_wishes,
}
