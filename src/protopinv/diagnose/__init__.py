"""Questions to a bank or a model: frozen dataclasses of plain numbers come out."""

from protopinv.diagnose.allocation import Allocation, measure_allocation
from protopinv.diagnose.conditioning import Diagnosis, LayerDiagnosis, diagnose
from protopinv.diagnose.generalisation import Generalisation, Outputs, measure_generalisation
from protopinv.diagnose.sensitivity import Perturbation, check_lemma, perturb
from protopinv.diagnose.trace import Trace, TracePoint

__all__ = [
    "Allocation",
    "Diagnosis",
    "Generalisation",
    "LayerDiagnosis",
    "Outputs",
    "Perturbation",
    "Trace",
    "TracePoint",
    "check_lemma",
    "diagnose",
    "measure_allocation",
    "measure_generalisation",
    "perturb",
]
