"""Games in text: crafting (TextCraft) and text adventures (TextWorld)."""
