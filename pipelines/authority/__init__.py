"""Who may decide: trust, proofs of who somebody is, approvals, freezes, and the audit of a record."""
