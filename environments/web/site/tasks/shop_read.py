"""Tasks that read in the shop."""

from environments.web.site.data import World
from environments.web.site.dice import Dice
from environments.web.site.html import money, plural
from environments.web.site.judge import Wanted
from environments.web.site.records import Product
from environments.web.site.tasks.base import Draft, Template, Walker, mixed, the_only

START = "/shop"


def product_names(world: World) -> list[str]:
    return [product.name for product in world.products]


def in_stock(world: World) -> list[Product]:
    return [product for product in world.products if product.in_stock]


def price(world: World, dice: Dice) -> Draft:
    product = dice.pick(world.products)

    def solve(walker: Walker) -> None:
        walker.search(product.name)
        walker.report(money(product.cents))

    return Draft(
        f"What does the {product.name} cost in the shop?",
        Wanted(answers=(money(product.cents),)),
        solve,
        START,
        texts=mixed(dice, (product.name,), product_names(world)),
    )


def _detail(product: Product, what: str) -> str:
    if what == "weight":
        return f"{product.grams} g"
    return plural(product.warranty, "year") if what == "warranty" else product.material


def detail(world: World, dice: Dice) -> Draft:
    product, what = dice.pick(world.products), dice.pick(("material", "weight", "warranty"))
    answer = _detail(product, what)

    def solve(walker: Walker) -> None:
        walker.open(product.name)
        walker.report(answer)

    return Draft(
        f"What is the {what} of the {product.name} in the shop?",
        Wanted(answers=(answer, answer.split()[0])),
        solve,
        START,
        texts=mixed(dice, (product.name,), product_names(world)),
    )


def extreme(world: World, dice: Dice) -> Draft | None:
    category = dice.pick(world.categories)
    products = [p for p in world.products if p.category_id == category.id]
    sort, word = dice.pick((("price", "cheapest"), ("weight", "lightest")))
    key = "cents" if sort == "price" else "grams"
    least = min(getattr(p, key) for p in products)
    name = the_only([p.name for p in products if getattr(p, key) == least])
    if name is None:
        return None

    def solve(walker: Walker) -> None:
        walker.click(category.name)
        walker.choose("Sort by", sort)
        walker.click("Sort")
        walker.report(name)

    goal = f"Which product of the shop's category {category.name} is the {word}?"
    return Draft(goal, Wanted(answers=(name,)), solve, START)


def brand_count(world: World, dice: Dice) -> Draft:
    brand = dice.pick(sorted({product.brand for product in world.products}))
    count = sum(product.brand == brand for product in world.products)

    def solve(walker: Walker) -> None:
        walker.search(brand)
        walker.read_all()
        walker.stop(str(count))

    return Draft(
        f"How many products of the brand {brand} does the shop list? Answer with a number.",
        Wanted(answers=(str(count),)),
        solve,
        START,
        texts=mixed(dice, (brand,), [product.brand for product in world.products]),
        counts=True,
    )


def review_author(world: World, dice: Dice) -> Draft | None:
    review = dice.pick(world.reviews)
    product = world.products[review.product_id - 1]
    same = (review.product_id, review.rating, review.title)
    authors = [r for r in world.reviews if (r.product_id, r.rating, r.title) == same]
    if len(authors) > 1:
        return None
    author = world.users[review.user_id - 1].name

    def solve(walker: Walker) -> None:
        walker.open(product.name)
        place = [r.id for r in world.reviews if r.product_id == product.id].index(review.id)
        for _ in range(place // 3):
            walker.click("Next page")
        walker.report(author)

    return Draft(
        f"Who wrote the review '{review.title}' with {plural(review.rating, 'star')} of the "
        f"{product.name} in the shop? Answer with the user name.",
        Wanted(answers=(author,)),
        solve,
        START,
        texts=mixed(dice, (product.name,), product_names(world)),
    )


def compare(world: World, dice: Dice) -> Draft | None:
    products = dice.some(world.products, dice.between(2, 6))
    most = max(product.grams for product in products)
    heaviest = the_only([p.name for p in products if p.grams == most])
    if heaviest is None:
        return None
    names = [product.name for product in products]

    def solve(walker: Walker) -> None:
        for i, product in enumerate(products):
            if i:
                walker.click("Shop")
            walker.open(product.name)
            walker.look(_detail(product, "weight"))
        walker.stop(heaviest)

    return Draft(
        f"Which of these products of the shop is the heaviest: {', '.join(names)}?",
        Wanted(answers=(heaviest,)),
        solve,
        START,
        texts=mixed(dice, tuple(names), product_names(world), wrong=2),
        answers=tuple(names),
    )


def sold_out(world: World, dice: Dice) -> Draft:
    category = dice.pick(world.categories)
    products = sorted(
        (p for p in world.products if p.category_id == category.id), key=lambda p: p.name
    )
    count = sum(not product.in_stock for product in products)

    def solve(walker: Walker) -> None:
        walker.click(category.name)
        for product in products:
            walker.turn_to(product.name)
            walker.click(product.name)
            walker.look("in stock" if product.in_stock else "sold out")
            if product is not products[-1]:
                walker.back()
        walker.stop(str(count))

    return Draft(
        f"How many products of the shop's category {category.name} are sold out? Answer with a "
        "number.",
        Wanted(answers=(str(count),)),
        solve,
        START,
        counts=True,
    )


def order_status(world: World, dice: Dice) -> Draft:
    order = dice.pick([order for order in world.orders if order.user_id == world.me.id])
    what, answer = dice.pick((("shipping", order.shipping), ("status", order.status)))

    def solve(walker: Walker) -> None:
        walker.click("Orders")
        walker.turn_to(f"Order {order.id}")
        if what == "shipping":
            walker.click(f"Order {order.id}")
        walker.report(answer)

    goal = f"What is the {what} of your order {order.id} in the shop?"
    return Draft(goal, Wanted(answers=(answer,)), solve, START)


TEMPLATES: dict[str, Template] = {
    "shop_price": price,
    "shop_detail": detail,
    "shop_extreme": extreme,
    "shop_brand_count": brand_count,
    "shop_review_author": review_author,
    "shop_compare": compare,
    "shop_sold_out": sold_out,
    "shop_order": order_status,
}
