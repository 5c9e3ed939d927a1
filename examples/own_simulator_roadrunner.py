"""libRoadRunner as the simulator, with a model written as SBML text.

    python examples/own_simulator_roadrunner.py       (pip install libroadrunner)

For SBML there is also pcuq.from_sbml, which is much faster; this shows how any other program is
brought in: load once in each process, set values, simulate.
"""

from functools import cache

import numpy as np

import pcuq

SBML = """<?xml version="1.0" encoding="UTF-8"?>
<sbml xmlns="http://www.sbml.org/sbml/level3/version1/core" level="3" version="1">
 <model id="chain">
  <listOfCompartments><compartment id="C" size="1" constant="true"/></listOfCompartments>
  <listOfSpecies>
   <species id="A" compartment="C" initialConcentration="1" hasOnlySubstanceUnits="false"
            boundaryCondition="false" constant="false"/>
   <species id="B" compartment="C" initialConcentration="0" hasOnlySubstanceUnits="false"
            boundaryCondition="false" constant="false"/>
  </listOfSpecies>
  <listOfParameters>
   <parameter id="k1" value="1" constant="true"/><parameter id="k2" value="1" constant="true"/>
  </listOfParameters>
  <listOfReactions>
   <reaction id="r1" reversible="false" fast="false">
    <listOfReactants>
     <speciesReference species="A" stoichiometry="1" constant="true"/>
    </listOfReactants>
    <listOfProducts>
     <speciesReference species="B" stoichiometry="1" constant="true"/>
    </listOfProducts>
    <kineticLaw><math xmlns="http://www.w3.org/1998/Math/MathML">
     <apply><times/><ci>k1</ci><ci>A</ci></apply></math></kineticLaw>
   </reaction>
   <reaction id="r2" reversible="false" fast="false">
    <listOfReactants>
     <speciesReference species="B" stoichiometry="1" constant="true"/>
    </listOfReactants>
    <kineticLaw><math xmlns="http://www.w3.org/1998/Math/MathML">
     <apply><times/><ci>k2</ci><ci>B</ci></apply></math></kineticLaw>
   </reaction>
  </listOfReactions>
 </model>
</sbml>
"""

times = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0])
measured = np.array([0.01, 0.34, 0.47, 0.49, 0.46, 0.36, 0.27, 0.17, 0.11])


@cache
def simulator():
    """The program with the model in it, made once in each process."""
    import roadrunner

    runner = roadrunner.RoadRunner(SBML)
    runner.timeCourseSelections = ["[B]"]
    runner.integrator.setValue("relative_tolerance", 1e-8)
    return runner


def simulate(x, p):
    """[B] at times x."""
    runner = simulator()
    runner.reset()
    for name in ("k1", "k2"):
        runner[name] = p[name]
    return np.asarray(runner.simulate(times=x.tolist()))


problem = pcuq.Problem(
    pcuq.ExternalModel(
        simulate,
        parameters={"k1": pcuq.Parameter("log"), "k2": pcuq.Parameter("log")},
        outputs=["B"],
    ),
    pcuq.Data(measured, times, noise=0.03),
)

if __name__ == "__main__":
    fit = pcuq.fit(problem, regularisation=1e-3, particles=10, warmup=100, draws=100, thin=1)
    print(fit)
    print(fit.summary().to_string(float_format="{:.3g}".format))
