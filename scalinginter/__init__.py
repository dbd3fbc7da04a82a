"""ScalingInter: train language-model agents while the interaction horizon grows.

Importing this package imports nothing heavy; see `scalinginter.types` for the words it uses.
"""

__version__ = "0.1.0"
