"""Bake a bundle, stage by stage."""
