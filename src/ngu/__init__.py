"""Never Give Up."""
