"""The shop's other half: cart, checkout, orders, account."""

from sqlite3 import Row

from environments.web.site.database import insert, update
from environments.web.site.html import (
    button,
    checkbox,
    dots,
    el,
    form,
    join,
    link,
    money,
    pager,
    select,
    table,
    textbox,
)
from environments.web.site.web import Page, Redirect, Reply, Request, Routes, listing
from environments.web.site.words import SHIPPING

TODAY = "2026-10-01"
MAX_QUANTITY = 99


def register(routes: Routes) -> None:
    routes.get("/shop/cart", login=True)(cart)
    routes.post("/shop/cart/add")(add)
    routes.post(r"/shop/cart/set/(\d+)")(set_quantity)
    routes.get("/shop/checkout", login=True)(checkout)
    routes.post("/shop/checkout")(place)
    routes.get("/shop/orders", login=True)(orders)
    routes.get(r"/shop/order/(\d+)", login=True)(order)
    routes.post(r"/shop/cancel/(\d+)")(cancel)
    routes.get("/shop/account", login=True)(account)
    routes.post("/shop/account")(save_account)


def _cart_lines(request: Request) -> list[Row]:
    return request.rows(
        "SELECT cart_lines.*, products.name, products.cents FROM cart_lines "
        "JOIN products ON products.id = product_id WHERE user_id = ? ORDER BY cart_lines.id",
        request.user_id,
    )


def cart(request: Request) -> Page:
    lines = _cart_lines(request)
    if not lines:
        return Page("Cart", el("p", "Your cart is empty."))
    entries = [
        join(
            (
                link(line["name"], f"/shop/product/{line['product_id']}"),
                f" {money(line['cents'])} ",
                form(
                    f"/shop/cart/set/{line['id']}",
                    el(
                        "input",
                        name="quantity",
                        value=line["quantity"],
                        aria_label=f"Quantity of {line['name']}",
                    ),
                    button("Update"),
                    el(
                        "button",
                        "Remove",
                        name="remove",
                        value=1,
                        aria_label=f"Remove {line['name']}",
                    ),
                ),
            )
        )
        for line in lines
    ]
    total = money(sum(line["cents"] * line["quantity"] for line in lines))
    go = el("p", link("Proceed to checkout", "/shop/checkout"))
    return Page("Cart", join((listing(entries), table(("Total", total)), go)))


def add(request: Request) -> Reply:
    product = request.row("SELECT * FROM products WHERE id = ?", request.number("product"))
    quantity = request.number("quantity")
    back = Redirect(f"/shop/product/{product['id']}")
    if not 1 <= quantity <= MAX_QUANTITY or not product["in_stock"]:
        return back
    found = request.rows(
        "SELECT * FROM cart_lines WHERE user_id = ? AND product_id = ?",
        request.user_id,
        product["id"],
    )
    if found:
        total = min(MAX_QUANTITY, found[0]["quantity"] + quantity)
        update(request.db, "cart_lines", found[0]["id"], quantity=total)
    else:
        values = {"user_id": request.user_id, "product_id": product["id"], "quantity": quantity}
        insert(request.db, "cart_lines", **values)
    return Redirect("/shop/cart")


def set_quantity(request: Request) -> Reply:
    line = request.row(
        "SELECT * FROM cart_lines WHERE id = ? AND user_id = ?", request.arg(0), request.user_id
    )
    quantity = 0 if "remove" in request.form else request.number("quantity", line["quantity"])
    if quantity == 0:
        request.db.execute("DELETE FROM cart_lines WHERE id = ?", (line["id"],))
    else:
        update(request.db, "cart_lines", line["id"], quantity=min(quantity, MAX_QUANTITY))
    return Redirect("/shop/cart")


def checkout(request: Request) -> Reply:
    lines = _cart_lines(request)
    if not lines or request.user is None:
        return Redirect("/shop/cart")
    total = money(sum(line["cents"] * line["quantity"] for line in lines))
    fields = form(
        "/shop/checkout",
        textbox("Street", "street", request.user["street"], required=True),
        textbox("City", "city", request.user["city"], required=True),
        select("Shipping", "shipping", [(name, name) for name in SHIPPING], SHIPPING[0]),
        checkbox("Wrap as a gift", "gift"),
        button("Place order"),
    )
    return Page("Checkout", join((table(("Items", len(lines)), ("Total", total)), fields)))


def place(request: Request) -> Reply:
    lines = _cart_lines(request)
    street, city, shipping = (request.text(name) for name in ("street", "city", "shipping"))
    if not (lines and street and city and shipping in SHIPPING):
        return Redirect("/shop/checkout")
    order_id = insert(
        request.db,
        "orders",
        user_id=request.user_id,
        day=TODAY,
        status="processing",
        street=street,
        city=city,
        shipping=shipping,
        gift=int("gift" in request.form),
    )
    for line in lines:
        insert(
            request.db,
            "order_lines",
            order_id=order_id,
            product_id=line["product_id"],
            quantity=line["quantity"],
            cents=line["cents"],
        )
    request.db.execute("DELETE FROM cart_lines WHERE user_id = ?", (request.user_id,))
    return Redirect(f"/shop/order/{order_id}")


def orders(request: Request) -> Page:
    total = request.row("SELECT COUNT(*) FROM orders WHERE user_id = ?", request.user_id)[0]
    page, pages, offset = request.page(total, 5)
    rows = request.rows(
        "SELECT * FROM orders WHERE user_id = ? ORDER BY id DESC LIMIT 5 OFFSET ?",
        request.user_id,
        offset,
    )
    entries = [
        join((link(f"Order {r['id']}", f"/shop/order/{r['id']}"), " ", dots(r["day"], r["status"])))
        for r in rows
    ]
    body = listing(entries, "You have no orders.")
    return Page("Orders", join((body, pager("/shop/orders", page, pages))))


def order(request: Request) -> Page:
    row = request.row(
        "SELECT * FROM orders WHERE id = ? AND user_id = ?", request.arg(0), request.user_id
    )
    lines = request.rows(
        "SELECT order_lines.*, products.name FROM order_lines "
        "JOIN products ON products.id = product_id WHERE order_id = ? ORDER BY order_lines.id",
        row["id"],
    )
    goods = table(*((f"{ln['quantity']} x", ln["name"], money(ln["cents"])) for ln in lines))
    facts = table(
        ("Total", money(sum(line["cents"] * line["quantity"] for line in lines))),
        ("Day", row["day"]),
        ("Status", row["status"]),
        ("Shipping", row["shipping"]),
        ("Address", f"{row['street']}, {row['city']}"),
        ("Gift", "yes" if row["gift"] else "no"),
    )
    open_order = row["status"] == "processing"
    stop = form(f"/shop/cancel/{row['id']}", button("Cancel order")) if open_order else ""
    return Page(f"Order {row['id']}", join((goods, facts, stop)))


def cancel(request: Request) -> Reply:
    row = request.row(
        "SELECT * FROM orders WHERE id = ? AND user_id = ?", request.arg(0), request.user_id
    )
    if row["status"] == "processing":
        update(request.db, "orders", row["id"], status="cancelled")
    return Redirect(f"/shop/order/{row['id']}")


def account(request: Request) -> Page:
    assert request.user is not None
    user = request.user
    fields = form(
        "/shop/account",
        textbox("E-mail", "email", user["email"], required=True),
        textbox("Street", "street", user["street"], required=True),
        textbox("City", "city", user["city"], required=True),
        button("Save"),
    )
    return Page("Account", join((table(("User", user["name"])), fields)))


def save_account(request: Request) -> Reply:
    values = {name: request.text(name) for name in ("email", "street", "city")}
    if all(values.values()):
        update(request.db, "users", request.user_id, **values)
    return Redirect("/shop/account")
