"""What an LLM service promises its users, as SLOs on the metrics of its engines and its proxy."""

from slo.catalogue.make import group_of, slo_of

__all__ = ["group_of", "slo_of"]
