"""Samplers of particle systems: one loop (`base`), and one file for each way to step."""
