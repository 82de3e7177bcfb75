"""What stands at the top of the files: who wrote them, what they are for, and what a person should change instead."""

MARK = "# Written by tidegate"
"""How each of them begins, also those whose first lines are written elsewhere."""

MARK_OF_JSON = '"tidegate"'
"""A tag of every dashboard: JSON has no comments."""

SLOTH = f"""\
{MARK}, for Sloth v0.16: {{call}}
# Change the SLOs in delivery.yaml, not this file.

"""
TEMPLATES = f"""\
---
{MARK}, for Argo Rollouts. Change the SLOs in delivery.yaml, not this file.
# Templates named -step are for a step of a canary, those named -background for the analysis of the whole rollout.

"""
MONITORS = f"""\
---
{MARK}, for the Prometheus operator. Change delivery.yaml, not this file.

"""
ALERTMANAGER = f"""\
{MARK} as an example, to start from or to merge into a configuration of your own.
# Secrets are read from files. The receivers, and the address of the queue of tickets, are yours to name.

"""
