"""A delivery as an Argo Workflow: the plan's own steps, each a container that runs `tidegate stage`."""
