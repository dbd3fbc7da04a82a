"""Tasks that change something in the shop."""

from environments.web.site.data import World
from environments.web.site.dice import Dice
from environments.web.site.html import plural
from environments.web.site.judge import Change, Wanted
from environments.web.site.records import Product
from environments.web.site.tasks.base import Draft, Template, Walker, mixed, quoted
from environments.web.site.tasks.shop_read import START, in_stock, product_names
from environments.web.site.words import REVIEW_TEXTS, REVIEW_TITLES, SHIPPING, STREETS, TOWNS


def _put_into_cart(walker: Walker, product: Product, quantity: int) -> None:
    walker.open(product.name)
    if quantity > 1:
        walker.fill("Quantity", str(quantity))
    walker.click("Add to cart")


def _line(world: World, product: Product, quantity: int) -> Change:
    values = {"user_id": world.me.id, "product_id": product.id, "quantity": quantity}
    return Change("insert", "cart_lines", values)


def cart(world: World, dice: Dice) -> Draft:
    product, quantity = dice.pick(in_stock(world)), dice.between(1, 5)

    def solve(walker: Walker) -> None:
        _put_into_cart(walker, product, quantity)
        walker.stop()

    return Draft(
        f"Put {quantity} of the {product.name} into your cart in the shop.",
        Wanted(changes=(_line(world, product, quantity),)),
        solve,
        START,
        texts=mixed(dice, (product.name, str(quantity)), [*product_names(world)[:40], "2", "3"]),
    )


def login_cart(world: World, dice: Dice) -> Draft:
    product, me = dice.pick(in_stock(world)), world.me

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
        texts=mixed(dice, (product.name,), product_names(world)),
    )


def _buy(least: int, most: int) -> Template:
    """Return the template that buys so many different products in one order."""

    def buy(world: World, dice: Dice) -> Draft:
        products = dice.some(in_stock(world), dice.between(least, most))
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
            texts=mixed(dice, right, product_names(world)),
        )

    return buy


def review(world: World, dice: Dice) -> Draft:
    product, rating = dice.pick(world.products), dice.between(1, 5)
    title, text = dice.pick(REVIEW_TITLES[rating]), dice.pick(("", *REVIEW_TEXTS))

    def solve(walker: Walker) -> None:
        walker.open(product.name)
        walker.click("Write a review")
        if rating != 3:
            walker.choose("Rating", plural(rating, "star"))
        walker.fill("Title", title)
        if text:
            walker.fill("Text", text)
        walker.click("Send review")
        walker.stop()

    values = {"product_id": product.id, "user_id": world.me.id, "rating": rating}
    values |= {"title": title, "text": text}
    says = f" and the text '{text}'" if text else " and no text"
    pool = [*product_names(world)[:30], *REVIEW_TEXTS]
    right = (product.name, title, text) if text else (product.name, title)
    return Draft(
        f"Review the {product.name} in the shop: {plural(rating, 'star')}, title '{title}'{says}.",
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
        texts=mixed(dice, tuple(names), product_names(world), wrong=2),
    )


TEMPLATES: dict[str, Template] = {
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
