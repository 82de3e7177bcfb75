"""Who a person is, how that was proven, and what exactly was said: of approvals, refusals, requests and resuming."""
