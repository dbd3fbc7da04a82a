"""The laboratory: experiments with hidden properties, in rooms full of instruments."""
