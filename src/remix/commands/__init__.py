"""The sub-commands of `remix`: plain functions whose arguments are the options and whose docstrings are the help."""
