"""One short file per published method: a declaration that picks parts of the rooms above."""

# Each of these registers its method; the order is the one in which they are listed.
from remix.methods import finetune, joint, lwf, ssre, praka  # noqa: F401  # isort: skip
from remix.methods import deepinversion, deepinversion_noise, abd, dcmi, rdfcil, pmi, remix  # noqa: F401  # isort: skip
from remix.methods import ldc, efcpp, adagauss, drift  # noqa: F401  # isort: skip
from remix.methods import ncm, lda, fecam, ranpac, auto  # noqa: F401  # isort: skip
from remix.methods import zs_clip, vpt, coda_p, moe_adapter, attriclip  # noqa: F401  # isort: skip
from remix.methods.plain import first_task
from remix.methods.registry import create_method, list_methods, method, method_class

__all__ = ["create_method", "first_task", "list_methods", "method", "method_class"]
