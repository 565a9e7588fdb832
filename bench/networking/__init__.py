"""Networks of the field on blocks: what each gives split, beside what it gives in one process."""
