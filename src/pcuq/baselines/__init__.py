"""What PCUQ is compared with: log densities for the same samplers."""
