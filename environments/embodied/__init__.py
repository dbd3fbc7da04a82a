"""Embodied agents in text: grid worlds of rooms, doors and things (BabyAI)."""
