"""Small SBML models written by hand: elements as text, formulas in infix."""

import libsbml

NAMESPACES = {
    (2, 4): "http://www.sbml.org/sbml/level2/version4",
    (3, 1): "http://www.sbml.org/sbml/level3/version1/core",
    (3, 2): "http://www.sbml.org/sbml/level3/version2/core",
}
COMPARTMENT = '<compartment id="C" size="1" constant="true" spatialDimensions="3"/>'


def math(formula):
    """MathML of an infix formula."""
    parsed = libsbml.parseL3Formula(formula)
    assert parsed is not None, libsbml.getLastParseL3Error()
    return libsbml.writeMathMLToString(parsed).split("?>", 1)[1]


def parameter(name, value=None, constant=True):
    value = "" if value is None else f' value="{value}"'
    return f'<parameter id="{name}"{value} constant="{str(constant).lower()}"/>'


def species(name, amount=None, concentration=None, only=False, boundary=False, constant=False,
            compartment="C", more=""):  # fmt: skip
    start = "" if amount is None else f' initialAmount="{amount}"'
    start += "" if concentration is None else f' initialConcentration="{concentration}"'
    flags = {"hasOnlySubstanceUnits": only, "boundaryCondition": boundary, "constant": constant}
    text = " ".join(f'{k}="{str(v).lower()}"' for k, v in flags.items())
    return f'<species id="{name}" compartment="{compartment}"{start} {text} {more}/>'


def assignment(variable, formula):
    return f'<assignmentRule variable="{variable}">{math(formula)}</assignmentRule>'


def rate(variable, formula):
    return f'<rateRule variable="{variable}">{math(formula)}</rateRule>'


def start(variable, formula):
    return f'<initialAssignment symbol="{variable}">{math(formula)}</initialAssignment>'


def function(name, formula):
    return f'<functionDefinition id="{name}">{math(formula)}</functionDefinition>'


def side(kind, parts):
    """`parts`: {species: stoichiometry, or a whole speciesReference}."""
    items = "".join(
        part if isinstance(part, str)
        else f'<speciesReference species="{name}" stoichiometry="{part}" constant="true"/>'
        for name, part in parts.items()
    )  # fmt: skip
    return f"<listOf{kind}>{items}</listOf{kind}>" if items else ""


def reaction(name, formula, reactants=None, products=None, local="", more=""):
    """`local`: the kinetic law's own list of parameters."""
    law = f"<kineticLaw>{math(formula)}{local}</kineticLaw>"
    sides = side("Reactants", reactants or {}) + side("Products", products or {})
    return f'<reaction id="{name}" reversible="false" {more}>{sides}{law}</reaction>'


def event(name, trigger, assign, delay=None, level=3, persistent="true"):
    extra = f' initialValue="true" persistent="{persistent}"' if level == 3 else ""
    values = ' useValuesFromTriggerTime="true"' if level == 3 else ""
    wait = "" if delay is None else f"<delay>{math(delay)}</delay>"
    changes = "".join(
        f'<eventAssignment variable="{variable}">{math(formula)}</eventAssignment>'
        for variable, formula in assign.items()
    )
    return (
        f'<event id="{name}"{values}><trigger{extra}>{math(trigger)}</trigger>{wait}'
        f"<listOfEventAssignments>{changes}</listOfEventAssignments></event>"
    )


def model(species="", parameters="", rules="", reactions="", initial="", functions="", events="",
          compartments=COMPARTMENT, level=(3, 2), attributes="", packages=""):  # fmt: skip
    """A whole file."""
    parts = [
        ("FunctionDefinitions", functions),
        ("Compartments", compartments),
        ("Species", species),
        ("Parameters", parameters),
        ("InitialAssignments", initial),
        ("Rules", rules),
        ("Reactions", reactions),
        ("Events", events),
    ]
    body = "".join(f"<listOf{name}>{text}</listOf{name}>" for name, text in parts if text)
    return (
        f'<?xml version="1.0"?><sbml xmlns="{NAMESPACES[level]}" level="{level[0]}" '
        f'version="{level[1]}" {packages}><model id="m" {attributes}>{body}</model></sbml>'
    )
