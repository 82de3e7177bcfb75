"""Engines over several nodes: LeaderWorkerSets behind the port `Fleet`, whose users tidegate itself moves."""
