"""A site of our own: shop, forum, wiki and repository host over one seeded database."""
