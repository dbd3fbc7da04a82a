"""Importing this module registers every environment with gymnasium.

gymnasium.make("scalinginter.env.gym:scalinginter/textcraft-v0")
"""

from scalinginter.env.registry import register_gymnasium

register_gymnasium()
