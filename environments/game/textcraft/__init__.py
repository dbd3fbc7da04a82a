"""TextCraft: reach a goal item over a tree of crafting recipes."""
