"""`%load_ext allranks.azure` in a notebook answers the imports of Azure ML's packages."""

from allranks.compat.azure import install as install
from allranks.compat.azure import load_ipython_extension as load_ipython_extension
