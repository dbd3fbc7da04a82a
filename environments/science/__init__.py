"""Experiments in text: a laboratory of our own, and ScienceWorld."""
