"""The pages of the site, by area."""

from environments.web.site.pages import code, forum, home, issues, orders, shop, wiki
from environments.web.site.web import Routes

ROUTES = Routes()
for _area in (home, shop, orders, forum, wiki, issues, code):
    _area.register(ROUTES)
