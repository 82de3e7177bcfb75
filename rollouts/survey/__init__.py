"""What serves a model in a cluster before tidegate does: its Rollout, routes, autoscaler and monitors, as facts."""

from __future__ import annotations

from rollouts.survey.model import Router, ServingSurvey
from rollouts.survey.read import survey

__all__ = ["Router", "ServingSurvey", "survey"]
