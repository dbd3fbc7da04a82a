"""Errands in a home: find things, carry, clean, heat, cool, put them where they belong."""
