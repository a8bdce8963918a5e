"""The audit: numbers of partrain beside those of implementations that others wrote. `make audit` runs it; `audit.md` has its table."""
