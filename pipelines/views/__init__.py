"""What people and programs are shown of a delivery: on screens, pages and reports, in CI systems, as notifications."""
