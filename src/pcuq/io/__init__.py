"""Models and data from files: SBML and PEtab."""
