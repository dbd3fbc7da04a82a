"""BabyAI: follow an instruction in rooms that are seen in part (minigrid's levels, in text)."""
