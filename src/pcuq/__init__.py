"""Prediction-centric uncertainty quantification for deterministic models that are wrong."""
