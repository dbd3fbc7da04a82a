"""Tasks in the shop."""

from environments.web.site.data import World
from environments.web.site.dice import Dice
from environments.web.site.html import money
from environments.web.site.judge import Change, Wanted
from environments.web.site.records import Product
from environments.web.site.tasks.base import Draft, Template, Walker, mixed, quoted, the_only
from environments.web.site.words import REVIEW_TEXTS, REVIEW_TITLES, SHIPPING, STREETS, TOWNS

START = "/shop"


def _names(world: World) -> list[str]:
    return [product.name for product in world.products]


def _in_stock(world: World) -> list[Product]:
    return [product for product in world.products if product.in_stock]


def price(world: World, dice: Dice) -> Draft:
    product = dice.pick(world.products)

    def solve(walker: Walker) -> None:
        walker.search(product.name)
        walker.stop(money(product.cents))

    return Draft(
        f"What does the {product.name} cost in the shop?",
        Wanted(answers=(money(product.cents),)),
        solve,
        START,
        texts=mixed(dice, (product.name,), _names(world)),
    )


def _detail(product: Product, what: str) -> str:
    if what == "weight":
        return f"{product.grams} g"
    return f"{product.warranty} years" if what == "warranty" else product.material


def detail(world: World, dice: Dice) -> Draft:
    product, what = dice.pick(world.products), dice.pick(("material", "weight", "warranty"))
    answer = _detail(product, what)

    def solve(walker: Walker) -> None:
        walker.open(product.name)
        walker.stop(answer)

    return Draft(
        f"What is the {what} of the {product.name} in the shop?",
        Wanted(answers=(answer, answer.split()[0])),
        solve,
        START,
        texts=mixed(dice, (product.name,), _names(world)),
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
        walker.stop(name)

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
        walker.stop(author)

    return Draft(
        f"Who wrote the review '{review.title}' with {review.rating} stars of the {product.name} "
        "in the shop? Answer with the user name.",
        Wanted(answers=(author,)),
        solve,
        START,
        texts=mixed(dice, (product.name,), _names(world)),
    )


def compare(world: World, dice: Dice) -> Draft | None:
    products = dice.some(world.products, dice.between(2, 6))
    most = max(product.grams for product in products)
    heaviest = the_only([p.name for p in products if p.grams == most])
    if heaviest is None:
        return None
    names = [product.name for product in products]

    def solve(walker: Walker) -> None:
        for i, name in enumerate(names):
            if i:
                walker.click("Shop")
            walker.open(name)
        walker.stop(heaviest)

    return Draft(
        f"Which of these products of the shop is the heaviest: {', '.join(names)}?",
        Wanted(answers=(heaviest,)),
        solve,
        START,
        texts=mixed(dice, tuple(names), _names(world), wrong=2),
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
        walker.stop(answer)

    goal = f"What is the {what} of your order {order.id} in the shop?"
    return Draft(goal, Wanted(answers=(answer,)), solve, START)


def _put_into_cart(walker: Walker, product: Product, quantity: int) -> None:
    walker.open(product.name)
    if quantity > 1:
        walker.fill("Quantity", str(quantity))
    walker.click("Add to cart")


def _line(world: World, product: Product, quantity: int) -> Change:
    values = {"user_id": world.me.id, "product_id": product.id, "quantity": quantity}
    return Change("insert", "cart_lines", values)


def cart(world: World, dice: Dice) -> Draft:
    product, quantity = dice.pick(_in_stock(world)), dice.between(1, 5)

    def solve(walker: Walker) -> None:
        _put_into_cart(walker, product, quantity)
        walker.stop()

    return Draft(
        f"Put {quantity} of the {product.name} into your cart in the shop.",
        Wanted(changes=(_line(world, product, quantity),)),
        solve,
        START,
        texts=mixed(dice, (product.name, str(quantity)), [*_names(world)[:40], "2", "3"]),
    )


def login_cart(world: World, dice: Dice) -> Draft:
    product, me = dice.pick(_in_stock(world)), world.me

    def solve(walker: Walker) -> None:
        walker.click("Log in")
        walker.fill("User name", me.name)
        walker.fill("Password", me.password)
        walker.click("Sign in", "Shop")
        _put_into_cart(walker, product, 1)
        walker.stop()

    right = (product.name, me.name, me.password)
    return Draft(
        f"Log in as {me.name} with the password {me.password}, then put 1 {product.name} into your "
        "cart in the shop.",
        Wanted(changes=(_line(world, product, 1),)),
        solve,
        START,
        login=False,
        texts=mixed(dice, right, [world.users[1].name, world.users[1].password]),
    )


def wish(world: World, dice: Dice) -> Draft:
    product = dice.pick(world.products)

    def solve(walker: Walker) -> None:
        walker.open(product.name)
        walker.click("Add to wish list")
        walker.stop()

    values = {"user_id": world.me.id, "product_id": product.id}
    return Draft(
        f"Put the {product.name} on your wish list in the shop.",
        Wanted(changes=(Change("insert", "wishes", values),)),
        solve,
        START,
        texts=mixed(dice, (product.name,), _names(world)),
    )


def _buy(least: int, most: int) -> Template:
    """Return the template that buys so many different products in one order."""

    def buy(world: World, dice: Dice) -> Draft:
        products = dice.some(_in_stock(world), dice.between(least, most))
        amounts = [dice.between(1, 3) for _ in products]
        shipping, gift = dice.pick(SHIPPING), dice.below(2)

        def solve(walker: Walker) -> None:
            for i, (product, amount) in enumerate(zip(products, amounts, strict=True)):
                if i:
                    walker.click("Shop")
                _put_into_cart(walker, product, amount)
            walker.click("Proceed to checkout")
            if shipping != SHIPPING[0]:
                walker.choose("Shipping", shipping)
            if gift:
                walker.tick("Wrap as a gift")
            walker.click("Place order")
            walker.stop()

        pairs = list(zip(products, amounts, strict=True))
        order = {"user_id": world.me.id, "shipping": shipping, "gift": gift}
        order |= {"street": world.me.street, "city": world.me.city}
        lines = tuple(
            Change("insert", "order_lines", {"product_id": p.id, "quantity": n}) for p, n in pairs
        )
        listed = ", ".join(f"{n} {p.name}" for p, n in pairs)
        wrapped = ", wrapped as a gift" if gift else ""
        right = (*(p.name for p in products), *(str(n) for n in amounts if n > 1))
        return Draft(
            f"Buy in the shop, in one order: {listed}. Shipping: {shipping}{wrapped}. Use the "
            "address of your account.",
            Wanted(changes=(Change("insert", "orders", order), *lines)),
            solve,
            START,
            texts=mixed(dice, right, _names(world)),
        )

    return buy


def review(world: World, dice: Dice) -> Draft:
    product, rating = dice.pick(world.products), dice.between(1, 5)
    title, text = dice.pick(REVIEW_TITLES[rating]), dice.pick(("", *REVIEW_TEXTS))

    def solve(walker: Walker) -> None:
        walker.open(product.name)
        walker.click("Write a review")
        if rating != 3:
            walker.choose("Rating", f"{rating} stars")
        walker.fill("Title", title)
        if text:
            walker.fill("Text", text)
        walker.click("Send review")
        walker.stop()

    values = {"product_id": product.id, "user_id": world.me.id, "rating": rating}
    values |= {"title": title, "text": text}
    says = f" and the text '{text}'" if text else " and no text"
    pool = [*_names(world)[:30], *REVIEW_TEXTS]
    right = (product.name, title, text) if text else (product.name, title)
    return Draft(
        f"Review the {product.name} in the shop: {rating} stars, title '{title}'{says}.",
        Wanted(changes=(Change("insert", "reviews", values),)),
        solve,
        START,
        texts=mixed(dice, right, pool),
    )


def account(world: World, dice: Dice) -> Draft:
    street = f"{dice.between(1, 99)} {dice.pick(STREETS)}"
    city = dice.pick([town for town in TOWNS if town != world.me.city])

    def solve(walker: Walker) -> None:
        walker.click("Account")
        walker.fill("Street", street)
        walker.fill("City", city)
        walker.click("Save")
        walker.stop()

    return Draft(
        f"Change the address of your account in the shop to {street}, {city}.",
        Wanted(changes=(Change("update", "users", {"street": street, "city": city}, world.me.id),)),
        solve,
        START,
        texts=mixed(dice, (street, city), [*TOWNS, "1 Elm Avenue"]),
    )


def cancel(world: World, dice: Dice) -> Draft | None:
    mine = [o for o in world.orders if o.user_id == world.me.id and o.status == "processing"]
    if not mine:
        return None
    order = dice.pick(mine)

    def solve(walker: Walker) -> None:
        walker.click("Orders")
        walker.turn_to(f"Order {order.id}")
        walker.click(f"Order {order.id}", "Cancel order")
        walker.stop()

    return Draft(
        f"Cancel your order {order.id} in the shop.",
        Wanted(changes=(Change("update", "orders", {"status": "cancelled"}, order.id),)),
        solve,
        START,
    )


def wishes(world: World, dice: Dice) -> Draft:
    products = dice.some(world.products, dice.between(2, 9))
    names = [product.name for product in products]

    def solve(walker: Walker) -> None:
        for i, name in enumerate(names):
            if i:
                walker.click("Shop")
            walker.open(name)
            walker.click("Add to wish list")
        walker.stop()

    rows = ({"user_id": world.me.id, "product_id": product.id} for product in products)
    return Draft(
        f"Put these products on your wish list in the shop: {quoted(names)}.",
        Wanted(changes=tuple(Change("insert", "wishes", row) for row in rows)),
        solve,
        START,
        texts=mixed(dice, tuple(names), _names(world), wrong=2),
    )


TEMPLATES: dict[str, Template] = {
    "shop_price": price,
    "shop_detail": detail,
    "shop_extreme": extreme,
    "shop_brand_count": brand_count,
    "shop_review_author": review_author,
    "shop_compare": compare,
    "shop_sold_out": sold_out,
    "shop_order": order_status,
    "shop_cart": cart,
    "shop_login": login_cart,
    "shop_wish": wish,
    "shop_wishes": wishes,
    "shop_buy": _buy(1, 1),
    "shop_buy_some": _buy(2, 4),
    "shop_buy_many": _buy(5, 9),
    "shop_review": review,
    "shop_account": account,
    "shop_cancel": cancel,
}
