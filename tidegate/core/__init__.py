"""What every room may use: errors with exit codes, specs with line numbers, quantities, the clock."""
