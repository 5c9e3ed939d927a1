"""What an SBML file says, checked and in plain terms; what is not supported is refused by name.

Formulas are `Node`s with function calls expanded and local parameters renamed to
"reaction.parameter", so that every name means one thing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from xml.parsers import expat

from pcuq._given import check_file
from pcuq.errors import InputError
from pcuq.io import expressions as ex
from pcuq.io.expressions import Node
from pcuq.io.mathml import Reader, read_functions

# Packages that change what a model means; others, such as layout, only add to it.
REFUSED_PACKAGES = ("comp", "fbc", "qual", "multi", "spatial", "arrays", "distrib", "dyn", "req")


COMPRESSED = (".gz", ".bz2", ".zip")
MOST_NESTED = 300  # elements; models of other people have less than twenty


class Compartment(NamedTuple):
    """`size` is None where the file gives none."""

    size: float | None
    dimensions: float


class Species(NamedTuple):
    """`amount` or `concentration` is the initial one, both None where the file gives neither."""

    compartment: str
    amount: float | None
    concentration: float | None
    substance_only: bool
    reacts: bool  # reactions change it: it is neither constant nor on the boundary
    conversion: str | None


class Reaction(NamedTuple):
    """`changes`: (species, stoichiometry), negative for reactants."""

    rate: Node
    changes: tuple[tuple[str, Node], ...]


class Event(NamedTuple):
    """`assign` at the times when `trigger` becomes true."""

    trigger: Node
    delay: Node | None
    assign: dict[str, Node]
    from_trigger: bool  # values are those at the trigger, not after the delay
    initially: bool  # what the trigger counts as before the start
    persistent: bool


@dataclass
class Document:
    """An SBML model, as data."""

    id: str
    compartments: dict[str, Compartment] = field(default_factory=dict)
    species: dict[str, Species] = field(default_factory=dict)
    # Global and local parameters, and stoichiometries with an id; None where no value is given.
    parameters: dict[str, float | None] = field(default_factory=dict)
    reactions: dict[str, Reaction] = field(default_factory=dict)
    assignments: dict[str, Node] = field(default_factory=dict)
    rates: dict[str, Node] = field(default_factory=dict)
    initial: dict[str, Node] = field(default_factory=dict)
    events: dict[str, Event] = field(default_factory=dict)

    @property
    def quantities(self) -> tuple[str, ...]:
        """Everything that has a value."""
        return (*self.species, *self.compartments, *self.parameters, *self.reactions)


def read(path: str | Path) -> Document:
    """The model of a file."""
    libsbml = import_libsbml()
    path = check_file(path, "SBML file", "give the path of one")
    _check_file(path)
    return describe(libsbml.readSBMLFromFile(str(path)), path.name)


def _check_file(path: Path) -> None:
    """Refuse what libsbml would unpack, and elements so deep in others that it would crash."""
    if path.suffix in COMPRESSED:
        raise InputError(f"{path.name} is compressed, which is not supported: unpack it first.")
    depth = 0

    def begin(*_: Any) -> None:
        nonlocal depth
        depth += 1
        if depth > MOST_NESTED:
            raise InputError(
                f"{path.name} is nested too deeply: line {parser.CurrentLineNumber} has an element "
                f"inside {MOST_NESTED} others; write its formulas with fewer levels."
            )

    def end(*_: Any) -> None:
        nonlocal depth
        depth -= 1

    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler = begin, end
    try:
        with path.open("rb") as file:
            parser.ParseFile(file)
    except InputError:
        raise
    except (expat.ExpatError, LookupError, ValueError):  # the last two: an unknown encoding
        pass  # libsbml, which reads with expat too, says what is wrong
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from None


def import_libsbml() -> Any:
    """libsbml, or an error that says how to get it."""
    try:
        import libsbml
    except ImportError:
        raise InputError(
            'reading SBML needs python-libsbml: install it with pip install "pcuq[petab]".'
        ) from None
    return libsbml


@ex.shallow()
def describe(document: Any, source: str) -> Document:
    """The model of a libsbml document; `source` is what messages call it."""
    libsbml = import_libsbml()
    _check_readable(libsbml, document, source)
    model = document.getModel()
    _refuse_packages(document, source)
    _check_identifiers(model, source)
    reader = Reader(read_functions(model))
    found = Document(model.getId() or model.getName() or Path(source).stem)
    for item in _each(model.getNumCompartments, model.getCompartment):
        found.compartments[item.getId()] = Compartment(
            _value(item.isSetSize(), item.getSize()), item.getSpatialDimensionsAsDouble()
        )
    for item in _each(model.getNumSpecies, model.getSpecies):
        found.species[item.getId()] = _species(model, item, found)
    for item in _each(model.getNumParameters, model.getParameter):
        found.parameters[item.getId()] = _value(item.isSetValue(), item.getValue())
    for item in _each(model.getNumReactions, model.getReaction):
        _read_reaction(item, found, reader)
    _read_rules(model, found, reader)
    for item in _each(model.getNumInitialAssignments, model.getInitialAssignment):
        target = item.getSymbol()
        if item.isSetMath():
            found.initial[target] = reader(item.getMath(), f"the initial assignment to {target!r}")
    for position, item in enumerate(_each(model.getNumEvents, model.getEvent)):
        _read_event(item, position, found, reader)
    _check_names(found)
    return found


def _check_readable(libsbml: Any, document: Any, source: str) -> None:
    for i in range(document.getNumErrors()):
        error = document.getError(i)
        if error.getErrorId() == libsbml.MissingXMLEncoding:
            continue  # UTF-8 is the default of XML
        if error.getSeverity() >= libsbml.LIBSBML_SEV_ERROR:
            said = " ".join(error.getMessage().split())
            raise InputError(f"{source} is not valid SBML: line {error.getLine()}: {said}")
    model = document.getModel()
    if model is None:
        raise InputError(f"{source} holds no SBML model: a <sbml> element with a <model> is due.")
    if document.getLevel() < 2:
        raise InputError(
            f"{source} is SBML level {document.getLevel()}: levels 2 and 3 are supported; convert "
            "it with libsbml."
        )


def _refuse_packages(document: Any, source: str) -> None:
    """Refuse what a package adds to the model; one that is only declared does no harm.

    Required packages that libsbml does not know are errors that it has found when it read the file.
    """
    everything = document.getListOfAllElements()
    added = [item for item in everything if item.getPackageName() in REFUSED_PACKAGES]
    if added:
        first = next((item for item in added if item.getIdAttribute()), added[0])
        raise InputError(
            f"{source} uses the SBML package {first.getPackageName()!r} "
            f"({first.getElementName()} {first.getIdAttribute()!r}), which is not supported: write "
            "the model in SBML core alone."
        )


def _check_identifiers(model: Any, source: str) -> None:
    seen: dict[str, str] = {}
    for kind in ("FunctionDefinition", "Compartment", "Species", "Parameter", "Reaction", "Event"):
        number = getattr(model, f"getNum{kind}s" if kind != "Species" else "getNumSpecies")
        for item in _each(number, getattr(model, f"get{kind}")):
            items = [(item.getId(), kind)]
            if kind == "Reaction":
                references = (*_references(item, "Reactant"), *_references(item, "Product"))
                items += [(reference.getId(), "SpeciesReference") for reference in references]
            for identifier, what in items:
                if not identifier:  # an event, or a reference: libsbml refuses others without
                    continue
                if identifier in seen:
                    raise InputError(
                        f"{source} uses the id {identifier!r} twice, for a {seen[identifier]} and "
                        f"a {what}: ids must differ."
                    )
                seen[identifier] = what


def _species(model: Any, item: Any, found: Document) -> Species:
    identifier, place = item.getId(), item.getCompartment()
    if place not in found.compartments:
        raise InputError(
            f"species {identifier!r} is in the compartment {place!r}, which the model does not "
            f"have: it has {', '.join(found.compartments) or 'none'}."
        )
    conversion = None
    if item.isSetConversionFactor():
        conversion = item.getConversionFactor()
    elif model.isSetConversionFactor():
        conversion = model.getConversionFactor()
    return Species(
        compartment=place,
        amount=_value(item.isSetInitialAmount(), item.getInitialAmount()),
        concentration=_value(item.isSetInitialConcentration(), item.getInitialConcentration()),
        # Without dimensions there is no concentration.
        substance_only=item.getHasOnlySubstanceUnits() or not found.compartments[place].dimensions,
        reacts=not (item.getBoundaryCondition() or item.getConstant()),
        conversion=conversion,
    )


def _read_reaction(item: Any, found: Document, reader: Reader) -> None:
    identifier = item.getId()
    where = f"reaction {identifier!r}"
    if item.getFast():
        raise InputError(
            f"{where} is fast, which is not supported: give it a large rate, or take the "
            "equilibrium into the other equations."
        )
    law = item.getKineticLaw()
    rate = ex.number(math.nan)
    if law is not None and law.isSetMath():
        local = {}
        several = (
            _each(law.getNumLocalParameters, law.getLocalParameter)
            if law.getLevel() > 2
            else _each(law.getNumParameters, law.getParameter)
        )
        for parameter in several:
            name = f"{identifier}.{parameter.getId()}"
            found.parameters[name] = _value(parameter.isSetValue(), parameter.getValue())
            local[parameter.getId()] = ex.name(name)
        rate = ex.substitute(reader(law.getMath(), f"the kinetic law of {where}"), local)
    changes = []
    for kind, sign in (("Reactant", -1.0), ("Product", 1.0)):
        for reference in _references(item, kind):
            species = reference.getSpecies()
            if species not in found.species:
                raise InputError(
                    f"{where} has the {kind.lower()} {species!r}, which is no species of the "
                    f"model: it has {', '.join(found.species) or 'none'}."
                )
            stoichiometry = _stoichiometry(reference, found, reader, where)
            signed = ex.node("times", ex.number(sign), stoichiometry)
            changes.append((species, signed if sign < 0 else stoichiometry))
    if rate.value == "nan" and rate.op == "number" and changes:
        affected = [s for s, _ in changes if found.species[s].reacts]
        if affected:
            raise InputError(f"{where} has no kinetic law: give it a formula for its rate.")
    found.reactions[identifier] = Reaction(rate, tuple(changes))


def _stoichiometry(reference: Any, found: Document, reader: Reader, where: str) -> Node:
    species = reference.getSpecies()
    if reference.isSetStoichiometryMath():
        return reader(
            reference.getStoichiometryMath().getMath(),
            f"the stoichiometry of {species!r} in {where}",
        )
    value = float(reference.getStoichiometry())
    known = not math.isnan(value) and (reference.getLevel() == 2 or reference.isSetStoichiometry())
    if reference.getLevel() == 2:
        value /= reference.getDenominator() or 1
    if reference.getId():
        found.parameters[reference.getId()] = value if known else None
        return ex.name(reference.getId())
    if not known:
        raise InputError(f"{where} has no stoichiometry for {species!r}: give it a number.")
    return ex.number(value)


def _read_rules(model: Any, found: Document, reader: Reader) -> None:
    for position, rule in enumerate(_each(model.getNumRules, model.getRule)):
        if rule.isAlgebraic():
            name = rule.getIdAttribute() or rule.getMetaId() or f"number {position + 1}"
            raise InputError(
                f"the algebraic rule {name!r} is not supported: solve it for one of its variables "
                "and write an assignment rule."
            )
        kind = "assignment" if rule.isAssignment() else "rate"
        target = rule.getVariable()
        if target in found.assignments or target in found.rates:
            raise InputError(f"{target!r} has more than one rule: leave one of them.")
        if rule.isSetMath():
            formula = reader(rule.getMath(), f"the {kind} rule for {target!r}")
            (found.assignments if rule.isAssignment() else found.rates)[target] = formula


def _read_event(item: Any, position: int, found: Document, reader: Reader) -> None:
    identifier = item.getId() or f"number {position + 1}"
    where = f"event {identifier!r}"
    trigger = item.getTrigger()
    if trigger is None or not trigger.isSetMath():
        raise InputError(f"{where} has no trigger: give it a condition in time.")
    if item.isSetPriority():
        raise InputError(f"{where} has a priority, which is not supported: remove it.")
    delay = item.getDelay()
    assign = {}
    for part in _each(item.getNumEventAssignments, item.getEventAssignment):
        if part.isSetMath():
            assign[part.getVariable()] = reader(part.getMath(), where)
    found.events[identifier] = Event(
        trigger=reader(trigger.getMath(), where),
        delay=reader(delay.getMath(), where) if delay is not None and delay.isSetMath() else None,
        assign=assign,
        from_trigger=item.getUseValuesFromTriggerTime(),
        initially=trigger.getInitialValue() if item.getLevel() > 2 else True,
        persistent=trigger.getPersistent() if item.getLevel() > 2 else True,
    )


def _check_names(found: Document) -> None:
    known = set(found.quantities)
    formulas = [
        *((f"the assignment rule for {k!r}", k, v) for k, v in found.assignments.items()),
        *((f"the rate rule for {k!r}", k, v) for k, v in found.rates.items()),
        *((f"the initial assignment to {k!r}", k, v) for k, v in found.initial.items()),
        *((f"reaction {k!r}", k, v.rate) for k, v in found.reactions.items()),
        *((f"reaction {k!r}", k, n) for k, v in found.reactions.items() for _, n in v.changes),
        *((f"event {k!r}", None, v.trigger) for k, v in found.events.items()),
        *((f"event {k!r}", None, v.delay) for k, v in found.events.items() if v.delay),
        *((f"event {k!r}", z, n) for k, v in found.events.items() for z, n in v.assign.items()),
    ]
    for where, target, formula in formulas:
        for name in sorted({*ex.names(formula), *([target] if target else [])} - known):
            raise InputError(f"{where} names {name!r}, which the model does not have.")
    for identifier, species in found.species.items():
        if species.conversion is not None and species.conversion not in found.parameters:
            raise InputError(
                f"species {identifier!r} has the conversion factor {species.conversion!r}, which "
                "is no parameter of the model."
            )
    circle = ex.cycle(
        {
            **{name: ex.names(formula) for name, formula in found.assignments.items()},
            **{name: ex.names(reaction.rate) for name, reaction in found.reactions.items()},
        }
    )
    if circle:
        raise InputError(
            f"the assignment rules are circular ({' → '.join(circle)}): each must follow from "
            "those before it."
        )


def _references(reaction: Any, kind: str) -> Iterator[Any]:
    return _each(getattr(reaction, f"getNum{kind}s"), getattr(reaction, f"get{kind}"))


def _each(number: Callable[[], int], get: Callable[[int], Any]) -> Iterator[Any]:
    return (get(i) for i in range(number()))


def _value(given: bool, value: float) -> float | None:
    return float(value) if given and not math.isnan(value) else None
